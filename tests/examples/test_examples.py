"""The examples archive and replay batches as their docstrings describe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_broker import Broker
from tests.two_brokers import ABORT, COMMIT, History, content_of

ROOT = Path(__file__).parents[2]


def run(example: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as source, Broker() as destination:
        for broker in (source, destination):
            broker.create_topic("orders-of-2026", 2)
            broker.create_topic("clicks")
        yield source, destination


def test_archived_records_are_replayed_and_not_archived_again(
    brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    source, destination = brokers
    histories = {
        ("orders-of-2026", 0): History(source.log("orders-of-2026", 0)).plain(3, 1, 200),
        ("orders-of-2026", 1): History(source.log("orders-of-2026", 1)).transaction(4, ends=ABORT).plain(2),
        ("clicks", 0): History(source.log("clicks", 0)).transaction(2, ends=COMMIT).holed(5, [2]),
    }
    archive = tmp_path / "archive"
    options = (
        "--from",
        source.bootstrap,
        "--topics",
        "orders-of-2026,clicks",
        "--archive",
        archive,
        "--once",
    )
    assert run("archive_batches.py", *options) == "6 batches archived\n"
    # More batches arrive, and a crash leaves half a batch after the committed offset.
    histories["clicks", 0].plain(7)
    histories["orders-of-2026", 0].plain(5)
    (torn,) = (archive / "orders-of-2026-0").iterdir()
    with torn.open("ab") as file:
        file.write(b"half a batch")
    source.groups.delete("archive")  # as if no offset had been committed
    assert run("archive_batches.py", *options) == "2 batches archived\n"
    assert (
        run("replay_batches.py", "--archive", archive, "--to", destination.bootstrap)
        == "8 batches replayed\n"
    )
    for (topic, partition), history in histories.items():
        assert content_of(destination.log(topic, partition)) == history.committed


def test_unreachable_cluster_is_one_sentence(tmp_path: Path) -> None:
    options = ("--from", "nowhere", "--topics", "a", "--archive", tmp_path)
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "archive_batches.py", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 1
    assert re.search(r"archive_batches.*bootstrap\.servers", done.stderr)
