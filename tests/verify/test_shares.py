"""A comparison in shares, as tasks get them, joined to the report of one comparison."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Sequence

import pytest

from shoal.client.cluster import Cluster
from shoal.mirroring.model.copy_options import COPY_DEFAULTS
from shoal.verify import WHOLE, Extent, OffsetRange, Outcome, PartitionReport, VerifyReport
from shoal.verify.plan import PartitionPlan
from shoal.verify.portion import PortionComparison
from shoal.verify.shares import Share, compare_share, joined_shares, shares_of
from tests.two_brokers import NOW_MS, History, TwoBrokers
from tests.verifying import Item, cut, lay_out, verified

COUNT = 12_000

#: The shares, and the partitions that were compared as a whole.
Shared = tuple[list[Share], list[PartitionPlan]]


def items(count: int = COUNT) -> list[Item]:
    return [Item(NOW_MS + 1000 * number, b"key %d" % number, b"value %d" % number) for number in range(count)]


def load(history: History, brokers: TwoBrokers, source: list[Item], destination: list[Item]) -> None:
    for batch in cut(source, *[100] * (len(source) // 100)):
        batch[:8] = history.next_offset.to_bytes(8, "big")
        history.store(batch)
    lay_out(brokers, cut(destination, *[130] * (len(destination) // 130)))


@pytest.fixture
def in_shares(brokers: TwoBrokers) -> Callable[..., tuple[VerifyReport, Shared]]:
    """Verify by shares of at least 3,000 offsets, each pickled on its way to a task and back."""

    def run(extent: Extent = WHOLE) -> tuple[VerifyReport, Shared]:
        shared: Shared = ([], [])

        def compare(
            plans: Sequence[PartitionPlan], extent: Extent, draw: random.Random
        ) -> list[PartitionReport]:
            shared[0].extend(shares_of(plans, extent, draw, tasks=2, least_offsets=3_000))
            reports, again = joined_shares(plans, [done(each) for each in shared[0]])
            shared[1].extend(again)
            return reports + [
                done(Share(number, plan, WHOLE, None, 0.0))[1] for number, plan in enumerate(again)
            ]

        return verified(brokers, extent=extent, compare=compare), shared

    def done(share: Share) -> tuple[Share, PartitionReport]:
        sent = pickle.loads(pickle.dumps(share))
        with Cluster(brokers.settings.source) as ours, Cluster(brokers.settings.destination) as theirs:
            report = compare_share(sent, ours, theirs, options=COPY_DEFAULTS, patience_s=5.0)
        result: tuple[Share, PartitionReport] = pickle.loads(pickle.dumps((share, report)))
        return result

    return run


InShares = Callable[..., tuple[VerifyReport, Shared]]


def test_equal_copy_in_shares_has_the_report_of_one_comparison(
    brokers: TwoBrokers, history: History, in_shares: InShares
) -> None:
    load(history, brokers, items(), items())
    (report,) = in_shares()[0].partitions
    (whole,) = verified(brokers).partitions
    shares, again = in_shares()[1]
    assert ([each.source for each in shares], again) == (
        [(0, 3_000), (3_000, 6_000), (6_000, 9_000), (9_000, 12_000)],
        [],
    )
    assert (report.outcome, report.records, report.reached) == (Outcome.EQUAL, COUNT, whole.reached)
    assert (report.alignment, report.ranges) == (whole.alignment, None)


@pytest.mark.parametrize("at", [1, 2_999, 3_000, 3_001, 7_000, 8_999, 9_000])
@pytest.mark.parametrize("fault", ["missing", "extra"])
def test_fault_within_or_between_shares_is_found_at_its_offset(
    brokers: TwoBrokers, history: History, in_shares: InShares, at: int, fault: str
) -> None:
    copied = items()
    if fault == "missing":
        del copied[at]
    else:
        copied.insert(at, Item(NOW_MS + 1000 * at, b"foreign", b"foreign"))
    load(history, brokers, items(), copied)
    (report,) = in_shares()[0].partitions
    assert report.outcome is Outcome.DIFFERENT
    found = report.missing if fault == "missing" else report.extra
    assert (found, report.records) == ([(at, at + 1)], len(copied) - (fault == "extra"))


@pytest.mark.parametrize("missing", [(2_000, 4_000), (2_999, 9_001), (5_900, 6_100), (8_000, 11_990)])
def test_missing_records_of_several_shares_are_no_lag(
    brokers: TwoBrokers, history: History, in_shares: InShares, missing: tuple[int, int]
) -> None:
    copied = items()
    del copied[slice(*missing)]
    load(history, brokers, items(), copied)
    (report,) = in_shares()[0].partitions
    assert (report.missing, report.not_mirrored) == ([missing], None)
    assert (report.records, report.reached) == (len(copied), (COUNT, len(copied)))


def test_missing_records_at_a_sampled_range_are_no_lag(brokers: TwoBrokers, history: History) -> None:
    copied = items()
    del copied[8_000:11_900]
    load(history, brokers, items(), copied)

    def compare(plans: Sequence[PartitionPlan], *_: object) -> list[PartitionReport]:
        with Cluster(brokers.settings.source) as ours, Cluster(brokers.settings.destination) as theirs:
            ours.refresh(["topic"])
            theirs.refresh(["topic"])
            return [
                PortionComparison(
                    plan,
                    WHOLE,
                    options=COPY_DEFAULTS,
                    patience_s=5.0,
                    stop=threading.Event(),
                    draw=random.Random(),
                    ranges=(OffsetRange(6_000, 8_500), OffsetRange(9_000, 10_500)),
                ).run(ours, theirs)
                for plan in plans
            ]

    (report,) = verified(brokers, compare=compare).partitions
    assert (report.missing, report.not_mirrored) == ([(8_000, 11_900)], None)


def test_altered_record_within_a_share_is_found(
    brokers: TwoBrokers, history: History, in_shares: InShares
) -> None:
    copied = items()
    copied[4_000] = copied[4_000]._replace(value=b"another")
    load(history, brokers, items(), copied)
    (report,) = in_shares()[0].partitions
    assert report.altered == [((4_000, 4_001), (4_000, 4_001))]


@pytest.mark.parametrize("mirrored", [5_000, 6_000, 8_990, 11_999])
def test_copy_that_is_behind_has_its_lag(
    brokers: TwoBrokers, history: History, in_shares: InShares, mirrored: int
) -> None:
    load(history, brokers, items(), items()[:mirrored])
    (report,) = in_shares()[0].partitions
    assert (report.outcome, report.records) == (Outcome.EQUAL, mirrored)
    assert report.not_mirrored == (mirrored, COUNT)


@pytest.mark.parametrize(("searched", "by_another_task"), [(65_536, 0), (3_000, 1)])
def test_records_that_repeat_themselves_are_compared_as_a_whole(
    brokers: TwoBrokers,
    history: History,
    in_shares: InShares,
    monkeypatch: pytest.MonkeyPatch,
    searched: int,
    by_another_task: int,
) -> None:
    """By the first share, if the search comes to the end of the copy; else by another task."""
    monkeypatch.setattr("shoal.verify.portion.SEARCHED_BEHIND", searched)
    same = [Item(NOW_MS, None, b"alive")] * COUNT
    load(history, brokers, same, same)
    report, (_, again) = in_shares()
    assert (report.outcome, report.records, len(again)) == (Outcome.EQUAL, COUNT, by_another_task)


def test_sample_is_one_share_for_each_partition(
    brokers: TwoBrokers, history: History, in_shares: InShares
) -> None:
    load(history, brokers, items(), items())
    report, (shares, _) = in_shares(Extent(last_offsets=2_000))
    assert ([each.source for each in shares], report.records) == ([None], 2_000)
    assert report.partitions[0].ranges is not None
    assert report.partitions[0].ranges[0].source == OffsetRange(10_000, 12_000)
