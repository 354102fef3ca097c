"""A mirror's page: its data, its server and the written report, without its look."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.progress import Summary
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.page import About, MirrorPage
from shoal.mirroring.monitoring.page.page import History, Sample
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.net.address import Address
from shoal.result_file import check_result_file
from tests.mirroring.monitoring.page.page_reports import ServedPage, Told, expected, partition_of, report_of
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until

ABOUT = About("west:9092", "east:9092", "shoal.west.east", ["topic a: keeps less"])
ANYWHERE = Address("127.0.0.1", 0)


def watch(
    metrics: Metrics | None = None,
    *,
    ui: Address | None = ANYWHERE,
    report: Path | None = None,
    warnings: list[str] | None = None,
) -> ServedPage:
    file = str(report) if report else None
    said = [] if warnings is None else warnings
    return ServedPage(ui, file, ABOUT, metrics or Metrics(), said.append)


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
    return {"at_ms": number * 1000, "bytes_in": number, "lag_s": None, **changes}


# The history


def test_history_keeps_the_last_hour_in_a_bounded_number_of_samples() -> None:
    history, at = History(), 0.0
    while at < 20_000:
        history.add(sample(round(at)))
        at += history.interval_s
    times = history.columns()["at_ms"]
    assert 400 <= len(times) <= 601
    assert times[-1] - times[0] == pytest.approx(3_600_000, rel=0.01)


def test_history_of_a_short_run_has_a_sample_of_each_second() -> None:
    history = History()
    for number in range(300):
        history.add(sample(number, lag_s=1.23456))
    assert history.columns()["at_ms"] == [number * 1000 for number in range(300)]
    assert history.columns()["lag_s"][0] == 1.235


def test_history_keeps_its_first_sample_as_it_thins() -> None:
    history = History()
    for number in range(700):
        history.add(sample(number))
    assert history.columns()["at_ms"][:2] == [0, 2000]


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


def state(address: Address | None) -> dict[str, Any]:
    status, _, body = get(address, "/state.json")
    assert status == 200
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


def rows_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the partitions of a state."""
    return [
        dict(zip(state["rows"], values, strict=True)) for values in zip(*state["rows"].values(), strict=True)
    ]


def test_page_is_one_file_without_other_addresses() -> None:
    with watch() as shown:
        status, headers, body = get(shown.address, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<!DOCTYPE html>" in body
    assert set(re.findall(rb"https?://[^\s\"')]+", body)) == {b"http://www.w3.org/2000/svg"}
    assert len(body) < 50_000


# Contents


def copied(brokers: TwoBrokers, *topics: str) -> Metrics:
    """Return the registry of a task that copied all records."""
    ranges = brokers.ranges(*topics)
    metrics = expected(ranges)
    brokers.run(ranges, Told(metrics))
    return metrics


def told(metrics: Metrics, number: int, **changes: Any) -> None:
    """Let one of two tasks tell of a partition."""
    partition = partition_of("topic", number, **{"source_offset": 10, "end_offset": 10, **changes})
    metrics.apply(report_of(partition, name=f"host:{number % 2}"))


def test_partitions_have_their_state_and_its_reason() -> None:
    metrics = Metrics()
    told(metrics, 0, waiting_for="broker 3 does not answer")
    told(metrics, 1, stopped=[7, "the destination refuses it"])
    told(metrics, 2)
    with watch(metrics) as shown:
        found = state(shown.address)
    assert [(row["state"], row["reason"]) for row in rows_of(found)] == [
        ("waiting", "broker 3 does not answer"),
        ("stopped", "the destination refuses it"),
        ("up to date", None),
    ]
    assert (found["partitions"], found["states"]["waiting"]) == (3, 1)


def test_history_continues_without_an_open_page() -> None:
    with watch() as shown:
        wait_until(lambda: len(state(shown.address)["history"]["at_ms"]) >= 3)
        history = state(shown.address)["history"]
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
    assert found["ending"]["cpu_s"] == 6.5
    assert found["warnings"] == ["topic a: keeps less"]


@pytest.mark.parametrize("changes", [{"stopped": {"topic-0": "refused"}}, {"interrupted": True}])
def test_report_names_problems_of_the_end(file: Path, changes: dict[str, Any]) -> None:
    with watch(report=file) as watching:
        watching.end(summary(**changes, ended="a partition is stopped"))
    ending = written(file)["ending"]
    assert not ending["good"]
    assert ending["sentence"].endswith("a partition is stopped.")


def test_failed_mirror_writes_a_report(file: Path) -> None:
    with pytest.raises(ConfigError, match="no way") as raised, watch(report=file):
        raise ConfigError("no way </script><script>alert(1)</script>")
    ending = written(file)["ending"]
    assert not ending["good"]
    assert ending["sentence"].endswith(str(raised.value))


def test_report_of_a_mirror_that_fails_behind_its_summary_is_not_good(file: Path) -> None:
    def fail() -> None:
        with watch(report=file) as watching:
            watching.end(summary())
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    ending = written(file)["ending"]
    assert not ending["good"]
    assert ending["sentence"].endswith("disk full")


def test_refused_mirror_keeps_an_older_report(file: Path) -> None:
    file.write_text("older")
    nowhere_yet = About("west:9092", "east:9092")
    with (
        pytest.raises(ConfigError, match="no such topic"),
        MirrorPage(str(file), nowhere_yet, Metrics(), LocalProcesses()),
    ):
        raise ConfigError("no such topic")
    assert file.read_text() == "older"


def test_late_values_are_shown_once_known() -> None:
    about = About("west:9092", "east:9092")
    with ServedPage(ANYWHERE, None, about, Metrics()) as watching:
        before = state(watching.address)
        about.group = "group"
        about.warnings.append("topic a: keeps less")
        wait_until(lambda: state(watching.address) != before and state(watching.address)["warnings"] != [])
        after = state(watching.address)
    assert (before["group"], before["warnings"]) == (None, [])
    assert (after["group"], after["warnings"]) == ("group", ["topic a: keeps less"])


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
    with pytest.raises(ConfigError, match=r"report.*File name too long"):
        check_result_file("report", str(tmp_path / f"{'r' * 240}.html"))  # with what the temporary one adds
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
