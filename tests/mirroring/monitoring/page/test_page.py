"""A mirror's page: its data, its server and the written report, without its look."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.progress import Summary
from shoal.mirroring.model.steering_status import SteeringStatus
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.page import About, MirrorPage
from shoal.mirroring.monitoring.page.history import History as PageHistory
from shoal.mirroring.monitoring.page.history import Sample, columns
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.net.address import Address
from shoal.result_file import check_result_file
from tests.mirroring.monitoring.page.page_reports import Told, expected, partition_of, report_of
from tests.two_brokers import ABORT, TwoBrokers, batches_of, wait_until

ABOUT = About("west:9092", "east:9092", "shoal.west.east", ("topic a: keeps less",))
ANYWHERE = Address("127.0.0.1", 0)


def watch(
    metrics: Metrics | None = None,
    *,
    ui: Address | None = ANYWHERE,
    report: Path | None = None,
    warnings: list[str] | None = None,
) -> MirrorPage:
    file = str(report) if report else None
    said = [] if warnings is None else warnings
    return MirrorPage(ui, file, ABOUT, metrics or Metrics(), LocalProcesses(), said.append)


def summary(**changes: Any) -> Summary:
    known = Summary(
        group="group",
        topics={"topic": "topic"},
        elapsed_s=10.0,
        python_cpu_s=2.5,
        jvm_cpu_s=4.0,
        partitions=1,
        stopped={},
        warnings=(),
        records=7,
        batches=2,
        bytes_in=100,
        bytes_out=90,
        decisions={"copied": 2},
        retries=0,
    )
    return replace(known, **changes)


def sample(number: int, **changes: Any) -> Sample:
    return replace(
        Sample(number * 1000, number, number, number, 0.5, 0.25, number, 0.0, 0, None, 1, 2, 3), **changes
    )


# The history


def test_history_of_a_long_run_is_bounded() -> None:
    history = PageHistory(recent_samples=10, whole_samples=100)
    for number in range(20_000):
        history.add(sample(number))
    assert len(history.recent()) == 10
    assert 50 <= len(history.whole()) <= 101


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 9, 10, 16, 17, 1000, 1001])
def test_thinning_keeps_counts_exact(samples: int) -> None:
    history = PageHistory(recent_samples=3, whole_samples=8)
    for number in range(samples):
        history.add(sample(number))
    whole = history.whole()
    assert (whole[0], whole[-1]) == (sample(0), sample(samples - 1))
    assert [each.at_ms for each in whole] == sorted({each.at_ms for each in whole})


def test_thinning_keeps_the_largest_lag_and_memory() -> None:
    history = PageHistory(recent_samples=3, whole_samples=8)
    for number in range(999):
        peak = number == 500
        history.add(
            sample(number, lag_s=9.0 if peak else None, lag_records=90 * peak, tasks_rss_bytes=70 * peak)
        )
    kept = columns(history.whole())
    assert max(kept["lag_records"]) == 90
    assert max(kept["tasks_rss_bytes"]) == 70
    assert [each for each in kept["lag_s"] if each is not None] == [9.0]


# The server


def get(address: Address | None, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    assert address is not None
    connection = HTTPConnection(address.host, address.port, timeout=10)
    try:
        connection.request(
            "GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


def data(address: Address | None, query: str = "") -> dict[str, Any]:
    status, _, body = get(address, f"/data.json{query}")
    assert status == 200
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


def test_used_address_is_refused_with_its_option() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"^--ui.*127\.0\.0\.1:"),
    ):
        watch(ui=Address(*taken.getsockname()))


def test_page_is_sent_compressed_and_once() -> None:
    with watch() as shown:
        status, headers, body = get(shown.address, "/", Accept_Encoding="gzip")
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
        assert b"<!DOCTYPE html>" in gzip.decompress(body)
        assert get(shown.address, "/")[2] == gzip.decompress(body)
        assert get(shown.address, "/", If_None_Match=headers["ETag"])[0] == 304


def test_monitoring_without_page_and_report_starts_no_thread() -> None:
    before = set(threading.enumerate())  # those of earlier tests may end meanwhile
    with watch(ui=None) as nothing:
        assert nothing.address is None
        assert set(threading.enumerate()) <= before


# Contents


def copied(brokers: TwoBrokers, *topics: str) -> Metrics:
    """Return the registry of a task that copied all records."""
    ranges = brokers.ranges(*topics)
    metrics = expected(ranges)
    brokers.run(ranges, Told(metrics))
    return metrics


def test_batches_and_their_sizes_are_counted_by_topic(brokers: TwoBrokers) -> None:
    (large,), (small, _) = brokers.topic("large"), brokers.topic("small", 2)
    large.plain(100, 100)
    small.plain(1, 1, 1)
    metrics = copied(brokers, "large", "small")
    with watch(metrics) as shown:
        topics = {row["topic"]: row for row in data(shown.address)["topics"]["rows"]}
    stored = {
        name: sum(
            batch.header.size
            for log in brokers.destination.topics.topic(name).logs
            for batch in batches_of(log)
        )
        for name in topics
    }
    assert {name: row["bytes_out"] for name, row in topics.items()} == stored
    assert topics["large"]["records_per_batch"] == 100
    assert topics["large"]["bytes_per_batch"] == stored["large"] / 2
    assert (topics["small"]["partitions"], topics["small"]["records_per_batch"]) == (2, 1)


def test_bytes_of_unopened_batches_are_shown_only_if_known(brokers: TwoBrokers) -> None:
    (plain,), (holed,) = brokers.topic("plain"), brokers.topic("holed")
    plain.plain(3).transaction(2, ends=ABORT)
    holed.plain(3).holed(5, [2])
    metrics = copied(brokers, "plain")
    with watch(metrics) as shown:
        known = data(shown.address)["conversions"]
        assert known == {
            "unopened": 1,
            "unopened_bytes": metrics.progress().bytes_out,
            "opened": 0,
            "dropped": 2,
        }
    with watch(copied(brokers, "plain", "holed")) as shown:
        conversions = data(shown.address)["conversions"]
        assert (conversions["opened"], conversions["unopened_bytes"]) == (1, None)


def told(metrics: Metrics, number: int, **changes: Any) -> None:
    """Let one of two tasks tell of a partition."""
    partition = partition_of("topic", number, **{"source_offset": 10, "end_offset": 10, **changes})
    metrics.apply(report_of(partition, pid_host=f"host:{number % 2}"))


def test_stopped_and_waiting_partitions_are_named_by_reason() -> None:
    metrics = Metrics()
    for number in range(50):
        told(metrics, number, waiting_for="broker 3 does not answer")
    told(metrics, 50, stopped=[7, "the destination refuses it"])
    with watch(metrics) as shown:
        found = data(shown.address)
    assert found["stopped"] == {
        "count": 1,
        "reasons": [{"reason": "the destination refuses it", "partitions": ["topic-50"], "count": 1}],
    }
    (reason,) = found["waiting"]["reasons"]
    assert (found["waiting"]["count"], reason["count"], len(reason["partitions"])) == (50, 50, 20)


def test_steering_is_shown_as_sentences() -> None:
    metrics = Metrics()
    with watch(metrics) as shown:
        assert data(shown.address)["steering"] == []
    metrics.steering = SteeringStatus(paused_expressions=("logs",), paused=frozenset({"logs"}), limit=1024)
    with watch(metrics) as shown:
        assert data(shown.address)["steering"] == ["paused: logs (1 topic)", "limit: 1k/s"]


def test_slowest_partitions_come_first_and_all_on_demand() -> None:
    metrics = Metrics()
    for number in range(1200):
        told(metrics, number, end_offset=10 + number)
    told(metrics, 1199, stopped=[7, "refused"], end_offset=10_000)
    with watch(metrics) as shown:
        slowest = data(shown.address)["partitions"]
        every = data(shown.address, "?partitions=all")["partitions"]
    assert slowest["count"] == every["count"] == len(every["rows"]) == 1200
    assert [row["partition"] for row in every["rows"]][:20] == [row["partition"] for row in slowest["rows"]]
    assert [row["state"] for row in slowest["rows"]] == ["stopped"] + ["behind"] * 19
    first = every["rows"][0]
    assert (first["partition"], first["lag_records"]) == ("topic-1199", 10_000 - 10)


def test_task_is_a_process_with_its_partitions_and_rate() -> None:
    metrics = Metrics()
    for number in range(5):
        told(metrics, number)
    with watch(metrics) as shown:
        first = task_rows(shown.address)
        assert {name: row["partitions"] for name, row in first.items()} == {"host:0": 3, "host:1": 2}
        assert {row["bytes_per_s"] for row in first.values()} == {None}  # of one look there is no rate
        told(metrics, 1)
        second: dict[str, Any] = {}

        def has_a_rate() -> bool:
            second.update(task_rows(shown.address))  # of one look: at the next one it may be nothing again
            return (second["host:1"]["bytes_per_s"] or 0) > 0

        wait_until(has_a_rate)
        assert second["host:1"]["cores"] > 0
        assert second["host:0"]["bytes_per_s"] == 0


def task_rows(address: Address | None) -> dict[str, Any]:
    return {row["name"]: row for row in data(address)["processes"] if row["kind"] == "task"}


def test_history_continues_without_an_open_page() -> None:
    with watch() as shown:
        wait_until(lambda: len(data(shown.address)["history"]["at_ms"]) >= 3)
        history = data(shown.address, "?range=whole")["history"]
        assert history["driver_rss_bytes"][0] > 1_000_000
        assert history["driver_cpu_s"] == sorted(history["driver_cpu_s"])


# The report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def written(file: Path) -> dict[str, Any]:
    """Return the object that a report shows."""
    _, _, rest = file.read_text().partition('<script type="application/json" id="data">')
    found = json.loads(rest.partition("</script>")[0])
    assert isinstance(found, dict)
    return found


def test_report_shows_the_end_of_the_mirror(file: Path, brokers: TwoBrokers) -> None:
    brokers.topic()[0].plain(3, 4)
    with watch(copied(brokers), ui=None, report=file) as watching:
        assert not file.exists()
        watching.end(summary())
    found = written(file)
    assert found["ending"]["good"]
    assert all(each in found["ending"]["sentence"] for each in ("7 records", "2 batches"))
    assert (found["totals"]["records"], found["totals"]["batches"]) == (7, 2)
    assert found["totals"]["cpu_s"] == 6.5
    assert found["warnings"] == ["topic a: keeps less"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stopped": {"topic-0": "refused"}}, "1 of 1 partitions stopped"),
        ({"interrupted": True}, "The mirror was interrupted"),
    ],
)
def test_report_names_problems_of_the_end(file: Path, changes: dict[str, Any], words: str) -> None:
    with watch(report=file) as watching:
        watching.end(summary(**changes))
    ending = written(file)["ending"]
    assert not ending["good"]
    assert words in ending["sentence"]


def test_failed_mirror_writes_a_report(file: Path) -> None:
    with pytest.raises(ConfigError, match="no way") as raised, watch(report=file):
        raise ConfigError("no way </script><script>alert(1)</script>")
    ending = written(file)["ending"]
    assert not ending["good"]
    assert ending["sentence"].endswith(str(raised.value))


def test_refused_mirror_keeps_an_older_report(file: Path) -> None:
    file.write_text("older")
    nowhere_yet = About("west:9092", "east:9092")
    with (
        pytest.raises(ConfigError, match="no such topic"),
        MirrorPage(None, str(file), nowhere_yet, Metrics(), LocalProcesses()),
    ):
        raise ConfigError("no such topic")
    assert file.read_text() == "older"


def test_late_values_are_shown_once_known() -> None:
    with MirrorPage(ANYWHERE, None, About("west:9092", "east:9092"), Metrics(), LocalProcesses()) as watching:
        before = data(watching.address)
        watching.show_group("group", ["topic a: keeps less"])
        wait_until(lambda: data(watching.address) != before and data(watching.address)["warnings"] != [])
        after = data(watching.address)
    assert (before["about"]["group"], before["warnings"]) == (None, [])
    assert (after["about"]["group"], after["warnings"]) == ("group", ["topic a: keeps less"])


def test_report_replaces_an_older_one_only_at_the_end(file: Path) -> None:
    file.write_text("older")
    with watch(report=file) as watching:
        assert file.read_text() == "older"
        watching.end(summary())
    assert written(file)["ending"]["good"]
    assert list(file.parent.iterdir()) == [file]


def test_unwritable_report_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/report\.html"):
        check_result_file("report", str(tmp_path / "nowhere" / "report.html"))
    with pytest.raises(ConfigError, match=r"report.*file"):
        check_result_file("report", str(tmp_path))
    with pytest.raises(ConfigError, match=r"report.*/dev/null"):
        check_result_file("report", "/dev/null")
    with pytest.raises(ConfigError, match=r"report .*nowhere"):
        watch(report=tmp_path / "nowhere" / "report.html")


def test_report_that_fails_at_the_end_warns(tmp_path: Path) -> None:
    directory = tmp_path / "for a while"
    directory.mkdir()
    warnings: list[str] = []
    with watch(report=directory / "report.html", warnings=warnings) as watching:
        watching.end(summary())
        directory.rmdir()
    (warning,) = warnings
    assert f"{directory}/report.html" in warning


def test_report_does_not_follow_a_link_at_a_predictable_name(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "run.html", tmp_path / "elsewhere"
    elsewhere.write_text("theirs")
    (tmp_path / f".run.html.{os.getpid()}").symlink_to(elsewhere)
    with watch(report=file) as watching:
        watching.end(summary())
    assert written(file)["ending"]["good"]
    assert elsewhere.read_text() == "theirs"
    assert not file.is_symlink()
