"""``shoal verify`` from outside: records and transactions at both clusters in, verdict and exit code out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rig.shoal import run_shoal
from shoal.cli import main
from shoal.mirroring.model.copy_options import copy_rules
from shoal.mirroring.model.incidents import Delivery
from shoal_broker import Broker
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.history import ABORT

TOPIC = "orders"

#: A user without rights.
NOBODY = 65_534

#: A transaction: its records, and whether they are committed. None leaves it open.
Sent = tuple[Sequence[bytes], bool | None]


class Clusters:
    """Two brokers with a topic, and producers that write transactions."""

    def __init__(self, two: TwoBrokers, stack: ExitStack) -> None:
        self.two = two
        self._stack = stack
        self._count = 0
        for broker in (two.source, two.destination):
            broker.create_topic(TOPIC)

    def write(self, broker: Broker, *transactions: Sent) -> None:
        """Write transactions in turn; each has a producer of its own."""
        for values, is_committed in transactions:
            self._count += 1
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "transactional.id": f"copier-{self._count}",
                    "linger.ms": 0,
                }
            )
            producer.init_transactions(20)
            producer.begin_transaction()
            for number, value in enumerate(values):
                producer.produce(TOPIC, value, value, partition=0, timestamp=1_700_000_000_000 + number)
            assert producer.flush(20) == 0
            if is_committed is None:
                self._stack.callback(producer.abort_transaction, 20)
            elif is_committed:
                producer.commit_transaction(20)
            else:
                producer.abort_transaction(20)


def command(two: TwoBrokers, *more: str) -> list[str]:
    return ["verify", *two.between, "--topics", TOPIC, *more]


def verified(two: TwoBrokers, *more: str) -> int:
    return main(command(two, *more))


def report(two: TwoBrokers, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    code = verified(two, "--json", *more)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    return found


def verdict(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[str, int, dict[str, Any]]:
    """Return the outcome, the exit code, and the first partition."""
    found = report(two, capsys, *more)
    return found["outcome"], found["exit_code"], found["partitions"][0]


@pytest.fixture
def two() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        rules = copy_rules(started.settings.source)
        yield started.with_settings(group="shoal.source.destination", rules=rules)


@pytest.fixture
def clusters(two: TwoBrokers) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(two, stack)


def values(first: int, count: int = 100) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


A, B, C = values(0), values(100), values(200)


@pytest.mark.parametrize("more", [(), ("--last", "1100"), ("--sample", "50%")])
def test_verify_finds_records_that_the_copier_has_aborted(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """A consumer of the copy reads 200 records of 300."""
    clusters.write(clusters.two.source, (A, True), (B, True), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, False), (C, True))
    found = report(clusters.two, capsys, *more)
    assert (found["outcome"], found["records"]) == ("different", 200)
    (difference,) = found["partitions"][0]["differences"]
    assert (difference["kind"], difference["source"], difference["records"]) == ("missing", [101, 201], 100)
    assert verified(clusters.two, *more) == 1


def test_verify_of_an_aborted_attempt_and_its_repetition_is_equal(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exactly-once copier leaves such logs: a consumer of either cluster reads the same records."""
    clusters.write(clusters.two.source, (A, True), (B, True), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, False), (B, True), (C, False), (C, True))
    found = report(clusters.two, capsys)
    assert (found["outcome"], found["exit_code"], found["records"]) == ("equal", 0, 300)


def test_verify_of_an_aborted_end_is_not_mirrored_yet(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, True))
    clusters.write(clusters.two.destination, (A, True), (B, False))
    found = report(clusters.two, capsys)
    assert found["records"] == 100
    assert found["partitions"][0]["not_mirrored"] == [101, 202]


def test_verify_behind_an_open_transaction_of_the_copy_compares_nothing(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, True), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, None), (C, True))
    found = report(clusters.two, capsys)
    assert (found["outcome"], found["exit_code"], found["records"]) == ("not compared", 3, 100)
    assert found["partitions"][0]["differences"] == []
    assert verified(clusters.two) == 3
    text = capsys.readouterr().out
    assert re.search(r"orders-0.*101.*transaction", text)
    assert "missing" not in text


def test_verify_of_mirrored_records_behind_an_open_transaction_calls_none_missing(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror's position says that they are there, and no consumer sees them yet."""
    two = clusters.two.with_settings(delivery=Delivery.AT_LEAST_ONCE)
    clusters.write(two.source, (A, True))
    two.run(two.ranges(TOPIC))
    clusters.write(two.destination, (B, None))
    clusters.write(two.source, (C, True))
    two.run(two.ranges(TOPIC))
    found = report(clusters.two, capsys)
    assert (found["outcome"], found["records"]) == ("not compared", 100)
    assert found["partitions"][0]["differences"] == []


def test_verify_before_an_open_transaction_of_the_source_is_equal(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, None), (C, True))
    clusters.write(clusters.two.destination, (A, True))
    assert verified(clusters.two) == 0
    text = capsys.readouterr().out
    assert re.search(r"orders-0.*101.*transaction", text)
    assert "missing" not in text


def test_verify_of_records_behind_an_open_transaction_of_the_source_compares_nothing(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, None), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, True), (C, True))
    found = report(clusters.two, capsys)
    assert (found["outcome"], found["exit_code"], found["records"]) == ("not compared", 3, 100)
    assert found["partitions"][0]["differences"] == []


def test_verify_of_a_mirror_with_read_uncommitted_compares_open_transactions(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    config = tmp_path / "source.properties"
    config.write_text("isolation.level=read_uncommitted\n")
    clusters.write(clusters.two.source, (A, False), (B, None))
    clusters.write(clusters.two.destination, (A, True), (B, True))
    found = report(clusters.two, capsys, "--from-config", str(config))
    assert (found["outcome"], found["records"]) == ("equal", 200)


# No record


def test_verify_of_empty_topics_says_so(two: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    two.topic(TOPIC, 2)
    assert verdict(two, capsys)[:2] == ("nothing to compare", 0)
    assert verified(two) == 0
    text = capsys.readouterr().out
    assert re.search(r"sides.*record", text)
    assert "equal" not in text


def test_verify_of_aborted_records_alone_is_that_of_empty_topics(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    (history,) = two.topic(TOPIC)
    history.transaction(3, ends=ABORT)
    assert verdict(two, capsys)[:2] == ("nothing to compare", 0)


def test_verify_of_no_record_out_of_some_has_an_exit_code_of_its_own(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror has copied nothing that is left, and all that the source has is lag."""
    (history,) = two.topic(TOPIC)
    history.plain(2)
    two.run(two.ranges(TOPIC))
    two.source.log(TOPIC).delete_records(2)
    two.destination.log(TOPIC).delete_records(2)
    history.plain(5)
    outcome, code, partition = verdict(two, capsys)
    assert (outcome, code, partition["outcome"]) == ("nothing to compare", 3, "nothing to compare")
    assert partition["not_mirrored"] == [2, 7]
    assert verified(two) == 3
    assert "equal" not in capsys.readouterr().out


@pytest.mark.parametrize("side", ["source", "destination"])
def test_verify_of_one_side_that_has_lost_all_is_not_that_of_empty_topics(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], side: str
) -> None:
    """That side has no record of the mirror left, nor one behind; the other one has what was mirrored."""
    (history,) = two.topic(TOPIC)
    history.plain(5)
    two.run(two.ranges(TOPIC))
    log = (two.source if side == "source" else two.destination).log(TOPIC)
    log.store(bytes(batches.batch(1, base_offset=5)))
    log.delete_records(6)
    assert verdict(two, capsys)[:2] == ("nothing to compare", 3)
    assert verified(two) == 3
    assert "both sides" not in capsys.readouterr().out


def test_verify_since_a_time_without_records_has_compared_nothing(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    (history,) = two.topic(TOPIC)
    history.plain(*[100] * 40)
    two.run(two.ranges(TOPIC))
    assert verdict(two, capsys, "--since", "2100-01-01T00:00:00Z")[:2] == ("nothing to compare", 3)


def test_verify_of_an_empty_and_a_full_partition_is_equal(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    full, _ = two.topic(TOPIC, 2)
    full.plain(2)
    two.run(two.ranges(TOPIC))
    outcome, code, partition = verdict(two, capsys)
    assert (outcome, code, partition["outcome"]) == ("equal", 0, "equal")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away, or become another user")
def test_verify_refuses_the_state_of_another_user(two: TwoBrokers, tmp_path: Path) -> None:
    (history,) = two.topic(TOPIC)
    history.plain(2)
    state = tmp_path / "state.json"
    state.write_text(
        '{"type": "shoal verify state", "version": 1, "clusters": [null, null], "partitions": []}'
    )
    os.chown(state, NOBODY, NOBODY)
    ended = run_shoal(*command(two, "--state", str(state)))
    assert ended.returncode == 2
    assert all(each in ended.stderr for each in ("belongs", str(NOBODY)))
    assert "Traceback" not in ended.stderr
