"""``format("shoal")`` in a job of a standalone Spark cluster, between two real Kafka clusters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig import KafkaCluster, assert_same_records, create_topic, load_every_kind, read_topic
from tests.spark.standalone import standalone_cluster

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PARTITIONS = 3

JOB = """
import sys

import shoal
from pyspark.sql import SparkSession

master, source, destination, topic = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(shoal.ShoalDataSource)
batches = spark.read.format("shoal").option("kafka.bootstrap.servers", source).option("subscribe", topic)
copy = batches.load().write.format("shoal").mode("append").option("kafka.bootstrap.servers", destination)
copy.option("allowGaps", "true").save()  # markers and aborted batches have no row
spark.stop()
"""


def test_job_of_a_standalone_cluster_copies_a_topic(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    load_every_kind(source_cluster.bootstrap, topic, PARTITIONS)
    create_topic(destination_cluster.bootstrap, topic, PARTITIONS)
    between = [source_cluster.bootstrap, destination_cluster.bootstrap]
    with standalone_cluster(tmp_path) as cluster:
        job = subprocess.run(
            [sys.executable, "-c", JOB, cluster.address, *between, topic],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        executors = list((tmp_path / "work").glob("app-*/*/stderr"))
    assert job.returncode == 0, job.stderr
    copy = read_topic(destination_cluster.bootstrap, topic)
    assert_same_records(read_topic(source_cluster.bootstrap, topic), copy)
    assert executors  # not in the driver's own process
