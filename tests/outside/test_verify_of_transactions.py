"""``shoal verify`` from outside: transactions at both clusters in, verdict and exit code out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from shoal.cli import main
from shoal.mirroring.model.copy_options import COPY_DEFAULTS, copy_rules
from shoal.mirroring.model.incidents import Delivery
from shoal_broker import Broker
from tests.two_brokers import TwoBrokers

pytestmark = pytest.mark.timeout(120)

TOPIC = "orders"

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

    def verify(self, *more: str) -> int:
        ends = ["--from", self.two.source.bootstrap, "--to", self.two.destination.bootstrap]
        return main(["verify", *ends, "--topics", TOPIC, *more])


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with ExitStack() as stack:
        two = stack.enter_context(TwoBrokers.started())
        rules = copy_rules(two.settings.source, COPY_DEFAULTS)
        yield Clusters(two.with_settings(group="shoal.source.destination", rules=rules), stack)


def values(first: int, count: int = 100) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


A, B, C = values(0), values(100), values(200)


def report(clusters: Clusters, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    code = clusters.verify("--json", *more)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    return found


@pytest.mark.parametrize("more", [(), ("--last", "1100"), ("--sample", "50%")])
def test_verify_finds_records_that_the_copier_has_aborted(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """A consumer of the copy reads 200 records of 300."""
    clusters.write(clusters.two.source, (A, True), (B, True), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, False), (C, True))
    found = report(clusters, capsys, *more)
    assert (found["outcome"], found["records"]) == ("different", 200)
    (difference,) = found["partitions"][0]["differences"]
    assert (difference["kind"], difference["source"], difference["records"]) == ("missing", [101, 201], 100)
    assert clusters.verify(*more) == 1


def test_verify_of_an_aborted_attempt_and_its_repetition_is_equal(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exactly-once copier leaves such logs: a consumer of either cluster reads the same records."""
    clusters.write(clusters.two.source, (A, True), (B, True), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, False), (B, True), (C, False), (C, True))
    found = report(clusters, capsys)
    assert (found["outcome"], found["exit_code"], found["records"]) == ("equal", 0, 300)


def test_verify_of_an_aborted_end_is_not_mirrored_yet(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, True))
    clusters.write(clusters.two.destination, (A, True), (B, False))
    found = report(clusters, capsys)
    assert found["records"] == 100
    assert found["partitions"][0]["not_mirrored"] == [101, 202]


def test_verify_behind_an_open_transaction_of_the_copy_compares_nothing(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, True), (C, True))
    clusters.write(clusters.two.destination, (A, True), (B, None), (C, True))
    found = report(clusters, capsys)
    assert (found["outcome"], found["exit_code"], found["records"]) == ("not compared", 3, 100)
    assert found["partitions"][0]["differences"] == []
    assert clusters.verify() == 3
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
    found = report(clusters, capsys)
    assert (found["outcome"], found["records"]) == ("not compared", 100)
    assert found["partitions"][0]["differences"] == []


def test_verify_before_an_open_transaction_of_the_source_is_equal(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write(clusters.two.source, (A, True), (B, None), (C, True))
    clusters.write(clusters.two.destination, (A, True))
    assert clusters.verify() == 0
    text = capsys.readouterr().out
    assert re.search(r"orders-0.*101.*transaction", text)
    assert "missing" not in text


def test_verify_of_a_mirror_with_read_uncommitted_compares_open_transactions(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    config = tmp_path / "source.properties"
    config.write_text("isolation.level=read_uncommitted\n")
    clusters.write(clusters.two.source, (A, False), (B, None))
    clusters.write(clusters.two.destination, (A, True), (B, True))
    found = report(clusters, capsys, "--from-config", str(config))
    assert (found["outcome"], found["records"]) == ("equal", 200)
