"""A merge finds each possible place of the mirror and no other, compared with a search of all."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import pytest

from shoal.mirroring.model.copy_options import COPY_DEFAULTS
from shoal.mirroring.task.resume.merge import Merge, Reach
from shoal.mirroring.task.resume.record_key import RecordKey
from shoal.mirroring.task.resume.source_walk import Gap, SourceRecord
from shoal.mirroring.task.resume.written import WrittenBatch, WrittenRecords
from shoal.records import split
from tests import batches


class Case(NamedTuple):
    """
    A log that lost records, and the records mirrored of it.

    Attributes:
        slots: The value at each offset of the source; None for a record that it lost, or an offset without
            one; "marker" for a batch that is never mirrored.
        written: The values at the destination; None for one that it lost.
        foreign: The numbers of those that others wrote.
        stood: How many of the source's records were mirrored, in truth.

    """

    slots: tuple[str | None, ...]
    written: tuple[str | None, ...]
    foreign: frozenset[int]
    stood: int


def random_case(dice: random.Random) -> Case:
    """Write some records of a few values, mirror some of them, and lose some at either side."""
    values = "abcdefgh"[: dice.choice([1, 2, 3, 8])]
    slots: list[str | None] = [
        dice.choice([*values, *values, *values, "marker", None]) for _ in range(dice.randint(1, 9))
    ]
    mirrored = [slot for slot in slots if slot not in ("marker", None)]
    count = dice.randint(0, len(mirrored))
    stood_at = 0
    while sum(slot not in ("marker", None) for slot in slots[:stood_at]) < count:
        stood_at += 1
    lost = dice.choice([0.0, 0.3, 0.6, 0.9])
    left = [slot if slot == "marker" or dice.random() >= lost else None for slot in slots]
    written = [value if dice.random() < 0.9 else None for value in mirrored[:count]]
    stood = sum(slot not in ("marker", None) for slot in left[:stood_at])
    return Case(tuple(left), tuple(written), frozenset(), stood)


def with_foreign(case: Case, dice: random.Random) -> Case:
    there = [number for number, value in enumerate(case.written) if value is not None]
    return case._replace(foreign=frozenset(dice.sample(there, min(2, len(there)))))


def places_by_trying_all(case: Case) -> set[int]:
    """Return each number of the source's records behind which all that was written may lie."""
    slots, written = case.slots, case.written

    @cache
    def reachable(offset: int, number: int, survivors: int) -> frozenset[int]:
        found = frozenset({survivors} if number == len(written) else ())
        if offset == len(slots):
            return found
        slot = slots[offset]
        if slot == "marker":
            return found | reachable(offset + 1, number, survivors)
        if slot is None:
            found |= reachable(offset + 1, number, survivors)
            if number < len(written) and number not in case.foreign:
                found |= reachable(offset + 1, number + 1, survivors)
        elif number < len(written) and written[number] in (slot, None):
            found |= reachable(offset + 1, number + 1, survivors + 1)
        return frozenset(found)

    return set(reachable(0, 0, 0))


def places_by_merging(case: Case, cut: Sequence[int]) -> set[int]:
    merge = Merge(WrittenRecords(batches_of(case, cut), len(case.written), COPY_DEFAULTS), 0)
    found: set[int] = set()
    for offset, slot in enumerate((*case.slots, "marker")):
        if merge.last:
            found.add(merge.last.survivors)
        if slot is None:
            merge.take(Gap(1))
        elif slot != "marker":
            key = RecordKey(hash(body_of(slot)), batches.TIMESTAMP)
            merge.take(SourceRecord(offset, offset + 1, key, 0))
    if merge.last:
        assert merge.first
        found.add(merge.last.survivors)
        assert (min(found), max(found)) == (merge.first.survivors, merge.last.survivors)
    return found


def body_of(value: str) -> bytes:
    (batch,) = split(memoryview(bytes(batches.raw_batch(batches.payload([record_of(value)])))))
    return COPY_DEFAULTS.decode(batch)[0].body


def record_of(value: str, offset_delta: int = 0) -> batches.Record:
    return batches.Record(key=b"key", value=value.encode(), offset_delta=offset_delta)


def batches_of(case: Case, cut: Sequence[int]) -> Iterator[WrittenBatch]:
    """Yield the written batches, cut at some numbers; one that lost all its records is gone."""
    numbers = range(len(case.written))
    ends = sorted({*cut, *case.foreign, *(each + 1 for each in case.foreign), len(numbers)})
    start = 0
    for end in (each for each in ends if 0 < each <= len(numbers)):
        left = [
            record_of(value, number - start)
            for number in numbers[start:end]
            if (value := case.written[number]) is not None
        ]
        if left:
            built = batches.raw_batch(
                batches.payload(left),
                base_offset=1000 + start,
                last_offset_delta=end - start - 1,
                records_count=len(left),
                max_timestamp=batches.TIMESTAMP,
            )
            (batch,) = split(memoryview(bytes(built)))
            yield WrittenBatch(start, batch, is_ours=start not in case.foreign)
        start = end


@pytest.mark.parametrize("seed", range(20))
def test_merge_of_random_logs_finds_each_possible_place_and_no_other(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        case = random_case(dice)
        cut = dice.sample(range(10), 3)
        found = places_by_merging(case, cut)
        assert found == places_by_trying_all(case), case
        assert case.stood in found, case


@pytest.mark.parametrize("seed", range(5))
def test_merge_with_foreign_records_never_takes_them_for_lost_ones(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        case = with_foreign(random_case(dice), dice)
        assert places_by_merging(case, ()) == places_by_trying_all(case), case


def reaches_all(case: Case, cut: Sequence[int], *, is_backwards: bool) -> bool:
    """Return whether all written records can lie between both ends of the source's slots."""
    written = WrittenRecords(batches_of(case, cut), len(case.written), COPY_DEFAULTS)
    slots = case.slots
    if is_backwards:
        written.load_all()
        written.fill(len(case.written))
        written.reverse()
        slots = slots[::-1]
    reach = Reach(written)
    for slot in slots:
        if slot is None:
            reach.pass_gap(1)
        elif slot != "marker":
            reach.take(RecordKey(hash(body_of(slot)), batches.TIMESTAMP))
    return len(case.written) in reach.numbers()


@pytest.mark.parametrize("seed", range(5))
def test_reach_of_random_logs_is_the_same_in_both_directions(seed: int) -> None:
    dice = random.Random(seed)
    found = set()
    for _ in range(100):
        case, cut = random_case(dice), dice.sample(range(10), 3)
        forwards = reaches_all(case, cut, is_backwards=False)
        assert reaches_all(case, cut, is_backwards=True) == forwards, case
        found.add(forwards)
    assert found == {True, False}
