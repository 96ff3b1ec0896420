"""Spark as a member of the group: ``format("kafka_coop")``. docs/SPARK.md says how it works.

    import kafka_coop.spark
    kafka_coop.spark.register(spark)
    frame = spark.readStream.format("kafka_coop").options(...).load()
    query = frame.writeStream...start()
    kafka_coop.spark.drain(query)

The modules, from pure to Spark's own:

errors.py offsets.py admission.py option_values.py options.py holdings.py    decisions and values
rendezvous.py starting.py member.py session.py                               the reader's process
schema.py records.py reading.py                                              tasks
stream.py source.py                                                          Spark's classes
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes ``format("kafka_coop")`` known to a Spark session.

    Raises:
        ImportError: The packages of the extra ``spark`` are missing, or PySpark is too old.
    """
    require_extra()
    from kafka_coop.spark.source import KafkaCoopSource  # noqa: PLC0415  # needs the extra

    spark.dataSource.register(KafkaCoopSource)


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
