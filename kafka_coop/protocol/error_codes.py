"""Kafka's error codes, by name, under one import for every pure layer."""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode"]
