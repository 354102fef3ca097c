"""``shoal verify`` from outside: a comparison of no record is not equal, and a state is the user's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig.shoal import run_shoal
from shoal.cli import main
from shoal.mirroring.model.copy_options import COPY_DEFAULTS, copy_rules
from tests.two_brokers import ABORT, TwoBrokers

TOPIC = "orders"

#: A user without rights.
NOBODY = 65_534


@pytest.fixture
def two() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        rules = copy_rules(started.settings.source, COPY_DEFAULTS)
        yield started.with_settings(group="shoal.source.destination", rules=rules)


def command(two: TwoBrokers, *more: str) -> list[str]:
    return [
        "verify",
        "--from",
        two.source.bootstrap,
        "--to",
        two.destination.bootstrap,
        "--topics",
        TOPIC,
        *more,
    ]


def verdict(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[str, int, dict[str, Any]]:
    capsys.readouterr()
    code = main(command(two, "--json", *more))
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == code
    return report["outcome"], code, report["partitions"][0]


def test_verify_of_empty_topics_says_so(two: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    two.topic(TOPIC, 2)
    assert verdict(two, capsys)[:2] == ("nothing to compare", 0)
    assert main(command(two)) == 0
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
    assert main(command(two)) == 3
    assert "equal" not in capsys.readouterr().out


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
