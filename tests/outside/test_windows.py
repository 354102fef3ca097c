"""`shoal mirror --until` and `--last`: commands in, records, messages and exit codes out."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shoal_broker import Broker
from tests.integration.shared_spark import shoal
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of
from tests.world.history import History
from tests.world.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MINUTE_MS = 60_000


def arguments(source: Broker, destination: Broker, *options: str) -> list[str]:
    clusters = ["--from", source.bootstrap, "--to", destination.bootstrap]
    return ["mirror", *clusters, "--topics", "orders", *options]


def hourly(brokers: TwoBrokers) -> list[History]:
    """Fill both partitions of a topic with a batch of three records for each half of the last three hours."""
    now_ms = int(time.time() * 1000)
    brokers.source.create_topic("orders", 2)
    histories = [History(log) for log in brokers.source.topics.topic("orders").logs]
    for history in histories:
        for half in range(6):
            history.base_timestamp = now_ms - (175 - 30 * half) * MINUTE_MS
            history.plain(3)
    return histories


def test_last_hour_of_a_topic_is_cloned_within_its_cluster(brokers: TwoBrokers, tmp_path: Path) -> None:
    histories = hourly(brokers)
    options = arguments(brokers.source, brokers.source, "--last", "1h", "--rename", "orders=clone")
    done = shoal(*options, "--json", state=tmp_path)
    assert done.returncode == 0, done.stderr
    for number, history in enumerate(histories):
        assert content_of(brokers.source.log("clone", number)) == history.committed[-6:]


def test_mirror_until_a_later_time_copies_meanwhile_and_ends_there(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    histories = hourly(brokers)
    until_ms = int(time.time() * 1000) + 20_000
    options = arguments(brokers.source, brokers.destination, "--until", str(until_ms), "--json")
    with ThreadPoolExecutor() as threads:
        mirror = threads.submit(shoal, *options, state=tmp_path)
        wait_until(lambda: is_copied(brokers, histories))
        assert not mirror.done()
        for history in histories:
            history.base_timestamp = until_ms - 2
            history.plain(4)  # with the times -2, -1, 0 and 1
        done = mirror.result()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["up_to_date"]
    for number, history in enumerate(histories):
        assert brokers.copied("orders", number) == history.committed[:-2]


def is_copied(brokers: TwoBrokers, histories: list[History]) -> bool:
    topic = brokers.destination.topics.get("orders")
    ends = [log.log_end_offset for log in topic.logs] if topic else []
    return ends == [len(each.committed) for each in histories]


def test_offset_as_the_end_of_two_partitions_is_refused_before_anything_is_created(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    hourly(brokers)
    done = shoal(*arguments(brokers.source, brokers.destination, "--until", "7"), state=tmp_path)
    assert done.returncode == 2
    assert "--until offset:7" in done.stderr
    assert brokers.destination.topics.get("orders") is None
