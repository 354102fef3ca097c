"""Spark with SQL, started as a mirror starts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from shoal.spark.launch.session import spark_context

__all__ = ["spark_session"]


def spark_session(master: str, conf: Mapping[str, str], log_file: Path, state_dir: Path) -> SparkSession:
    """Return a session for ``format("shoal")``; it has to be stopped."""
    return SparkSession(spark_context(master, conf, log_file, state_dir))
