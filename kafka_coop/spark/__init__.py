"""Spark as a member of the group: ``format("kafka_coop")``. docs/SPARK.md says how it works.

    import kafka_coop.spark
    kafka_coop.spark.register(spark)
    frame = spark.readStream.format("kafka_coop").options(...).load()
    query = frame.writeStream...start()
    kafka_coop.spark.drain(query)

The modules, from pure to Spark's own:

errors.py offsets.py admission.py option_values.py kafka_keys.py options.py  decisions and values
holdings.py loss.py refusals.py placement.py
rendezvous.py starting.py latency.py member.py identities.py extents.py      the reader's process
gone.py neighbours.py soundness.py replay.py available_now.py serving.py
session.py
tickets.py                                                                   both ends of one
schema.py records.py reading.py                                              tasks
stream.py batch.py sink.py source.py                                         Spark's classes
progress.py draining.py listening.py                                         the driver's Python
"""

from __future__ import annotations

import importlib.util
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

__all__ = ["drain", "register"]


def register(spark: SparkSession, *, registry: CollectorRegistry | None = None) -> None:
    """Makes ``format("kafka_coop")`` known to a Spark session, and listens to its queries.

    The listener keeps metrics of the source's lag and hand-overs, and sees to it that a query
    that keeps state fails when its partitions move (docs/SPARK.md).

    Args:
        spark: The session.
        registry: Where the metrics go; None: prometheus_client's default registry.

    Raises:
        ImportError: The packages of the extra ``spark`` are missing, or PySpark is too old.
    """
    require_extra()
    from kafka_coop.spark.listening import GroupListener  # noqa: PLC0415  # the same
    from kafka_coop.spark.source import KafkaCoopSource, NearSource  # noqa: PLC0415  # needs the extra

    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if is_remote:
        logging.getLogger("kafka_coop.spark").warning(
            "a Spark Connect session: drain() works, and queries that keep state are refused when "
            "their partitions move, only where this code runs on the server's own host"
        )
    is_near = not is_remote and str(spark.sparkContext.master).startswith("local")
    spark.dataSource.register(NearSource if is_near else KafkaCoopSource)
    spark.streams.addListener(GroupListener(registry))


def drain(query: Any, timeout: timedelta = timedelta(minutes=5)) -> None:
    """Stops a query between two batches: all that it did is committed, and handed over.

    ``query.stop()`` may strike in the middle of a batch, which the next owner then reads again.

    Args:
        query: A `StreamingQuery` that reads from ``kafka_coop``, on this host.
        timeout: How long to wait for the batch under way, and for the next trigger: longer than
            its interval (``processingTime``).

    Raises:
        TimeoutError: It did not end in time; the query goes on.
        ValueError: The query does not read from ``kafka_coop``.
    """
    require_extra()
    from kafka_coop.spark.draining import drain_query  # noqa: PLC0415  # needs the extra

    drain_query(query, timeout)


def require_extra() -> None:
    """Refuses to go on without PySpark 4.2 and PyArrow.

    Raises:
        ImportError: With what to install.
    """
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    remedy = "install them with: pip install 'kafka-coop[spark]'"
    if missing:
        raise ImportError(f"kafka_coop.spark needs {' and '.join(missing)}: {remedy}")
    import pyspark  # noqa: PLC0415  # the extra

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < (4, 2):
        raise ImportError(
            "kafka_coop.spark needs PySpark 4.2 or newer: the source API of "
            f"{pyspark.__version__} has no admission control; {remedy}"
        )
