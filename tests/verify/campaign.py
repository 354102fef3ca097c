"""
Random topics, copied and damaged, and the findings that verify must report of them.

A trial builds a source log of every batch kind, and a destination log. It deletes
records by retention on either side, and puts up to five faults in. A brute force
over both lists of records decides here if they are equal, without verify.

`python -m tests.verify.campaign 0 600 --findings FILE` runs many trials, and
writes each report as a line of JSON: two versions of verify can be compared.
"""

from __future__ import annotations

import argparse
import enum
import json
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from shoal.broker.storage.log import Log
from shoal.client.config import IsolationLevel
from shoal.records import Codec
from shoal.verify import Outcome, PartitionReport, verify
from tests import batches
from tests.two_brokers import NOW_MS, TwoBrokers
from tests.verifying import Item, encode

__all__ = ["Cuts", "Trial", "run_trial"]

#: An offset, and the record there.
Placed = tuple[int, Item]


class Cuts(enum.Enum):
    """How the copy is cut into batches."""

    #: As another producer would cut it, in any codec.
    OTHER = "other"
    #: As the source, in its codecs: a copy by shoal.
    SAME = "same"
    #: As the source, in another codec: a broker that recompresses.
    RECOMPRESSED = "recompressed"
    #: As the source; then the cleaner takes records away on either side.
    COMPACTED = "compacted"


@dataclass(frozen=True)
class SourceBatch:
    """Which records of the source are in a batch together."""

    number: int
    codec: Codec


@dataclass(frozen=True)
class Fault:
    """A fault that was put in, and the place at which it is to be named."""

    kind: str
    source_offset: int | None
    destination_index: int
    item: Item


@dataclass
class Trial:
    """
    One trial.

    Attributes:
        source: The records that a mirror would copy of the source's log, after retention.
        destination: The records that the destination holds, after retention.
        source_start: The log start offset of the source.
        faults: The changes to the copy.
        notes: The properties of the trial, to understand a failure.

    """

    seed: int
    cuts: Cuts = Cuts.OTHER
    source: list[Placed] = field(default_factory=list)
    destination: list[Placed] = field(default_factory=list)
    source_start: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    report: PartitionReport | None = None

    @property
    def ours(self) -> list[Item]:
        return [item for _, item in self.source]

    @property
    def theirs(self) -> list[Item]:
        return [item for _, item in self.destination]

    def overlap(self) -> int:
        """Return how many records both sides have if the copy is right; -1 if it is not right in any way."""
        ours, theirs = self.ours, self.theirs
        best = -1
        for begin in range(len(ours) + 1):
            common = min(len(theirs), len(ours) - begin)
            if common == len(theirs) and ours[begin : begin + common] == theirs:
                best = max(best, common)
        if self.source_start:
            for older in range(1, len(theirs) + 1):
                common = min(len(ours), len(theirs) - older)
                if theirs[older:] == ours[:common]:
                    best = max(best, common)
        return best

    def complaint(self) -> str | None:
        """Return the error of the report; None if it is right."""
        assert self.report is not None
        outcome, overlap = self.report.outcome, self.overlap()
        if self.cuts is Cuts.COMPACTED:
            return self._of_compacted()
        if overlap > 0 and outcome is not Outcome.EQUAL:
            # After a fault, one record in common at the edge may be an accident.
            if self.faults and overlap < len(self.theirs) // 2:
                return None
            return f"false alarm: {outcome.value} though {overlap} records are right"
        if overlap == 0 and outcome is Outcome.DIFFERENT and not self.faults:
            return "false alarm: nothing is on both sides"
        if overlap < 0 and outcome is Outcome.NOT_COMPARED:
            # Compaction explains a record that only one side has. Perhaps the source has none of the records
            # that are left of a small copy.
            is_explained = self.report.not_compared or len(self.theirs) < 25
            return None if is_explained else f"missed: {self.report.reason}"
        if overlap < 0 and outcome is not Outcome.DIFFERENT:
            return f"missed: {outcome.value}"
        if overlap < 0:
            return self._unnamed()
        return None

    def _of_compacted(self) -> str | None:
        """Return the error if records may be on one side alone: only alterations are faults then."""
        assert self.report is not None
        if not self.faults:
            return "false alarm: compaction" if self.report.outcome is Outcome.DIFFERENT else None
        kept = {item for _, item in self.source} & {fault.item for fault in self.faults}
        altered = [each for each in self.faults if each.kind in ("bit", "header") and each.item in kept]
        there = Counter(item for _, item in self.destination)
        found = [each for each in altered if not there[each.item]]
        is_missed = len(found) == len(self.faults) == 1 and self.report.outcome is Outcome.EQUAL
        return "missed after compaction" if is_missed else None

    def _unnamed(self) -> str | None:
        """Return the first fault that no difference names at its offset."""
        assert self.report is not None
        counts = Counter([*self.ours, *self.theirs])
        offsets = [offset for offset, _ in self.destination]
        places = Counter((each.source_offset, each.destination_index) for each in self.faults)
        for fault in self.faults:
            if places[fault.source_offset, fault.destination_index] > 1:
                continue  # the second may have undone the first
            if counts[fault.item] > 2 or self.report.differences_omitted:
                continue  # which of several like it is missing is not known
            is_named = any(
                (fault.source_offset is not None and _holds(each.source, fault.source_offset))
                or _near(each.destination, fault.destination_index, offsets)
                for each in self.report.differences
            )
            if not is_named and self._matters(fault):
                return f"not named: {fault}"
        return None

    def _matters(self, fault: Fault) -> bool:
        """Whether both sides still have the fault's neighbours, and enough else to find its place."""
        if len(self.destination) < 10 * len(self.faults):
            return False
        kept = {offset for offset, _ in self.source}
        indexes = [offset for offset, _ in self.destination]
        if fault.source_offset is not None and fault.source_offset not in kept:
            return False
        return bool(indexes) and indexes[0] + 1 < fault.destination_index < indexes[-1]


def _holds(offsets: tuple[int, int], offset: int) -> bool:
    return offsets[0] <= offset < max(offsets[1], offsets[0] + 1)


def _near(offsets: tuple[int, int], index: int, there: Sequence[int]) -> bool:
    return bool(there) and offsets[0] - 1 <= index <= offsets[1]


# Records


def _times(rng: random.Random) -> Callable[[int], int]:
    style = rng.choice(["ascending", "repeating", "old", "one", "random", "descending"])
    few = [1, 978_307_200_000, 0, NOW_MS, 1_000_000_000]
    return {
        "ascending": lambda n: NOW_MS + n,
        "repeating": lambda n: few[n // 7 % len(few)],
        "old": lambda n: rng.choice(few),
        "one": lambda n: 978_307_200_000,
        "random": lambda n: rng.randrange(1, NOW_MS),
        "descending": lambda n: NOW_MS - n,
    }[style]


def _items(rng: random.Random, count: int, sameness: float) -> list[Item]:
    time_of = _times(rng)
    found: list[Item] = []
    while len(found) < count:
        number = len(found)
        if rng.random() < sameness:
            # A run of equal records.
            like = rng.choice([Item(1, None, None), Item(978_307_200_000, b"beat", b""), Item(1, b"", None)])
            found += [like] * rng.randrange(1, 60)
            continue
        value = rng.choice([b"value %d" % number, b"value %d" % number, None, b"", rng.randbytes(20)])
        key = rng.choice([b"key %d" % number, None, b"", b"k%d" % (number % 5)])
        headers = rng.choice([(), (), (("h", b"%d" % number),), (("h", None), ("h", b""))])
        found.append(Item(time_of(number), key, value, headers))
    return found[:count]


# The source


@dataclass
class _Source:
    """
    The source's log as it is written.

    Attributes:
        log: The log.
        placed: The records that a mirror copies now.
        before: The same before compaction.
        cut: The batch of each record of `before`.

    """

    log: Log
    placed: list[Placed] = field(default_factory=list)
    before: list[Placed] = field(default_factory=list)
    cut: dict[int, SourceBatch] = field(default_factory=dict)


def _fill_source(
    rng: random.Random, source: _Source, found: list[Item], committed: bool, is_compacted: bool
) -> None:
    """Write records as batches of every kind."""
    log = source.log
    codec = rng.choice([None, *Codec])
    biggest = rng.choice([1, 3, 30, 200])
    is_idempotent = rng.random() < 0.5
    while found:
        count = rng.randrange(1, biggest + 1)
        part, found = found[:count], found[count:]
        kind = rng.choices(["plain", "holes", "commit", "abort", "gap"], [10, 1, 2, 2, 1])[0]
        begin = log.log_end_offset + (rng.randrange(1, 5) if kind == "gap" else 0)
        used = rng.choice(list(Codec)) if codec is None else codec
        deltas: Sequence[int] = range(len(part))
        size = len(part)
        if kind == "holes":
            deltas = sorted(rng.sample(range(2 * len(part)), len(part)))
            size = 2 * len(part)
        whole = [(begin + delta, item) for delta, item in zip(deltas, part, strict=True)]
        kept = [each for each in whole if rng.random() < 0.9] or whole[:1] if is_compacted else whole
        in_transaction = kind in ("commit", "abort")
        batch = encode(
            [item for _, item in kept],
            used,
            base_offset=begin,
            deltas=[offset - begin for offset, _ in kept],
            size=size,
            flags=batches.TRANSACTIONAL if in_transaction else 0,
        )
        if in_transaction or is_idempotent:
            batch = batches.patched(batch, 43, struct.pack(">qhi", 77, 0, begin))
        log.store(memoryview(batch))
        if in_transaction:
            log.store(batches.marker(int(kind == "commit"), 77, base_offset=log.log_end_offset))
        if kind != "abort" or not committed:
            source.placed += kept
            source.before += whole
            source.cut.update({offset: SourceBatch(begin, used) for offset, _ in whole})


# The copy


def _put_faults_in(
    rng: random.Random, placed: list[Placed], faults: int
) -> tuple[list[tuple[int | None, Item]], list[Fault]]:
    copy: list[tuple[int | None, Item]] = list(placed)
    put: list[tuple[str, int | None, Item]] = []
    for _ in range(faults):
        if not copy:
            break
        at = rng.randrange(len(copy))
        offset, item = copy[at]
        kind = rng.choice(["missing", "doubled", "swapped", "bit", "header", "time", "null", "doubled run"])
        changed = None
        if kind == "missing":
            del copy[at]
        elif kind == "doubled":
            copy.insert(at, (None, item))
        elif kind == "doubled run":
            copy[at:at] = [(None, each) for _, each in copy[at : at + rng.randrange(2, 40)]]
        elif kind == "swapped" and at + 1 < len(copy):
            copy[at], copy[at + 1] = copy[at + 1], copy[at]
        elif kind == "bit" and item.value:
            changed = item._replace(value=bytes([item.value[0] ^ 1]) + item.value[1:])
        elif kind == "header" and item.headers:
            changed = item._replace(headers=item.headers[1:])
        elif kind == "time":
            changed = item._replace(timestamp=item.timestamp + 1)
        elif kind == "null" and item.key in (None, b""):
            changed = item._replace(key=b"" if item.key is None else None)
        elif kind == "null" and item.value in (None, b""):
            changed = item._replace(value=b"" if item.value is None else None)
        else:
            continue
        if changed is not None:
            copy[at] = (offset, changed)
        put.append((kind, offset, item))
    places = {offset: index for index, (offset, _) in enumerate(copy) if offset is not None}
    found = []
    for kind, offset, item in put:
        near = next((places[o] for o in places if o == offset), None)
        if near is None:
            behind = [index for o, index in places.items() if offset is not None and o > offset]
            near = min(behind, default=len(copy))
        found.append(Fault(kind, offset, near, item))
    return copy, found


def _fill_destination(rng: random.Random, log: Log, found: list[Item]) -> None:
    """Write records as another producer would: with cuts and a codec of its own."""
    codec = rng.choice(list(Codec))
    biggest = rng.choice([1, 3, 30, 500])
    is_idempotent = rng.random() < 0.5
    at = 0
    while at < len(found):
        part = found[at : at + rng.randrange(1, biggest + 1)]
        batch = encode(part, codec, base_offset=at)
        if is_idempotent:
            batch = batches.patched(batch, 43, struct.pack(">qhi", 9, 0, at))
        log.store(memoryview(batch))
        at += len(part)


def _fill_as_source(
    rng: random.Random, log: Log, copy: Sequence[tuple[int | None, Item]], source: _Source, cuts: Cuts
) -> list[Placed]:
    """Write records in the source's batches; return those that compaction leaves."""
    own = SourceBatch(-1, Codec.NONE)
    codec = rng.choice(list(Codec)) if cuts is Cuts.RECOMPRESSED else None
    is_compacted = cuts is Cuts.COMPACTED and rng.random() < 0.7
    left: list[Placed] = []
    begin = 0
    for batch, group in groupby(copy, lambda each: own if each[0] is None else source.cut[each[0]]):
        whole = list(enumerate([item for _, item in group], begin))
        kept = [each for each in whole if rng.random() < 0.9] or whole[:1] if is_compacted else whole
        part = encode(
            [item for _, item in kept],
            batch.codec if codec is None else codec,
            base_offset=begin,
            deltas=[offset - begin for offset, _ in kept],
            size=len(whole),
        )
        log.store(memoryview(part))
        left += kept
        begin += len(whole)
    return left


# A trial


def run_trial(brokers: TwoBrokers, seed: int, *, records: int = 600, cuts: Cuts = Cuts.OTHER) -> Trial:
    """Build a trial, and let verify compare it."""
    rng = random.Random(seed)
    trial = Trial(seed, cuts)
    topic = f"trial-{cuts.value}-{seed}"
    copy_name = topic if cuts is Cuts.OTHER else f"copy.{topic}"
    brokers.source.create_topic(topic, 1)
    brokers.destination.create_topic(copy_name, 1)
    source, theirs = _Source(brokers.source.log(topic)), brokers.destination.log(copy_name)
    ours = source.log
    committed = rng.random() < 0.7
    sameness = rng.choice([0.0, 0.0, 0.02, 0.2, 1.0 if rng.random() < 0.2 else 0.05])
    found = _items(rng, rng.randrange(1, records), sameness)
    _fill_source(rng, source, found, committed, cuts is Cuts.COMPACTED and seed % 2 == 1)
    copied = list(source.before)
    if rng.random() < 0.3:
        copied = copied[rng.randrange(len(copied) + 1) :]
        trial.notes.append(f"later start, {len(source.before) - len(copied)} records")
    if rng.random() < 0.3:
        copied = copied[: len(copied) - rng.randrange(min(10, len(copied) + 1))]
    faults = rng.choice([0, 0, 0, 1, 1, 2, 3, 5])
    copy, trial.faults = _put_faults_in(rng, copied, faults)
    if cuts is Cuts.OTHER:
        trial.destination = list(enumerate(item for _, item in copy))
        _fill_destination(rng, theirs, [item for _, item in copy])
    else:
        trial.destination = _fill_as_source(rng, theirs, copy, source, cuts)
    for side, log in (("source", ours), ("destination", theirs)):
        if rng.random() < 0.35:
            log.delete_records(rng.randrange(log.log_end_offset + 1))
            trial.notes.append(f"retention at the {side} up to {log.log_start_offset}")
    trial.source_start = ours.log_start_offset
    trial.source = [each for each in source.placed if each[0] >= ours.log_start_offset]
    trial.destination = [each for each in trial.destination if each[0] >= theirs.log_start_offset]
    trial.report = _verified(brokers, topic, copy_name, committed)
    brokers.source.topics.delete(brokers.source.topics.topic(topic))
    brokers.destination.topics.delete(brokers.destination.topics.topic(copy_name))
    return trial


def _verified(brokers: TwoBrokers, topic: str, copy_name: str, committed: bool) -> PartitionReport:
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    source = replace(brokers.settings.source, isolation_level=level)
    (report,) = verify(
        source, brokers.settings.destination, {topic: copy_name}, group="none", patience_s=5.0
    ).partitions
    return report


def _trials(brokers: TwoBrokers, seeds: range, records: int) -> Iterator[Trial]:
    for seed in seeds:
        for cuts in Cuts:
            yield run_trial(brokers, seed, records=records, cuts=cuts)


def main() -> None:
    """Run trials, and report how many are wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--findings", metavar="FILE", help="write each report to this file")
    args = parser.parse_args()
    wrong = count = 0
    with (
        TwoBrokers.started() as brokers,
        Path(args.findings or "/dev/null").open("w", encoding="utf-8") as findings,
    ):
        for trial in _trials(brokers, range(args.first, args.end), args.records):
            count += 1
            complaint = trial.complaint()
            if complaint:
                wrong += 1
                print(f"{trial.cuts.value} {trial.seed}: {complaint}; {trial.notes}", flush=True)
            assert trial.report is not None
            faults = [str(fault) for fault in trial.faults]
            report = trial.report.to_json_object()
            json.dump({"complaint": complaint, "faults": faults, "report": report}, findings)
            findings.write("\n")
    print(f"{count} trials, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
