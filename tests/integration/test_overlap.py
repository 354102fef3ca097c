"""No gap lies between two windows: the next tasks have the partitions before the last ones have ended."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import pytest

from rig import KafkaCluster, create_topic
from rig.load import load_plain
from rig.read import digest_topic
from rig.shoal import Shoal
from tests.integration.shared_spark import shoal

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RECORDS = 50

_NOTING = (str(Path(__file__).with_name("overlap_process.py")),)


@pytest.mark.parametrize(
    ("master", "window_s", "windows", "overlaps"),
    [
        # The last quarter of a window has to be enough for Spark to start a job, on a busy machine, too.
        ("local[1]", 40.0, 3, True),
        ("local-cluster[1,1,1024]", 3.0, 3, False),
    ],
    ids=["local", "cluster without a free slot"],
)
def test_tasks_of_a_window_have_the_partitions_before_the_last_job_has_ended_if_spark_has_slots(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
    master: str,
    window_s: float,
    windows: int,
    overlaps: bool,
) -> None:
    source, destination = source_cluster.bootstrap, destination_cluster.bootstrap
    create_topic(source, topic, 3)
    over = threading.Event()
    loads = itertools.count()

    def produce() -> None:
        while not over.wait(0.2):
            load_plain(source, topic, "none", 1, RECORDS * 100, 3, next(loads), create=False)

    group, checkpoint = f"shoal-{topic}", str(tmp_path / "checkpoint")
    options = {"group": group, "master": master, "checkpoint": checkpoint}
    wanted = {
        "source": source,
        "destination": destination,
        "topic": topic,
        "windows": windows,
        "window_s": window_s,
        "options": options,
    }
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        with Shoal(json.dumps(wanted), program=_NOTING, state=tmp_path) as ended:
            ended.wait(500)
    finally:
        over.set()
        producer.join()
    assert ended.exit_code == 0, ended.stderr
    events = [tuple(json.loads(each)) for each in ended.stdout.splitlines()]
    # The first window may end early: the leaders of a new topic are not known at once.
    for window in range(2, windows + 1):
        has_overlapped = events.index(("taken", window + 1)) < events.index(("ended", window))
        assert has_overlapped == overlaps, events
    between = ["--from", source, "--to", destination, "--topics", topic, "--group", group]
    rest = shoal("mirror", "--once", *between, "--checkpoint", checkpoint, state=tmp_path)
    assert rest.returncode == 0, rest.stderr
    assert digest_topic(source, topic) == digest_topic(destination, topic)
