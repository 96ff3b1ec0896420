"""The source beside Spark's built-in one: ``python -m benchmarks.spark``."""
