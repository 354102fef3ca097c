"""``shoal inspect`` as a user runs it, on an embedded broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.cli.inspect_report import done_of
from shoal.inspect import InspectProgress
from shoal_broker import Broker
from tests.inspect.topics import history
from tests.snapshots import Texts
from tests.world import batches
from tests.world.history import COMMIT


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        log = history(running)
        log.plain(*[2] * 30, producer_id=7, producer_epoch=0).transaction(2, ends=COMMIT)
        log.store(log.batch(2, flags=batches.TRANSACTIONAL, producer_id=9, producer_epoch=0))
        yield running


@pytest.fixture
def command(broker: Broker) -> list[str]:
    return ["inspect", "--from", broker.bootstrap]


def cells(out: str, heading: str, row: int = 0) -> dict[str, str]:
    """Return a row of a table by the columns' names; cells have no two spaces inside."""
    lines = out[out.index(f"{heading}\n") :].splitlines()
    columns, values = lines[1], lines[2 + row]
    starts = [
        at for at, letter in enumerate(columns) if letter != " " and columns[max(0, at - 2) : at].isspace()
    ]
    bounds = [0, *starts]
    ends = [*bounds[1:], None]
    return {columns[a:b].strip(): values[a:b].strip() for a, b in zip(bounds, ends, strict=True)}


def test_tables_show_batches_writers_and_transactions(
    command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*command, "--sample", "all"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    sizes = cells(out, "BATCHES")
    assert (sizes["topic"], sizes["batches"], sizes["records"], sizes["read"]) == (
        "orders",
        "32",
        "64",
        "100%",
    )
    assert cells(out, "WRITERS")["producer ids"] == "3"
    assert cells(out, "PRODUCERS WITH THE MOST BATCHES")["producer id"] == "7"
    opened = cells(out, "OPEN TRANSACTIONS")
    assert (opened["partition"], opened["producer id"], opened["first offset"]) == ("orders-0", "9", "63")
    texts(next(line for line in out.splitlines() if line.startswith("orders: batches have")))
    assert out.endswith(" s\n")


def test_json_is_one_object(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert (result["type"], result["is_sample"], result["exit_code"]) == ("inspect", True, 0)
    (topic,) = result["topics"]
    assert (topic["topic"], topic["records"], topic["commits"]) == ("orders", 64, 1)
    assert {"small-batches", "hanging-transaction"} <= {each["kind"] for each in result["findings"]}


def test_report_is_a_page(command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "batches.html"
    assert main([*command, "--report", str(file)]) == 0
    assert f"shoal: report: {file}" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_topic_that_is_missing_is_a_warning_and_exit_code_1(
    command: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*command, "--topics", "orders,absent"]) == 1
    texts(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topics", "nothing.*"],
        ["--sample", "12x"],
        ["--sample", "0"],
        ["--report", "/no/such/directory/a.html"],
    ],
)
def test_unusable_option_is_a_sentence_and_exit_code_2(
    command: list[str], arguments: list[str], capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    try:
        code = main([*command, *arguments])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    assert code == 2
    texts(capsys.readouterr().err)


def test_cluster_that_is_not_there_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--from", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_progress_has_the_share_of_partitions_and_the_size() -> None:
    done = done_of(InspectProgress(8, 2, 1234, 5_000_000))
    assert (done.text, done.size, done.share) == ("2/8 partitions, 1,234 batches", 5_000_000, 0.25)
