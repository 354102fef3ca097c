"""A mirror with Spark's processes is limited, paused over windows, released and stopped, on real Kafka."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rig import wait_until
from rig.cluster import KafkaCluster
from rig.load import load_plain
from rig.read import digest_topic
from rig.shoal import Shoal
from tests.control import send
from tests.hasty import hasty

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 4
#: The window's length: a limit and a pause hold over its end.
SLICE_S = 5
LIMIT = 1024 * 1024
MEASURED_S = 20.0
#: Larger than what the limit lets through until the pause must hold: the copy may not end by itself before.
SIZE = 80_000_000
PAUSED_S = 35.0

#: The bounds of the rate, relative to the limit: a busy machine is slower, and ends of windows take time.
LEAST, MOST = 0.1, 1.15


def test_mirror_is_limited_paused_and_stopped_by_its_operator(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    source, destination = source_cluster.bootstrap, destination_cluster.bootstrap
    path = str(tmp_path / "control.sock")

    def do(command: str) -> dict[str, Any]:
        answer = send(path, command)
        assert answer["ok"], answer["text"]
        return answer

    load_plain(source, topic, "none", 10, SIZE, PARTITIONS)
    arguments = ["--from", source, "--to", destination, "--topics", topic]
    steering = ["--control", path, "--limit", str(LIMIT)]
    with Shoal(
        "mirror",
        "--json",
        *arguments,
        *steering,
        state=tmp_path / "state",
        program=hasty(places_look_s=SLICE_S),
    ) as mirror:
        mirror.wait_for(lambda line: line["records"] > 0)
        before, began_at = do("status")["bytes_out"], time.monotonic()
        time.sleep(MEASURED_S)  # the rate is the subject
        copied = do("status")["bytes_out"] - before
        rate = copied / (time.monotonic() - began_at)
        assert LEAST * LIMIT < rate < MOST * LIMIT, rate
        do(f"pause {topic}")
        assert do("status")["steering"]["paused"] == [topic]

        def stands_still() -> bool:
            """Whether nothing is copied for a while; a fetch under way may come before."""
            paused_at = do("status")["records"]
            time.sleep(2 * SLICE_S)
            return bool(do("status")["records"] == paused_at)

        wait_until(stands_still, "the copy stands still", PAUSED_S)
        assert do("status")["bytes_out"] < SIZE * 0.95
        do("limit none")
        do("resume")
        mirror.wait_for(lambda line: line["states"].get("up to date") == PARTITIONS, 240)
        do("stop")
        summary = mirror.wait()
    assert (mirror.exit_code, "control socket" in summary["ended"]) == (0, True)
    assert digest_topic(destination, topic) == digest_topic(source, topic)
