"""A part of a partition: since a time, the last offsets, a sample."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.offsets import EARLIEST, LATEST, list_offsets
from shoal.errors import ConfigError, ShoalError
from shoal.mirroring.model.window import Until
from shoal.topic_partition import TopicPartition
from shoal.verify import Extent, OffsetRange, Outcome, PartitionReport
from shoal.verify.extent import LEAST_OFFSETS
from shoal.verify.tables import details
from tests.snapshots import Texts
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS, History
from tests.world.verifying import altered, cut, extra, lay_out, missing, partition

#: Enough for several ranges of a sample.
COUNT = 12_000


def items(count: int = COUNT) -> list[Content]:
    """Return records of which no two are equal, a second apart."""
    return [
        Content(NOW_MS + 1000 * number, b"key %d" % number, b"value %d" % number) for number in range(count)
    ]


def load(brokers: TwoBrokers, history: History, source: list[Content], destination: list[Content]) -> None:
    """Give the source batches of 100 records, and the destination others of 130."""
    for batch in cut(source, *[100] * (len(source) // 100)):
        base = history.next_offset
        batch[:8] = base.to_bytes(8, "big")
        history.store(batch)
    lay_out(brokers, cut(destination, *[130] * (len(destination) // 130)))


def compared(report: PartitionReport) -> list[OffsetRange]:
    assert report.ranges is not None
    return [each.source for each in report.ranges]


# Ranges


def test_extent_of_last_offsets_is_at_least_as_long_as_can_be_found() -> None:
    draw = random.Random(1)
    log = OffsetRange(0, 100_000)
    assert Extent(last_offsets=5_000).ranges(log, None, None, draw) == [(95_000, 100_000)]
    assert Extent(last_offsets=5).ranges(log, None, None, draw) == [(100_000 - LEAST_OFFSETS, 100_000)]
    assert Extent(last_offsets=99_999).ranges(log, None, None, draw) == [log]
    assert Extent(since_ms=1).ranges(log, 100_000, None, draw) == []


@pytest.mark.parametrize("size", [10, 5_000, 100_000, 3_000_000])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.99])
def test_sample_has_its_share_in_ranges_that_do_not_touch(size: int, share: float) -> None:
    log = OffsetRange(10**9, 10**9 + size)
    ranges = Extent(sample=share).ranges(log, None, None, random.Random(size))
    if ranges == [log]:
        assert size < 7 * LEAST_OFFSETS or share >= 0.5
        return
    total = sum(each.end - each.start for each in ranges)
    assert size * share <= total <= size * share + len(ranges) * 4 * LEAST_OFFSETS
    ends = [place for each in ranges for place in each]
    assert ends == sorted(ends)
    assert (ends[0] >= log.start, ends[-1] <= log.end) == (True, True)


@pytest.mark.parametrize(
    "given",
    [
        {"sample": "5"},
        {"sample": "0%"},
        {"sample": "100%"},
        {"last": "many"},
        {"last": "0"},
        {"since": "latest"},
        {"since": "yesterday"},
        {"since": "1", "last": "2"},
        {"since": "2026-02-01", "until": "2026-01-31"},
        {"until": "never"},
    ],
)
def test_extent_that_makes_no_sense_is_refused(given: dict[str, str], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        Extent.parse(given)
    texts(str(refused.value))


def test_extent_is_read_and_printed() -> None:
    extent = Extent.parse({"since": "2026-01-31T12:00:00Z", "sample": "2.5%"})
    assert re.search(r"2\.5%.*2026-01-31T12:00:00Z", str(extent))
    assert re.search(r"5,000.*partition", str(Extent.parse({"last": "5000"})))
    assert Extent.parse({"last": "1h"}).since_ms is not None
    assert Extent.parse({}).is_whole
    assert Extent.parse({"until": "now"}).is_whole
    assert Extent.parse({"last": "1h", "until": "now"}).until is None


# Comparisons


@pytest.mark.parametrize(
    "extent",
    [
        Extent(since_ms=NOW_MS + 4_000_000, until=Until(NOW_MS + 8_000_000)),
        Extent(since_ms=NOW_MS + 4_000_000, until=Until(offset=8_000)),
    ],
)
def test_records_between_two_times_are_compared(
    brokers: TwoBrokers, history: History, extent: Extent
) -> None:
    load(brokers, history, items(), items())
    report = partition(brokers, extent=extent)
    assert (report.outcome, report.records, compared(report)) == (Outcome.EQUAL, 4_000, [(4_000, 8_000)])


def test_copy_that_ends_before_the_end_of_the_range_lags(brokers: TwoBrokers, history: History) -> None:
    load(brokers, history, items(6_000), items(4_000))
    report = partition(brokers, extent=Extent(until=Until(offset=5_000)))
    assert (report.outcome, report.records, report.not_mirrored) == (Outcome.EQUAL, 4_000, (4_000, 5_000))


def test_time_after_the_last_record_compares_nothing(brokers: TwoBrokers, history: History) -> None:
    load(brokers, history, items(2_500), items(2_500))
    report = partition(brokers, extent=Extent(since_ms=NOW_MS + 8_000_000))
    assert (report.outcome, report.records, report.ranges) == (Outcome.NOTHING, 0, ())


@pytest.mark.parametrize(
    ("at", "fault"),
    [
        *[(at, fault) for at in (9_001, 10_500, 11_998) for fault in ("missing", "altered", "extra")],
        (9_000, "missing"),
        (9_000, "altered"),
        (11_999, "altered"),
        (11_999, "extra"),
    ],
)
def test_fault_among_the_last_records_is_found_at_its_offset(
    brokers: TwoBrokers, history: History, at: int, fault: str
) -> None:
    copied = items()
    if fault == "missing":
        del copied[at]
    elif fault == "altered":
        copied[at] = copied[at]._replace(value=b"another")
    else:
        copied.insert(at, Content(NOW_MS + 1000 * at, b"foreign", b"foreign"))
    load(brokers, history, items(), copied)
    report = partition(brokers, extent=Extent(last_offsets=3_000))
    assert report.outcome is Outcome.DIFFERENT
    if fault == "extra":
        assert extra(report) == [(at, at + 1)]
    elif fault == "missing":
        assert missing(report) == [(at, at + 1)]
    else:
        assert [each for each, _ in altered(report)] == [(at, at + 1)]


def test_copy_that_is_behind_the_whole_range_has_not_mirrored_it(
    brokers: TwoBrokers, history: History
) -> None:
    load(brokers, history, items(), items()[:5_000])
    report = partition(brokers, extent=Extent(last_offsets=3_000))
    assert (report.outcome, report.records, report.not_mirrored) == (Outcome.NOTHING, 0, (9_000, 12_000))


@pytest.mark.parametrize(
    ("side", "extent"),
    [("destination", Extent(last_offsets=2_000)), ("source", Extent(since_ms=NOW_MS + 4_000_000))],
)
def test_range_whose_time_an_emptied_batch_hides_is_not_compared(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch, side: str, extent: Extent
) -> None:
    """Kafka's broker answers so for a compacted segment, though later segments have later records."""
    load(brokers, history, items(6_000), items(6_000))

    def hidden(
        cluster: Cluster, wanted: Mapping[TopicPartition, int], level: IsolationLevel
    ) -> dict[TopicPartition, int | ShoalError]:
        if set(wanted.values()) <= {EARLIEST, LATEST}:
            return list_offsets(cluster, wanted, level)
        assert cluster.config.name == side
        return dict.fromkeys(wanted, -1)

    monkeypatch.setattr("shoal.client.offsets.list_offsets", hidden)
    report = partition(brokers, extent=extent)
    assert (report.outcome, report.not_mirrored) == (Outcome.NOT_COMPARED, None)
    assert all(each in str(report.reason) for each in (side, "cleaner"))


def test_sample_finds_a_range_that_lost_its_end(brokers: TwoBrokers, history: History) -> None:
    ranges = Extent(sample=0.5).ranges(
        OffsetRange(0, 60_000), None, None, random.Random(random.Random(3).random())
    )
    end = ranges[0].end
    copied = items(60_000)
    del copied[end - 10 : end]
    load(brokers, history, items(60_000), copied)
    report = partition(brokers, extent=Extent(sample=0.5), draw=random.Random(3))
    assert (report.outcome, missing(report)) == (Outcome.DIFFERENT, [(end - 10, end)])
    offsets = sum(each.end - each.start for each in compared(report))
    assert report.records == offsets - 10
    found = f"{len(compared(report))} ranges with {offsets:,} source offsets"
    assert found in " ".join(details(report, most_ranges=1))


# Random topics

KINDS = ("unique", "equal times", "times that go back", "repeated values", "repeated blocks", "old times")


def random_items(draw: random.Random, kind: str, count: int) -> list[Content]:
    """Return records that repeat some of their contents and times."""
    found, time = [], NOW_MS
    for number in range(count):
        match kind:
            case "old times":
                time = draw.choice([1, 978_307_200_000, 2])
            case "times that go back":
                time = NOW_MS + number * 10 - draw.randrange(100_000)
            case "repeated blocks":
                time = NOW_MS + number % 2_500
            case "equal times":
                pass
            case _:
                time += draw.randrange(50) * draw.randrange(2)
        value = b"value %d" % (number % 2_500 if kind == "repeated blocks" else number)
        if kind == "repeated values" and draw.random() < 0.7:
            value = b"alive"
        found.append(Content(time, draw.choice([None, b"key"]), value))
    return found


@pytest.mark.parametrize("seed", range(18))
def test_part_of_a_random_copy_has_exactly_its_faults(
    brokers: TwoBrokers, history: History, seed: int
) -> None:
    """The copy may begin later, end earlier and have one altered record; its batches are its own."""
    draw = random.Random(seed)
    records = random_items(draw, KINDS[seed % len(KINDS)], draw.choice([3_000, 8_000, 20_000]))
    start = draw.choice([0, 0, draw.randrange(500)])
    copied = records[start : len(records) - draw.choice([0, 0, draw.randrange(1_500)])]
    at_fault = None
    if draw.random() < 0.5:
        at = draw.randrange(len(copied))
        copied[at] = copied[at]._replace(value=b"another")
        at_fault = at + start
    for batch in cut(records, *[draw.randrange(1, 300) for _ in range(2 * len(records) // 150)]):
        batch[:8] = history.next_offset.to_bytes(8, "big")
        history.store(batch)
    lay_out(brokers, cut(copied, *[draw.randrange(1, 300) for _ in range(2 * len(copied) // 150)]))
    extent = draw.choice(
        [
            Extent(last_offsets=draw.randrange(1, len(records))),
            Extent(sample=draw.choice([0.05, 0.3, 0.6])),
            Extent(since_ms=draw.choice(records).timestamp),
            Extent(until=Until(offset=draw.randrange(1_000, len(records)))),
        ]
    )
    report = partition(brokers, group="none", extent=extent, draw=draw)
    within = [OffsetRange(start, len(records))] if report.ranges is None else compared(report)
    is_seen = at_fault is not None and any(each.start <= at_fault < each.end for each in within)
    if report.outcome is Outcome.NOT_COMPARED:
        assert (KINDS[seed % len(KINDS)], report.differences) == ("repeated blocks", ())
        return
    assert report.outcome is (Outcome.DIFFERENT if is_seen else Outcome.EQUAL)
    if is_seen and at_fault is not None:
        assert [each for each, _ in altered(report)] == [(at_fault, at_fault + 1)]


@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("given", [{"last": "3000"}, {"sample": "50%"}])
def test_copy_that_has_other_records_to_its_end_does_not_lag(
    brokers: TwoBrokers, history: History, given: Mapping[str, str], times: bool
) -> None:
    source = items()
    other = [each._replace(value=b"other") if times else each._replace(timestamp=0) for each in source]
    load(brokers, history, source, source[:500] + other[500:])
    report = partition(brokers, group="none", extent=Extent.parse(given), draw=random.Random(1))
    assert report.outcome in (Outcome.NOT_COMPARED, Outcome.DIFFERENT)


def test_copy_that_does_not_reach_a_range_yet_lags(brokers: TwoBrokers, history: History) -> None:
    load(brokers, history, items(), items()[:5_000])
    report = partition(brokers, group="none", extent=Extent(last_offsets=3_000))
    assert (report.outcome, report.reason, report.reached) == (Outcome.NOTHING, None, None)
    assert report.not_mirrored == (9_000, 12_000)


def test_empty_copy_of_a_part_is_not_compared(brokers: TwoBrokers, history: History) -> None:
    """As of all records: nothing shows that the topic was mirrored."""
    load(brokers, history, items(3_000), [])
    report = partition(brokers, group="none", extent=Extent(last_offsets=1_500))
    assert (report.outcome, report.not_mirrored) == (Outcome.NOT_COMPARED, None)


def test_copy_with_records_of_a_time_that_the_source_lacks_is_not_compared(
    brokers: TwoBrokers, history: History
) -> None:
    load(brokers, history, items(2_500), [*items(2_500), *items(3_200)[3_000:]])
    report = partition(brokers, group="none", extent=Extent(since_ms=NOW_MS + 2_700_000))
    assert (report.outcome, "at offset 2500" in str(report.reason)) == (Outcome.NOT_COMPARED, True)
