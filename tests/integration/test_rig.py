"""Tests of the rig itself, on which the other integration tests rely.

`test_every_batch` shows that old brokers write old formats, and that topics are compacted.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from rig import (
    CODECS,
    KafkaCluster,
    Record,
    assert_same_records,
    dump_partition,
    load_every_kind,
    read_topic,
    wait_until,
)

RECORDS = [
    Record(key=b"k%d" % i, value=b"value that compresses " * 9, headers=(), timestamp=1_600_000_000_000 + i)
    for i in range(5)
]


def test_every_kind_of_batch_and_of_record_is_loaded(source_cluster: KafkaCluster, topic: str) -> None:
    sent = load_every_kind(source_cluster.bootstrap, topic, partitions=2)
    assert_same_records(sent, read_topic(source_cluster.bootstrap, topic))
    everything = read_topic(source_cluster.bootstrap, topic, "read_uncommitted")
    assert sum(map(len, everything.values())) == sum(map(len, sent.values())) + len(CODECS) * 2 * 6  # aborted
    batches = [
        batch
        for partition in range(2)
        for batch in dump_partition(source_cluster.partition_dir(topic, partition))
    ]
    assert {batch.codec for batch in batches} == set(CODECS)
    assert {batch.is_transactional for batch in batches} == {False, True}
    assert {batch.is_control for batch in batches} == {False, True}
    assert {batch.producer_id >= 0 for batch in batches} == {False, True}
    assert min(batch.count for batch in batches) == 1
    assert max(batch.count for batch in batches) == 1500
    assert max(batch.size for batch in batches) > 850_000
    assert all(batch.is_valid for batch in batches)
    records = [record for of_partition in sent.values() for record in of_partition]
    assert {record.key for record in records} >= {None, b""}
    assert {record.value for record in records} >= {None, b""}
    headers = {header for record in records for header in record.headers}
    assert {("null", None), ("empty", b"")} <= headers


def test_brokers_end_with_their_python_process(tmp_path: Path) -> None:
    program = (
        "import sys, rig\n"
        "with rig.KafkaCluster() as cluster:\n"
        "    print(cluster.process_id(1), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # a killed Python leaves its files behind
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as python:
        assert python.stdout is not None
        broker = int(python.stdout.readline())
        assert psutil.pid_exists(broker)
        python.send_signal(signal.SIGKILL)
        wait_until(lambda: not _runs(broker), "the end of the broker")


def _runs(process_id: int) -> bool:
    """A zombie does not run; its parent may never wait for it."""
    try:
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
