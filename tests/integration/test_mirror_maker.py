"""``shoal mirror-maker`` beside the real MirrorMaker 1 of Kafka 3.9, on the same input."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from rig import KafkaCluster
from rig.cluster import java_properties
from rig.load import create_topic, load_batch
from rig.made_records import random_records
from rig.mirror_maker import MirrorMaker1
from rig.read import ReadFailed, assert_same_records, read_topic
from rig.record import Record
from rig.shoal import Shoal
from rig.wait import wait_until

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(1200)

PARTITIONS = 3

#: Of ten records each, sent to the partitions in turn.
BATCHES = 7

#: Spark starts in seconds; if the machine is busy, in minutes.
TIMEOUT_S = 400


#: So long that a member without CPU stays in the group, and MirrorMaker 1 doubles no record.
SESSION_MS = 20_000


class Setting:
    """Both clusters, and mirrors of both kinds between them."""

    def __init__(self, source: KafkaCluster, destination: KafkaCluster, state: Path) -> None:
        self.source = source
        self.destination = destination
        self._state = state
        self._rng = Random(20_26)

    def consumer(self, group: str, session_ms: int) -> dict[str, object]:
        return {
            "bootstrap.servers": self.source.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 500,
            "metadata.max.age.ms": 1000,
        }

    def producer(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.destination.bootstrap, **more}

    def old(
        self, topic: str, group: str, *options: str, commit_ms: int = 500, **producer: object
    ) -> AbstractContextManager[MirrorMaker1]:
        """Return a MirrorMaker 1 that is not started yet."""
        return MirrorMaker1(
            self.consumer(group, SESSION_MS), self.producer(**producer), (*common(topic, commit_ms), *options)
        )

    def new(
        self,
        topic: str,
        group: str,
        *options: str,
        commit_ms: int = 500,
        session_ms: int = SESSION_MS,
        modules: Path | None = None,
        **producer: object,
    ) -> Shoal:
        """Start `shoal mirror-maker`, with the same files."""
        files = []
        texts: Mapping[str, Mapping[str, object]] = {
            "consumer": self.consumer(group, session_ms),
            "producer": self.producer(**producer),
        }
        for name, properties in texts.items():
            file = self._state / f"{group}.{name}.properties"
            file.write_text(java_properties(properties))
            file.chmod(0o600)
            files += [f"--{name}.config", str(file)]
        verb = ("mirror-maker", "--json", *files)
        environment = None if modules is None else {"PYTHONPATH": str(modules)}
        return Shoal(*verb, *common(topic, commit_ms), *options, state=self._state, environment=environment)

    def load(self, topic: str) -> None:
        for number in range(BATCHES):
            records = random_records(self._rng, 10, 200)
            load_batch(self.source.bootstrap, topic, number % PARTITIONS, records, "lz4")

    def copied(self, topic: str) -> dict[int, list[Record]]:
        return read_topic(self.destination.bootstrap, topic)

    def sent(self, topic: str) -> dict[int, list[Record]]:
        return read_topic(self.source.bootstrap, topic)

    def committed(self, topic: str, group: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.source.bootstrap, "group.id": group})
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found = [each.offset for each in consumer.committed(asked, timeout=30)]
        consumer.close()
        return found


@pytest.fixture
def setting(source_cluster: KafkaCluster, destination_cluster: KafkaCluster, tmp_path: Path) -> Setting:
    return Setting(source_cluster, destination_cluster, tmp_path)


def common(topic: str, commit_ms: int) -> tuple[str, ...]:
    """Return the options of both."""
    return "--whitelist", topic, "--offset.commit.interval.ms", str(commit_ms)


def contents(records: Mapping[int, list[Record]]) -> Counter[tuple[object, ...]]:
    """Count records, in any partition."""
    return Counter(
        (each.key, each.value, each.headers, each.timestamp) for part in records.values() for each in part
    )


def kill(maker: Shoal) -> None:
    """Kill `shoal mirror-maker` and all its descendants at once."""
    driver = psutil.Process(maker.process_id)
    for process in (driver, *driver.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
            process.kill()


def create_both(setting: Setting, topic: str, **config: str) -> None:
    create_topic(setting.source.bootstrap, topic, PARTITIONS)
    create_topic(setting.destination.bootstrap, topic, PARTITIONS, config=config)


def is_mirrored(setting: Setting, topic: str) -> Callable[[], bool]:
    def check() -> bool:
        try:
            return contents(setting.copied(topic)) == contents(setting.sent(topic))
        except (KeyError, ReadFailed):
            return False  # there is no such topic yet

    return check


#: A handler that lets keys decide about partitions.
HASHING = """
from dataclasses import replace

from shoal.handlers import MirrorMakerMessageHandler, ProducerRecord


class Hashing(MirrorMakerMessageHandler):
    def handle(self, record):
        return [replace(ProducerRecord.of(record), partition=None)]
"""


def test_copy_and_commits_equal_those_of_mirror_maker_1(setting: Setting, topic: str, tmp_path: Path) -> None:
    create_both(setting, topic)
    setting.load(topic)
    with setting.old(topic, f"{topic}.old") as old:
        wait_until(is_mirrored(setting, topic), "MirrorMaker 1's copies", TIMEOUT_S)
        wait_until(lambda: setting.committed(topic, f"{topic}.old") == [30, 20, 20], "its commit", TIMEOUT_S)
        assert old.stop(TIMEOUT_S) == 143
    by_old = setting.copied(topic)

    # Into a separate topic, by the same command line, except that keys are hashed.
    again = f"{topic}.again"
    create_topic(setting.source.bootstrap, again, PARTITIONS)
    create_topic(setting.destination.bootstrap, again, PARTITIONS)
    for partition, records in setting.sent(topic).items():
        load_batch(setting.source.bootstrap, again, partition, records)
    (tmp_path / "hashing.py").write_text(HASHING)
    handler = ["--message.handler", "hashing:Hashing"]
    with setting.new(again, f"{topic}.new", *handler, modules=tmp_path) as new:
        wait_until(is_mirrored(setting, again), "shoal's copies", TIMEOUT_S)
        new.send_signal(signal.SIGTERM)
        new.wait(TIMEOUT_S)
    assert new.exit_code == 0, new.stderr
    by_new = setting.copied(again)
    assert setting.committed(again, f"{topic}.new") == [30, 20, 20]
    for partition in range(PARTITIONS):
        # Records without a key go to any partition.
        keyed = [
            contents({0: [each for each in by[partition] if each.key is not None]}) for by in (by_old, by_new)
        ]
        assert keyed[0] == keyed[1]


@pytest.mark.long
def test_partitions_and_order_are_the_source_s_and_a_new_process_continues(
    setting: Setting, topic: str
) -> None:
    create_topic(setting.source.bootstrap, topic, PARTITIONS)  # create the copy
    setting.load(topic)
    # By the other rules the second time: the first one ended cleanly.
    for way in ([], ["--use.raw.bytes"]):
        with setting.new(topic, topic, *way, "--num.streams", "2") as new:
            wait_until(is_mirrored(setting, topic), "shoal's copies", TIMEOUT_S)
            new.send_signal(signal.SIGTERM)
            new.wait(TIMEOUT_S)
        assert new.exit_code == 0, new.stderr
        assert_same_records(setting.sent(topic), setting.copied(topic))
        setting.load(topic)


@pytest.mark.parametrize("abort", [pytest.param("true", marks=pytest.mark.long), "false"])
def test_refused_record_is_handled_like_mirror_maker_1(setting: Setting, topic: str, abort: str) -> None:
    create_both(setting, topic, **{"cleanup.policy": "compact"})
    records = [record for record in random_records(Random(7), 40, 50) if record.key is not None]
    bad = Record(None, b"no key, which a compacted topic refuses", (), records[0].timestamp)
    for record in [*records[:5], bad, *records[5:10]]:
        load_batch(setting.source.bootstrap, topic, 0, [record])
    options = ("--abort.on.send.failure", abort)
    kept = records[:10] if abort == "false" else records[:5]
    expected = contents({0: list(kept)})

    with setting.old(topic, f"{topic}.old", *options, **{"batch.size": 1}) as old:
        if abort == "true":
            assert old.wait(TIMEOUT_S) == 255
        else:
            wait_until(
                lambda: contents(setting.copied(topic)) == expected, "MirrorMaker 1's copies", TIMEOUT_S
            )
            wait_until(lambda: setting.committed(topic, f"{topic}.old")[0] == 11, "its commit", TIMEOUT_S)
            old.stop(TIMEOUT_S)
    by_old = contents(setting.copied(topic))
    # With abort, any part of the others may have been sent: keys lead to several partitions.
    assert by_old == expected if abort == "false" else by_old <= contents({0: records[:10]})
    assert b"no key, which a compacted topic refuses" not in {value for _, value, _, _ in by_old}

    group = f"{topic}.new"
    # After MirrorMaker 1's records, since the group has no position: a separate group.
    with setting.new(topic, group, *options, "--delivery", "at-least-once") as new:
        if abort == "false":
            wait_until(lambda: setting.committed(topic, group)[0] == 11, "shoal's commit", TIMEOUT_S)
            new.send_signal(signal.SIGTERM)
        summary = new.wait(TIMEOUT_S)
    assert new.exit_code == (1 if abort == "true" else 4), new.stderr
    assert contents(setting.copied(topic)) == by_old + expected
    # MirrorMaker 1 commits no offset there; KIP-3 requires that of the acknowledged records.
    assert setting.committed(topic, group)[0] == (5 if abort == "true" else 11)
    if abort == "false":
        assert summary["lost"] == 1
        assert "offset 5 of" in new.stderr


def test_group_is_shared_with_mirror_maker_1_and_taken_over(setting: Setting, topic: str) -> None:
    create_both(setting, topic)
    setting.load(topic)
    with setting.old(topic, topic) as old:
        wait_until(is_mirrored(setting, topic), "MirrorMaker 1's copies", TIMEOUT_S)
        # Two kinds of producers write to the same partitions: that is at-least-once.
        with setting.new(topic, topic, "--use.raw.bytes", "--delivery", "at-least-once") as new:
            new.wait_for(lambda line: line.get("partitions", 0) in (1, 2), TIMEOUT_S)
            setting.load(topic)

            def all_there() -> bool:
                return not contents(setting.sent(topic)) - contents(setting.copied(topic))

            wait_until(all_there, "copies by both", TIMEOUT_S)
            assert old.stop(TIMEOUT_S) == 143
            new.wait_for(lambda line: line.get("partitions", 0) == PARTITIONS, TIMEOUT_S)
            setting.load(topic)
            wait_until(all_there, "copies by shoal alone", TIMEOUT_S)
            new.send_signal(signal.SIGTERM)
            new.wait(TIMEOUT_S)
        assert new.exit_code == 0, new.stderr
    ends = [len(records) for _, records in sorted(setting.sent(topic).items())]
    assert setting.committed(topic, topic) == ends


@pytest.mark.long
def test_kill_before_a_commit_duplicates_only_in_mirror_maker_1(setting: Setting, topic: str) -> None:
    an_hour_ms = 3_600_000
    again = f"{topic}.again"
    create_both(setting, topic)
    create_both(setting, again)
    setting.load(topic)
    first = contents(setting.sent(topic))
    for partition, records in setting.sent(topic).items():
        load_batch(setting.source.bootstrap, again, partition, records)

    with setting.old(topic, f"{topic}.old", commit_ms=an_hour_ms) as old:
        wait_until(is_mirrored(setting, topic), "MirrorMaker 1's copies", TIMEOUT_S)
        old.kill()
    with setting.new(again, f"{topic}.new", commit_ms=an_hour_ms) as new:
        wait_until(is_mirrored(setting, again), "shoal's copies", TIMEOUT_S)
        kill(new)

    setting.load(topic)
    for partition, records in setting.sent(topic).items():
        load_batch(setting.source.bootstrap, again, partition, records[len(records) // 2 :])
    sent = contents(setting.sent(topic))
    assert contents(setting.sent(again)) == sent
    ends = [60, 40, 40]
    with setting.old(topic, f"{topic}.old") as old:
        wait_until(lambda: setting.committed(topic, f"{topic}.old") == ends, "its commit", TIMEOUT_S)
        assert old.stop(TIMEOUT_S) == 143
    with setting.new(again, f"{topic}.new") as new:
        wait_until(lambda: setting.committed(again, f"{topic}.new") == ends, "shoal's commit", TIMEOUT_S)
        new.send_signal(signal.SIGTERM)
        new.wait(TIMEOUT_S)
    assert new.exit_code == 0, new.stderr
    assert contents(setting.copied(topic)) == sent + first  # all uncommitted records twice
    assert_same_records(setting.sent(again), setting.copied(again))
