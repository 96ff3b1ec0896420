"""What a user of the source can be told. Every text names the option and the remedy.

ValueError
└── OptionError            an option is wrong, or contradicts another
RuntimeError
└── SparkSourceError       the query can't go on
    ├── CheckpointError    the checkpoint is another source's, or another group's
    ├── DataLossError      records are gone that were still to be read
    ├── MembershipError    the group, or the brokers, did not do their part in time
    └── RecordError        a record does not fit the schema's types
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_coop.types import TopicPartition


class OptionError(ValueError):
    """An option of the data source is wrong.

    Attributes:
        option: Its name, as documented.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option
        self.problem = problem

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return type(self), (self.option, self.problem)


class SparkSourceError(RuntimeError):
    """The query can't go on."""


class CheckpointError(SparkSourceError):
    """The checkpoint belongs to another source, or to another group."""


class DataLossError(SparkSourceError):
    """Records are gone that were still to be read, and failOnDataLoss is true."""


class MembershipError(SparkSourceError):
    """The group, or the brokers, did not do their part in time."""


class RecordError(SparkSourceError):
    """A record holds what the schema's types can't."""


def no_answer(servers: str, why: str) -> str:
    """What to say where no broker answers, reading or writing."""
    return (
        f"no answer from option kafka.bootstrap.servers={servers} ({why}): check hosts and ports, "
        "kafka.security.protocol and what it needs"
    )


def name_of(of: TopicPartition) -> str:
    """As options and checkpoints name it."""
    return f"{of.topic}:{of.partition}"


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """The first five, as options name them."""
    return ", ".join(map(name_of, sorted(partitions)[:5]))
