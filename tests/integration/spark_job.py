"""A user's own Spark job that copies a topic by ``format("shoal")`` between two names in one cluster."""

import os
import subprocess
import sys
from pathlib import Path

from rig import create_topic, digest_topic

__all__ = ["copy_by_spark_job"]

_JOB = r"""
import sys

import shoal
from pyspark.sql import SparkSession

file, topic = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
for setting in ("spark.authenticate", "spark.network.crypto.enabled"):
    builder = builder.config(setting, "true")
spark = builder.config("spark.authenticate.secret", "of this test").getOrCreate()
spark.dataSource.register(shoal.data_source(spark))
rows = spark.read.format("shoal").option("kafka.config.file", file).option("subscribe", topic).load()
copy = rows.write.format("shoal").mode("append").option("kafka.config.file", file)
copy.option("rename", r"(.*)=copy.\1").save()
spark.stop()
"""


def copy_by_spark_job(open_bootstrap: str, properties_file: Path, topic: str) -> str:
    """Copy ``topic`` to ``copy.<topic>`` in a process of its own, and compare both.

    Args:
        open_bootstrap: A listener of the cluster without a login, to create and to compare.
        properties_file: How the job logs in.
        topic: A topic of one partition, loaded before.

    Returns:
        All output, for a search for secrets.
    """
    create_topic(open_bootstrap, f"copy.{topic}", partitions=1)
    job = subprocess.run(
        [sys.executable, "-c", _JOB, str(properties_file), topic],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    source, copy = (digest_topic(open_bootstrap, each) for each in (topic, f"copy.{topic}"))
    assert source == copy
    return job.stdout + job.stderr
