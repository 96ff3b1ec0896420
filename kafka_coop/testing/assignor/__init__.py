"""`check_assignor`: whether a strategy keeps what KIP-429 and a group's peace ask of it."""

from kafka_coop.testing.assignor.check import check_assignor
from kafka_coop.testing.assignor.violation import AssignorCheckError, Rule

__all__ = ["AssignorCheckError", "Rule", "check_assignor"]
