"""A mirror continues while leaders move, brokers restart, topics gain partitions and new topics appear."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from rig import TimedOut, wait_until
from rig.cluster import KafkaCluster, start_in_parallel
from rig.load import create_topic, load_plain
from rig.read import digest_topic
from rig.shoal import Shoal
from tests.campaigns.clusters.arena import BROKERS, Arena, Ending, Side

pytestmark = pytest.mark.timeout(600)

REFRESH_S = 5
#: From a creation to the first mirrored record, in addition to the refresh: on a busy machine.
NOTICED_WITHIN_S = 45.0
MIRRORED_WITHIN_S = 120.0

#: If Spark fails after running for a minute, a mirror starts it again. Starting takes a while.
SOUND_S = 80.0

#: Spark's attempts of a task, for each of two tasks.
ATTEMPTS = 8

CONFIG = {"default.replication.factor": BROKERS, "min.insync.replicas": 2, "num.io.threads": 4}


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    clusters = {side: KafkaCluster(brokers=BROKERS, config=CONFIG, heap="256m") for side in Side}
    with start_in_parallel(*clusters.values()):
        yield Arena(clusters, {})


@pytest.fixture(scope="module")
def mirror(arena: Arena, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shoal]:
    """One mirror for all tests: it has to survive all their events."""
    create_topic(arena.bootstrap(Side.SOURCE), "life.first", 3, BROKERS)
    load(arena, "life.first", 300)
    between = ["--from", arena.bootstrap(Side.SOURCE), "--to", arena.bootstrap(Side.DESTINATION)]
    what = ["--topics", r"life\..*", "--refresh", str(REFRESH_S)]
    with Shoal("mirror", "--json", *between, *what, state=tmp_path_factory.mktemp("state")) as running:
        running.wait_for(lambda line: line["records"] >= 300)
        yield running


def load(arena: Arena, topic: str, records: int, partitions: int = 3, seed: int = 0) -> None:
    bootstrap = arena.bootstrap(Side.SOURCE)
    load_plain(bootstrap, topic, "lz4", 10, records * 1000, partitions, seed, create=False)


def await_mirrored(
    arena: Arena, mirror: Shoal, topic: str, records: int, within_s: float = MIRRORED_WITHIN_S
) -> float:
    """Return the seconds until the copy had all records, the same in the same order."""
    began = time.monotonic()
    admin = AdminClient({"bootstrap.servers": arena.bootstrap(Side.DESTINATION), "log_level": 0})
    what = f"{records} records of {topic} at the destination"
    try:
        wait_until(lambda: count(admin, topic) >= records, what, within_s, 0.2)
    except TimedOut as error:
        error.add_note(f"the mirror's last words: {mirror.wait_for(lambda line: True, timeout_s=5)}")
        raise
    took_s = time.monotonic() - began
    source, copy = (digest_topic(arena.bootstrap(side), topic) for side in Side)
    assert source == copy
    return took_s


def count(admin: AdminClient, topic: str) -> int:
    """Return the number of records of a copy, which has no gaps; 0 if it or one of its leaders is missing."""
    try:
        partitions = admin.list_topics(timeout=10).topics[topic].partitions
        latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
        return sum(end.result().offset for end in admin.list_offsets(latest, request_timeout=10).values())
    except (KeyError, KafkaException):
        return 0


def partitions_of(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=10).topics[topic].partitions)


def assert_lives(mirror: Shoal) -> None:
    assert mirror.wait_for(lambda line: True, timeout_s=5)["stopped"] == {}
    assert mirror.exit_code is None


@pytest.mark.parametrize(
    ("ending", "side"),
    [
        pytest.param(None, Side.SOURCE, id="leaders of the source move"),
        pytest.param(Ending.STOP, Side.SOURCE, id="restart of the source"),
        pytest.param(Ending.KILL, Side.DESTINATION, id="kill of the destination"),
    ],
)
def test_records_arrive_once_in_order_after_a_disturbance(
    arena: Arena, mirror: Shoal, ending: Ending | None, side: Side, topic: str
) -> None:
    name = f"life.{topic}"
    create_topic(arena.bootstrap(Side.SOURCE), name, 3, BROKERS)
    load(arena, name, 30)
    await_mirrored(arena, mirror, name, 30)
    over = threading.Event()

    def load_meanwhile() -> int:
        for rounds in itertools.count(1):
            load(arena, name, 30, seed=rounds)
            if over.wait(0.1):
                return 30 * rounds
        raise AssertionError("unreachable")

    with ThreadPoolExecutor() as threads:
        loaded = threads.submit(load_meanwhile)
        try:
            if ending is None:
                arena.move_leaders(side, name, 2)
            else:
                arena.restart(side, 2, ending, down_s=0.5)
            arena.heal()
        finally:
            over.set()
        await_mirrored(arena, mirror, name, 30 + loaded.result())
    assert_lives(mirror)


def test_new_matching_topic_is_mirrored_and_another_is_not(arena: Arena, mirror: Shoal) -> None:
    create_topic(arena.bootstrap(Side.SOURCE), "other", 1, BROKERS)
    create_topic(arena.bootstrap(Side.SOURCE), "life.new", 3, BROKERS)
    load(arena, "life.new", 300)
    assert await_mirrored(arena, mirror, "life.new", 300) < REFRESH_S + NOTICED_WITHIN_S
    admin = AdminClient({"bootstrap.servers": arena.bootstrap(Side.DESTINATION), "log_level": 0})
    assert "other" not in admin.list_topics(timeout=30).topics
    assert_lives(mirror)


def test_new_partitions_are_mirrored_and_the_old_ones_continue(arena: Arena, mirror: Shoal) -> None:
    admin = AdminClient({"bootstrap.servers": arena.bootstrap(Side.SOURCE), "log_level": 0})
    create_topic(arena.bootstrap(Side.SOURCE), "life.grows", 2, BROKERS)
    load(arena, "life.grows", 200, partitions=2)
    await_mirrored(arena, mirror, "life.grows", 200)
    admin.create_partitions([NewPartitions("life.grows", 5)])["life.grows"].result(60)
    wait_until(lambda: partitions_of(admin, "life.grows") == 5, "five partitions")
    load(arena, "life.grows", 500, partitions=5, seed=2)
    assert await_mirrored(arena, mirror, "life.grows", 700) < REFRESH_S + NOTICED_WITHIN_S
    copy = digest_topic(arena.bootstrap(Side.DESTINATION), "life.grows")
    assert [each.count for each in copy.values()] == [200, 200, 100, 100, 100]
    assert_lives(mirror)


@pytest.mark.long
def test_spark_is_restarted_after_its_processes_are_killed(arena: Arena, mirror: Shoal, topic: str) -> None:
    name = f"life.{topic}"
    started_at = psutil.Process(mirror.process_id).create_time()
    wait_until(lambda: time.time() - started_at > SOUND_S, "a mirror that is sound", SOUND_S + 30, 0.5)
    killed = 0

    def kill_the_next() -> bool:
        """Kill whatever runs a task, until Spark has no attempt left."""
        nonlocal killed
        for process in mirror.python_workers():
            with suppress(psutil.Error):
                process.kill()
                killed += 1
        return killed >= ATTEMPTS

    wait_until(kill_the_next, "the last attempt", 60, 0.2)
    create_topic(arena.bootstrap(Side.SOURCE), name, 3, BROKERS)
    load(arena, name, 300)
    await_mirrored(arena, mirror, name, 300)
    assert_lives(mirror)
