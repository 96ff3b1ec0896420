"""The picture of a plan: well-formed, self-contained, and true to size."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from kafka_coop import plan
from kafka_coop.planning import GroupPlan
from kafka_coop.planning.picture import html, svg
from kafka_coop.types import Subscription

SVG = "{http://www.w3.org/2000/svg}"


def everyone(count: int, partitions: int = 24) -> GroupPlan:
    members = {f"m{i:03}": Subscription(topics=("t",)) for i in range(count)}
    return plan("cooperative-sticky", {"t": partitions}, members)


def bands(picture: str) -> dict[str, list[float]]:
    """Per kind, the heights of its bands at their left end."""
    found: dict[str, list[float]] = {}
    for path in ET.fromstring(picture).iter(f"{SVG}path"):
        x, y = re.findall(r"M(\S+) (\S+?)C", path.attrib["d"])[0]
        bottom = path.attrib["d"].removesuffix("Z").rsplit(" ", 1)[1]
        assert float(x) > 0
        found.setdefault(path.attrib["class"], []).append(float(bottom) - float(y))
    return found


def test_bands_are_as_high_as_partitions_are_many() -> None:
    heights = bands(svg(everyone(3).join("new")))
    stays, waits = sum(heights.pop("stays")), sum(heights.pop("waits"))
    assert not heights
    assert stays / waits == pytest.approx(18 / 6, rel=0.01)


def test_what_has_no_owner_comes_from_nobody() -> None:
    picture = svg(everyone(2).leave("m000"))
    assert bands(picture).keys() == {"stays", "new"}
    assert ">nobody <" in picture


def test_names_of_members_are_text_and_nothing_else() -> None:
    name = "<script>alert('&')</script>\x1b[2J"
    for text in (svg(everyone(2).join(name)), html(everyone(2).join(name), title="<b>")):
        assert "<script" not in text
        assert "\x1b" not in text
        assert "<b>" not in text
    ET.fromstring(svg(everyone(2).join(name)))


def test_a_page_needs_nothing_from_elsewhere() -> None:
    page = html(everyone(2).join("new"))
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "the member is new" in page


def test_in_a_large_group_those_whom_it_does_not_concern_are_one() -> None:
    picture = svg(everyone(100, 200).join("new"))
    assert "the others" in picture
    assert picture.count("<rect") < 60


def test_a_group_of_nobody_has_a_picture() -> None:
    ET.fromstring(svg(plan("range", {}, {})))
