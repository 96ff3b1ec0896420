"""What a simulated process does with brokers: as the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_coop.assignors import CooperativeSticky
from kafka_coop.errors import RequestTimedOutError
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.messages import FindCoordinator
from kafka_coop.simulation.agenda import Agenda
from kafka_coop.simulation.network import OnAnswer
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.user import UserHabits


class Brokers:
    """A network that keeps who was asked, and answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, OnAnswer]] = []
        self.agenda = Agenda()

    def send(self, *_: object, on_answer: OnAnswer, **__: object) -> None:
        self.asked.append((self.agenda.now, on_answer))


def test_of_brokers_that_are_silent_ever_more_are_asked_and_the_first_answer_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Brokers()
    world: Any = SimpleNamespace(
        agenda=network.agenda,
        network=network,
        nodes=(1, 2, 3, 4),
        watcher=SimpleNamespace(coverage=SimpleNamespace(edges=set())),
    )
    settings = MemberSettings(group_id="g", assignors=(CooperativeSticky(),))
    process = Process("p", settings, UserHabits(), world, seed="1")
    heard: list[Any] = []
    monkeypatch.setattr(process, "handle", heard.append)
    answer: Any = "an answer"
    late = RequestTimedOutError("no answer in time")

    def event(outcome: Any) -> Any:
        return outcome

    process._ask_any(FindCoordinator(group_id="g"), event)
    while network.agenda.next_time() <= 3.0:
        network.agenda.step()
    assert [at for at, _ in network.asked] == [0.0, 1.0, 3.0]
    network.asked[0][1](late)
    assert len(network.asked) == 4, "what fails costs no patience"
    network.asked[1][1](late)
    assert not heard, "two are still under way"
    network.asked[2][1](answer)
    network.asked[3][1](late)
    assert heard == [answer]
