"""``shoal verify`` as a user runs it, between embedded brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.cli.verify_report import done_of, print_report
from shoal.cli.working import amounts
from shoal.topic_partition import TopicPartition
from shoal.verify import (
    Difference,
    DifferenceKind,
    OffsetRange,
    PartitionReport,
    VerifyProgress,
    VerifyReport,
)
from shoal_broker import Broker
from tests.snapshots import Texts
from tests.world import batches


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        yield source, destination


@pytest.fixture
def command(brokers: tuple[Broker, Broker]) -> list[str]:
    source, destination = brokers
    return ["verify", "--from", source.bootstrap, "--to", destination.bootstrap]


def store(broker: Broker, topic: str, *values: bytes, partition: int = 0) -> None:
    """Put batches of one record each into a log."""
    log = broker.log(topic, partition)
    for number, value in enumerate(values):
        log.store(bytes(batches.batch([value], base_offset=number, base_timestamp=number)))


@pytest.fixture
def orders(brokers: tuple[Broker, Broker]) -> None:
    """Two partitions, equal on both sides."""
    for broker in brokers:
        broker.create_topic("orders", 2)
        for partition in range(2):
            store(broker, "orders", b"a", b"b", b"c", partition=partition)


@pytest.fixture
def invoices(brokers: tuple[Broker, Broker]) -> None:
    """A batch of three is missing."""
    source, destination = brokers
    source.create_topic("invoices")
    destination.create_topic("invoices")
    store(source, "invoices", b"a", b"b", b"c")
    kept = [(0, b"a", 0), (1, b"c", 2)]
    for offset, value, timestamp in kept:
        destination.log("invoices").store(
            bytes(batches.batch([value], base_offset=offset, base_timestamp=timestamp))
        )


@pytest.mark.usefixtures("orders")
def test_equal_topics_are_printed_line_by_line_on_a_pipe(
    command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*command, "--topics", "orders"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    texts(out)


@pytest.mark.usefixtures("orders", "invoices")
def test_difference_is_printed_with_exit_code_1(
    command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*command, "--topics", ".*"]) == 1
    out = capsys.readouterr().out.splitlines()
    texts(out[1])
    assert "1 of 3 partitions different" in out[-1]


@pytest.mark.usefixtures("orders")
def test_expression_that_matches_no_topic_is_a_warning(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--topics", "orders,paymnets.*", "--json"]) == 0
    out, err = capsys.readouterr()
    assert all("'paymnets.*' of --topics matches no topic" in each for each in (out, err))
    assert "paymnets" in json.loads(out)["warnings"][0]


@pytest.mark.usefixtures("orders")
def test_topic_is_not_compared_with_itself(
    brokers: tuple[Broker, Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    address, _ = (each.bootstrap for each in brokers)
    assert main(["verify", "--from", address, "--to", address, "--topics", "orders"]) == 2
    assert "same cluster (source)" in capsys.readouterr().err


@pytest.mark.usefixtures("orders", "invoices")
def test_topics_are_excluded_and_renamed(
    brokers: tuple[Broker, Broker], command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*command, "--topics", ".*", "--exclude", "invoices"]) == 0
    brokers[1].create_topic("west.orders", 2)
    for partition in range(2):
        store(brokers[1], "west.orders", b"a", b"b", b"c", partition=partition)
    capsys.readouterr()
    assert main([*command, "--topics", "orders", "--rename", r"(.*)=west.\1"]) == 0
    texts(capsys.readouterr().out)


@pytest.mark.usefixtures("orders", "invoices")
def test_json_is_one_object(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--topics", "orders,invoices", "--group", "mine", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    (text,) = out.splitlines()
    result = json.loads(text)
    assert (result["type"], result["outcome"], result["exit_code"]) == ("verify", "different", 1)
    assert (result["group"], result["records"], result["batches"], result["warnings"]) == ("mine", 8, 7, [])
    invoices = result["partitions"][0]
    assert (invoices["source"], invoices["destination"]) == ("invoices-0", "invoices-0")
    assert invoices["differences"] == [
        {
            "kind": "missing",
            "source": [1, 2],
            "destination": [1, 1],
            "records": 1,
            "damaged": [],
            "copy_of": None,
            "detail": None,
            "misrouted": None,
        }
    ]
    assert invoices["decoded_records"] == 1
    assert invoices["counts"] == {"missing": 1}


def test_part_of_a_topic_is_printed_with_its_range(
    brokers: tuple[Broker, Broker], command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    for broker in brokers:
        broker.create_topic("orders")
        store(broker, "orders", *(b"%d" % number for number in range(3000)))
    assert main([*command, "--topics", "orders", "--last", "1100"]) == 0
    out = capsys.readouterr().out.splitlines()
    texts(out[0])
    texts(out[1])
    assert main([*command, "--topics", "orders", "--last", "1100", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    texts(result["extent"])
    assert result["partitions"][0]["ranges"] == [
        {"source": [1900, 3000], "destination": [1900, 3000], "records": 1100}
    ]


@pytest.mark.usefixtures("orders")
def test_incomparable_topics_are_exit_code_3(
    brokers: tuple[Broker, Broker], command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    brokers[0].create_topic("payments")
    assert main([*command, "--topics", "orders,payments,nothing"]) == 3
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "nothing-0: not compared"
    texts(out[1])
    texts(out[-2])


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--topics", "("],
        ["--topics", "none.*"],
        ["--topics", "a", "--group", ""],
        ["--topics", "a", "--master", "local", "--conf", "=x"],
        ["--topics", "a", "--conf", "spark.x=1"],
        ["--topics", "a", "--master", "local", "--conf", "x"],
        ["--topics", "a", "--sample", "all"],
        ["--topics", "a", "--last", "week"],
        ["--topics", "a", "--last", "5", "--since", "0"],
        ["--topics", "a", "--from-config", "/none"],
    ],
)
def test_invalid_option_is_one_sentence_and_exit_code_2(
    command: list[str], capsys: pytest.CaptureFixture[str], options: list[str], texts: Texts
) -> None:
    assert main([*command, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    texts(err)


# Views

PROGRESS = VerifyProgress(
    partitions=16, done=3, records=812_004, bytes_read=226_400_000, differences=1, fraction=0.25
)


def test_line_of_progress_has_partitions_records_rate_and_differences(texts: Texts) -> None:
    texts(amounts(done_of(PROGRESS), 2.0))


def missing(offset: int) -> Difference:
    return Difference(DifferenceKind.MISSING, OffsetRange(offset, offset + 1), OffsetRange(0, 0), 1)


def report_of(*differences: Difference, omitted: int = 0) -> VerifyReport:
    partition = TopicPartition("a-topic-with-a-name", 0)
    found = PartitionReport(partition, partition, differences=differences, differences_omitted=omitted)
    return VerifyReport("mine", (found,), (), 1.0)


def test_report_with_many_ranges_prints_some_and_counts_the_rest(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    print_report(report_of(*map(missing, range(12)), omitted=20))
    out = capsys.readouterr().out.splitlines()
    assert [" missing: " in each for each in out].count(True) == 5
    texts(out[-2])


def test_extra_records_of_aborted_transactions_name_the_isolation_level(
    brokers: tuple[Broker, Broker],
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    texts: Texts,
) -> None:
    for broker in brokers:
        broker.create_topic("payments")
        copied = broker is brokers[1]
        log = broker.log("payments")
        for number, value in enumerate([b"a", b"aborted", b"b"]):
            flags = batches.TRANSACTIONAL if value == b"aborted" and not copied else 0
            log.store(
                bytes(
                    batches.batch(
                        [value],
                        base_offset=log.log_end_offset,
                        base_timestamp=number,
                        flags=flags,
                        producer_id=7 if flags else -1,
                    )
                )
            )
            if flags:
                log.store(bytes(batches.marker(0, 7, base_offset=log.log_end_offset)))
    assert main([*command, "--topics", "payments"]) == 1
    out, err = capsys.readouterr()
    texts(out)
    texts(err)
    config = tmp_path / "from.properties"
    config.write_text("isolation.level=read_uncommitted\n")
    assert main([*command, "--topics", "payments", "--from-config", str(config)]) == 0
