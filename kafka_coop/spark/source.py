"""The data source that `kafka_coop.spark.register` registers: everything begins here.

Spark makes an instance in a process of its own for each plan; nothing here connects anywhere.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kafka_coop.spark.batch import BatchReader
from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.options import batch_options, sink_options, stream_options
from kafka_coop.spark.schema import require_own_schema, spark_schema
from kafka_coop.spark.sink import BatchSink, StreamSink
from kafka_coop.spark.stream import StreamReader


class KafkaCoopSource(DataSource):
    """``format("kafka_coop")``; docs/SPARK.md has the options.

    Attributes:
        near: Whether the tasks run on the driver's host: no process but the one that registers the
            source is told.
    """

    near: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """What follows ``format``."""
        return "kafka_coop"

    def schema(self) -> StructType:
        """Key, value, topic, partition, offset, timestamp, timestampType, perhaps headers."""
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return spark_schema(headers=headers)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of ``spark.readStream``.

        Raises:
            OptionError: An option or the schema is wrong.
        """
        options = stream_options(_plain(self.options))
        require_own_schema(schema, headers=options.headers)
        return StreamReader(options, near=self.near)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of ``spark.read``.

        Raises:
            OptionError: An option or the schema is wrong.
        """
        options = batch_options(_plain(self.options))
        require_own_schema(schema, headers=options.headers)
        return BatchReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  # Spark's signature
        """The sink of ``write``.

        Raises:
            OptionError: An option or the schema is wrong.
        """
        _refuse_overwrite(overwrite, "mode", "overwrite", _APPEND)
        return BatchSink(sink_options(_plain(self.options)), schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001  # Spark's signature
    ) -> DataSourceStreamWriter:
        """The sink of ``writeStream``.

        Raises:
            OptionError: An option or the schema is wrong.
        """
        _refuse_overwrite(overwrite, "outputMode", "complete", _APPEND_STREAM)
        return StreamSink(sink_options(_plain(self.options)), schema)


class NearSource(KafkaCoopSource):
    """In a Spark whose executors are on the driver's host."""

    near = True


_APPEND: Final = 'set .mode("append")'

_APPEND_STREAM: Final = (
    'set .outputMode("append"), or write each batch of a result that changes in foreachBatch, with '
    '.mode("append")'
)


def _refuse_overwrite(overwrite: bool, option: str, value: str, remedy: str) -> None:  # noqa: FBT001  # as Spark says it
    """Spark truncates for both, and asks for nothing else that a log can't do.

    What it does not even ask a source in Python (update, errorifexists) it refuses by itself.
    """
    if overwrite:
        raise OptionError(option, f"{value} can't be, a log is only added to: {remedy}")


def _plain(options: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in options.items()}
