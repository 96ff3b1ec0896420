"""What the drivers have in common that tests start on a cluster, each in a process of its own."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

import kafka_coop.spark


def session(master: str, cores: int) -> SparkSession:
    """On executors of one core each, ``kafka_coop`` registered."""
    spark: SparkSession = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "ERROR")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
        .config("spark.cores.max", str(cores))
        .getOrCreate()
    )
    kafka_coop.spark.register(spark)
    return spark
