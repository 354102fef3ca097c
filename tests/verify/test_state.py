"""``shoal verify --state FILE``: comparisons that continue where the last one ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import main
from shoal.errors import ConfigError, ShoalError
from shoal.protocol.apis import ApiKey
from shoal.verify import DifferenceKind, Extent, Outcome, VerifyReport, verify
from tests.snapshots import Texts
from tests.world import batches
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.history import NOW_MS, History
from tests.world.verifying import lay_out

Compare = Callable[..., VerifyReport]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topic.state"


@pytest.fixture
def compare(brokers: TwoBrokers, file: Path) -> Compare:
    """Compare the topic with its copy, with one file for all comparisons."""
    settings = brokers.settings

    def run(**options: Any) -> VerifyReport:
        chosen = {"group": settings.group, "patience_s": 0.5, "state": str(file), **options}
        return verify(settings.source, settings.destination, {"topic": "topic"}, **chosen)

    return run


def copy(brokers: TwoBrokers, *, until: int | None = None) -> None:
    """Copy the source's batches as another program does: without positions of shoal's."""
    found = [bytearray(each.view) for each in batches_of(brokers.source.log("topic"))]
    lay_out(brokers, found[:until])


def test_comparison_continues_behind_the_records_of_the_last_one(
    brokers: TwoBrokers, history: History, compare: Compare, file: Path
) -> None:
    history.plain(3, 2)
    copy(brokers)
    assert (compare().records, compare().records) == (5, 0)
    assert file.stat().st_mode & 0o777 == 0o600
    history.plain(4)
    copy(brokers)
    assert compare().records == 4
    assert (compare().records, compare().exit_code) == (0, 0)


def test_lag_of_the_copy_is_no_difference_and_is_compared_later(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(3, 2, 4)
    copy(brokers, until=1)
    first = compare()
    assert (first.records, first.outcome, first.partitions[0].not_mirrored) == (3, Outcome.EQUAL, (3, 9))
    copy(brokers)
    assert compare().records == 6


def test_mirror_of_shoal_is_compared_behind_the_state(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    for _ in range(3):
        history.plain(3, 2)
        brokers.run()
        assert compare().records == 5


def test_difference_is_reported_by_each_comparison(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(3)
    copy(brokers)
    compare()
    history.plain(2, 4)
    found = [bytearray(each.view) for each in batches_of(brokers.source.log("topic"))]
    found[1] = batches.batch([b"an", b"other"], base_timestamp=NOW_MS)
    lay_out(brokers, found)
    for _ in range(2):
        result = compare()
        assert (result.records, result.exit_code) == (4, 1)
        assert [each.source for each in result.partitions[0].differences] == [(3, 5)]


def test_failed_comparison_keeps_the_positions(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(3)
    copy(brokers)
    compare()
    history.plain(2)
    copy(brokers)
    fault = brokers.source.faults.add(ApiKey.METADATA, drop="before", times=None)
    with pytest.raises(ShoalError):
        compare()
    brokers.source.faults.remove(fault)
    assert compare().records == 2


def test_topic_that_was_created_again_is_compared_from_its_beginning(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(3, 2)
    copy(brokers)
    compare()
    for broker in (brokers.source, brokers.destination):
        broker.topics.delete(broker.topics.topic("topic"))
    (again,) = brokers.topic()
    again.plain(7)
    copy(brokers)
    result = compare()
    assert result.records == 7
    assert any("topic-0: compared" in each and "created again" in each for each in result.warnings)


def test_copy_that_loses_compared_records_is_different(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(3, 2, 4)
    copy(brokers)
    compare()
    copy(brokers, until=2)
    for _ in range(2):
        (partition,) = compare().partitions
        (lost,) = partition.differences
        assert (lost.kind, lost.source) == (DifferenceKind.MISSING, (5, 9))


@pytest.mark.parametrize("side", ["source", "destination"])
def test_records_that_retention_deleted_before_their_comparison_are_reported_once(
    brokers: TwoBrokers, history: History, compare: Compare, side: str
) -> None:
    history.plain(3, 2)
    copy(brokers)
    compare()
    history.plain(*[4] * 10)
    copy(brokers)
    (brokers.source if side == "source" else brokers.destination).log("topic").delete_records(21)
    result = compare()
    (gone,) = result.partitions[0].not_compared
    assert (gone.source, gone.destination, "retention" in gone.reason) == ((5, 21), (5, 21), True)
    assert (result.records, result.outcome) == (24, Outcome.NOT_COMPARED)
    after = compare()
    assert (after.records, after.partitions[0].not_compared) == (0, ())


def test_partition_that_cannot_be_compared_is_compared_when_it_can(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(3)
    lay_out(brokers, [encode([Content(1, b"other", b"topic")])])
    assert compare().outcome is Outcome.NOT_COMPARED
    copy(brokers)
    assert compare().records == 3


def test_first_comparison_may_begin_with_the_last_records(
    brokers: TwoBrokers, history: History, compare: Compare
) -> None:
    history.plain(*[100] * 60)
    copy(brokers)
    assert compare(extent=Extent(last_offsets=2_000)).records == 2_000
    history.plain(5)
    copy(brokers)
    assert compare(extent=Extent(last_offsets=2_000)).records == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"type": "shoal cutover", "version": 1}',
        '{"type": "shoal verify state", "version": 2}',
        '{"type": "shoal verify state", "version": 1}',
    ],
)
def test_file_that_is_no_state_is_refused(compare: Compare, file: Path, text: str, texts: Texts) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        compare()
    texts(str(refused.value))
    assert file.read_text() == text


def test_state_of_other_clusters_is_refused(
    brokers: TwoBrokers, history: History, compare: Compare, file: Path
) -> None:
    history.plain(3)
    copy(brokers)
    compare()
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "clusters": ["source", "third"]}))
    with pytest.raises(ConfigError, match=r"clusters.*source"):
        compare()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--state", "/nowhere/state"], "--state /nowhere/state"),
        (["--report", "/"], "not a file"),
        (["--state", "a", "--sample", "5%"], "--sample leaves gaps"),
    ],
)
def test_option_that_does_not_fit_is_one_sentence_and_exit_code_2(
    brokers: TwoBrokers, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["verify", *brokers.between, "--topics", "topic", *options]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert words in err
