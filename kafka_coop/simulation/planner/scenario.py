"""A planner's scenario: what a file may say, and what is said about a file that says it wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kafka_coop.assignors import resolve
from kafka_coop.errors import ConfigurationError
from kafka_coop.types import RebalanceProtocol

Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Fraction: TypeAlias = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]

MOST_PARTITIONS = 10_000_000
MOST_MEMBERS = 100_000


class ScenarioError(Exception):
    """A scenario file can't be used. The text names file, field, value and remedy, line by line."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Topics(_Table):
    """Some topics of equal size."""

    name: str = Field(default="topic", min_length=1, description="what their names begin with")
    count: int = Field(default=1, ge=1, le=1_000_000, description="how many, at least 1")
    partitions: int = Field(ge=1, le=MOST_PARTITIONS, description="of each topic, at least 1")


class Client(_Table):
    """How the group's members behave.

    Attributes:
        heartbeat: Seconds; None: as the leader suggests to a group of that size.
        hurries: A member that a follow-up round is announced to begins it, or where users are
            slow beats often until it begins.
        beats_from_sync: The heartbeat timer starts anew with each SyncGroup.
        drains: Who is to stop hands over first, and goes when it owns nothing.
    """

    name: str = Field(min_length=1, description="what the table calls them")
    protocol: Literal["eager", "cooperative"] = Field(description="eager or cooperative")
    strategy: str = Field(default="cooperative-sticky", description="a built-in strategy's name")
    heartbeat: Annotated[float, Field(ge=0.001, le=3600)] | None = Field(
        default=3.0, description="heartbeat.interval.ms in seconds; null: as suggested"
    )
    hurries: bool = Field(default=False, description="true or false")
    beats_from_sync: bool = Field(default=True, description="true or false")
    drains: bool = Field(default=False, description="true or false; true: cooperative only")

    @field_validator("strategy")
    @classmethod
    def _exists(cls, strategy: str) -> str:
        try:
            resolve(strategy)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return strategy

    @model_validator(mode="after")
    def _speaks(self) -> Client:
        needed = RebalanceProtocol[self.protocol.upper()]
        if needed not in resolve(self.strategy).supported_protocols:
            raise ValueError(f"{self.strategy} is not {self.protocol}: choose another strategy")
        if self.drains and self.protocol == "eager":
            raise ValueError("an eager group can't drain members: leave drains out")
        return self


EAGER = Client(name="eager", protocol="eager", strategy="roundrobin")
COOPERATIVE = Client(name="cooperative", protocol="cooperative")
OURS = Client(
    name="kafka-coop", protocol="cooperative", heartbeat=None, hurries=True, beats_from_sync=False
)
OURS_DRAINING = OURS.model_copy(update={"name": "kafka-coop-drain", "drains": True})
BUILT_IN = {client.name: client for client in (EAGER, COOPERATIVE, OURS, OURS_DRAINING)}
"""Eager and cooperative as Java and librdkafka do it, and ours, that close or drain to leave."""


class ScaleOut(_Table):
    """More members."""

    do: Literal["scale-out"]
    at: Seconds = Field(default=10.0, description="seconds since the beginning")
    by: Annotated[float, Field(gt=0, le=100)] = Field(description="0.5 for half as many more")
    within: Seconds = Field(default=5.0, description="seconds in which they all start")

    def more(self, members: int) -> int:
        """How many start beside so many."""
        return max(1, round(members * self.by))


class ZoneLoss(_Table):
    """A zone's members are gone without a word."""

    do: Literal["zone-loss"]
    at: Seconds = Field(default=10.0, description="seconds since the beginning")
    zone: int = Field(default=0, ge=0, description="0 for the first zone")


class RollingDeploy(_Table):
    """Every member closes (or drains, then closes) and starts again, batch by batch."""

    do: Literal["rolling-deploy"]
    at: Seconds = Field(default=10.0, description="seconds since the beginning")
    batch: Fraction = Field(default=0.05, description="of the group at a time, 0 to 1")
    within: Seconds = Field(default=1.0, description="seconds in which a batch closes")
    down: Seconds = Field(
        default=10.0, description="seconds from being told to stop to joining again"
    )
    every: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=60.0, description="seconds from batch to batch, above 0"
    )


Step: TypeAlias = Annotated[ScaleOut | ZoneLoss | RollingDeploy, Field(discriminator="do")]


class Plan(_Table):
    """A whole scenario. Times are seconds."""

    name: str = Field(default="scenario", min_length=1, description="any text")
    seed: int = Field(default=0, ge=0, description="a whole number, at least 0")
    topics: tuple[Topics, ...] = Field(min_length=1, description="at least one table of topics")
    members: int = Field(ge=1, le=MOST_MEMBERS, description=f"1 to {MOST_MEMBERS}")
    zones: int = Field(default=3, ge=1, le=1000, description="that members are spread over")
    round_trip: Annotated[float, Field(gt=0, le=60)] = Field(
        default=0.001, description="to a broker and back, seconds above 0"
    )
    poll: Seconds = Field(default=0.1, description="the longest time between two polls")
    callback: Seconds = Field(default=0.0, description="what on_revoke takes")
    commit: Seconds = Field(default=0.005, description="what the commit after on_revoke takes")
    leader: Seconds = Field(default=0.5, description="what the leader's assignor takes")
    coordinator: Annotated[float, Field(ge=1, le=1e9)] = Field(
        default=20_000.0, description="requests of one group that the broker takes in a second"
    )
    session_timeout: Annotated[float, Field(ge=0.01, le=1e6)] = Field(
        default=45.0, description="session.timeout.ms in seconds"
    )
    rebalance_timeout: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=300.0, description="max.poll.interval.ms in seconds"
    )
    compare: tuple[Client, ...] = Field(
        default=(EAGER, COOPERATIVE, OURS),
        min_length=1,
        description=f"clients: {', '.join(BUILT_IN)}, or tables of your own",
    )
    rows: int = Field(
        default=200, ge=1, le=5000, description="most rows of the plot, 1 to 5000, a member each"
    )
    steps: tuple[Step, ...] = Field(
        min_length=1, description="at least one: scale-out, zone-loss, rolling-deploy"
    )

    @field_validator("compare", mode="before")
    @classmethod
    def _by_name(cls, clients: object) -> object:
        if not isinstance(clients, list | tuple):
            return clients
        return [BUILT_IN.get(c, c) if isinstance(c, str) else c for c in clients]

    @model_validator(mode="after")
    def _is_in_time(self) -> Plan:
        """Who misses each round, and comes back each time, keeps the group from ever resting."""
        takes = self.poll + self.callback + self.commit
        if takes >= self.rebalance_timeout:
            raise ValueError(
                f"poll + callback + commit = {self.poll} + {self.callback} + {self.commit}"
                f" = {takes:.10g}: must be below rebalance_timeout = {self.rebalance_timeout}, or"
                " members miss round after round: raise it, or lower one of the others"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Plan:
        total = sum(t.count * t.partitions for t in self.topics)
        if total > MOST_PARTITIONS:
            raise ValueError(f"{total} partitions in all: plan for {MOST_PARTITIONS} at most")
        names = [t.name for t in self.topics]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"topics: {', '.join(twice)} is there twice: give each a name")
        clients = [c.name for c in self.compare]
        if twice := sorted({n for n in clients if clients.count(n) > 1}):
            raise ValueError(f"compare: {', '.join(twice)} is there twice: name each once")
        return self

    @model_validator(mode="after")
    def _loses_some(self) -> Plan:
        """A lost zone had members, and others are left: who else would take over?"""
        rows = self.members
        per_zone = [len(range(zone, rows, self.zones)) for zone in range(self.zones)]
        for number, step in sorted(enumerate(self.steps), key=lambda s: s[1].at):
            if isinstance(step, ScaleOut):
                more = step.more(sum(per_zone))
                for zone in range(self.zones):
                    first = rows + (zone - rows) % self.zones
                    per_zone[zone] += len(range(first, rows + more, self.zones))
                rows += more
            elif isinstance(step, ZoneLoss):
                lost = f"steps.{number}.zone = {step.zone}"
                if step.zone >= self.zones:
                    raise ValueError(
                        f"{lost}: there are {self.zones} zones, numbered from 0: name one of"
                        " them, or raise zones"
                    )
                if not per_zone[step.zone]:
                    raise ValueError(
                        f"{lost}: none of {sum(per_zone)} members is in it then: name another, or"
                        f" raise members = {self.members}, or lower zones = {self.zones}"
                    )
                if per_zone[step.zone] == sum(per_zone):
                    raise ValueError(
                        f"{lost}: all members are in it then, and some must be left: raise"
                        f" members = {self.members}, or zones = {self.zones}"
                    )
                per_zone[step.zone] = 0
        return self

    def partitions(self) -> dict[str, int]:
        """Every topic's number of partitions."""
        return {
            f"{t.name}-{i:0{len(str(t.count - 1))}}": t.partitions
            for t in self.topics
            for i in range(t.count)
        }


def load(path: Path) -> Plan:
    """Reads a scenario file: ``.toml``, ``.yaml`` or ``.yml``.

    Raises:
        ScenarioError: It can't be read, or says something that makes no sense.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: can't be read ({error}): name a scenario file") from None
    return parse(_table(path, text), str(path))


def parse(table: object, where: str) -> Plan:
    """Checks a scenario.

    Raises:
        ScenarioError: It says something that makes no sense.
    """
    try:
        return Plan.model_validate(table)
    except ValidationError as error:
        raise ScenarioError(
            "\n".join(_said(where, e) for e in error.errors() if not _follows(e))
        ) from None


def _table(path: Path, text: str) -> object:
    try:
        return _read(path, text)
    except RecursionError:
        raise ScenarioError(f"{path}: is nested too deeply: a scenario needs few levels") from None


def _read(path: Path, text: str) -> object:
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except ValueError as error:
            raise ScenarioError(f"{path}: is no TOML: {error}") from None
    if path.suffix not in {".yaml", ".yml"}:
        raise ScenarioError(f"{path}: {path.suffix or 'no suffix'!r}: use .toml, .yaml or .yml")
    try:
        import yaml  # noqa: PLC0415  # an extra
    except ImportError:
        raise ScenarioError(
            f"{path}: YAML needs PyYAML: pip install 'kafka-coop[cli]', or write TOML"
        ) from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the 31st of February
        raise ScenarioError(f"{path}: is no YAML: {error}") from None
    except (LookupError, AttributeError):  # PyYAML's own, of `!!bool maybe` and the like
        raise ScenarioError(f"{path}: is no YAML: a value is not what its tag says") from None


def _follows(error: Any) -> bool:
    """Whether it only says that a list is too short without its elements that are wrong."""
    return error["type"] == "too_short" and bool(error["input"])


def _said(where: str, error: Any) -> str:
    """One complaint: field, value, what is wrong, and what the field takes."""
    at = ".".join(str(part) for part in error["loc"] if part not in _TAGS)
    message = _OF_TYPE.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    if not at:
        if error["type"] == "model_type":
            is_now = "empty" if error["input"] is None else _short(error["input"])
            message += f", and is {is_now} ({_remedy([''])})"
        return f"{where}: {message}"
    value = "" if error["type"] == "missing" else f" = {_short(error['input'])}"
    remedy = _remedy([str(part) for part in error["loc"] if isinstance(part, str)])
    return f"{where}: {at}{value}: {message}{f' ({remedy})' if remedy else ''}"


_OF_TYPE = {
    "model_type": "must be a table of fields",
    "model_attributes_type": "must be a table of fields",
    "tuple_type": "must be a list",
}
"""What pydantic says of its own classes instead."""
_TAGS = {"scale-out", "zone-loss", "rolling-deploy"}
_MODELS: dict[str, type[BaseModel]] = {
    "topics": Topics,
    "compare": Client,
    "scale-out": ScaleOut,
    "zone-loss": ZoneLoss,
    "rolling-deploy": RollingDeploy,
}


def _remedy(names: list[str]) -> str:
    model: type[BaseModel] = Plan
    for name in names[:-1]:
        model = _MODELS.get(name, model)
    field = model.model_fields.get(names[-1]) if names else None
    if field is None:
        return f"there is: {', '.join(model.model_fields)}"
    return field.description or ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


_LONGEST = 60
