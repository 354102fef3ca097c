"""One trial: a topic, its copy, what is wrong with it, and the report of verify."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from shoal.client.config import IsolationLevel
from shoal.verify import Difference, Outcome, PartitionReport, verify
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.history import NOW_MS

from .cleaner import clean
from .copiers import Copier, Copy, copy_by_makers, copy_by_shoal, cut
from .faults import Fault, put_in
from .logs import Piece, Placed, lay, replaced, stored_records
from .source import SourceLog, fill, random_items
from .truth import Excuse, Explained, LogSide, Truth

__all__ = ["Trial", "run_trials"]

#: So few records, without doubles, may be left of a copy that some cannot be placed.
_FEW = 25

#: Copiers whose batches are encoded here, so that the destination may write its own times.
_OTHERS = (Copier.MIRROR_MAKER_2, Copier.EXACTLY_ONCE, Copier.CONFLUENT)

#: So many records that are once on each side show where a copy begins.
_PROOF = 16


@dataclass
class Trial:
    """
    One trial.

    Attributes:
        seed: Makes the trial.
        copier: The tool that made the copy.
        is_compacted: Whether the cleaner was at work on either side.
        level: The isolation level of the copy.
        notes: The properties of the trial, to understand a failure.
        faults: The changes to the copy.
        foreign: How many records of another writer are before the copy.
        has_own_times: Whether the destination writes its own times (LogAppendTime).

    """

    seed: int
    copier: Copier
    is_compacted: bool
    level: IsolationLevel
    topic: str
    copy_topic: str
    rng: random.Random
    source: SourceLog | None = None
    copied: list[Placed] = field(default_factory=list)
    behind: list[Placed] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    foreign: int = 0
    has_own_times: bool = False
    truth: Truth | None = None
    report: PartitionReport | None = None

    @property
    def details(self) -> str:
        """Everything that helps to understand a wrong trial."""
        assert self.report is not None
        kinds = "compacted" if self.is_compacted else "plain"
        faults = [f"{each.kind} at {each.source}" for each in self.faults]
        return (
            f"{self.seed} ({self.copier.value}, {kinds}, {self.level.name}): {'; '.join(self.notes)}; "
            f"faults {faults}; verify: {self.report.outcome.value}, {self.report.reason}, "
            f"{self.report.alignment}, {[str(each) for each in self.report.differences[:5]]}, "
            f"{[str(each) for each in self.report.not_compared[:3]]}"
        )

    @property
    def aborted(self) -> set[int]:
        """The offsets of the source's records in aborted transactions."""
        return self.source.aborted if self.source else set()

    # Judgement

    def complaint(self) -> str | None:
        """Return the error of the report; None if it is right."""
        assert self.report is not None
        assert self.truth is not None
        explained, outcome = self._explained(), self.report.outcome
        excuse = explained.excuse
        # After a fault, a few records in common at the edge may be an accident; and retention may leave
        # nothing, or too little, that both sides have.
        is_explained = explained.pairs > (len(self.theirs) // 2 if self.faults else 0)
        if outcome in (Outcome.EQUAL, Outcome.NOTHING):
            return None if excuse is Excuse.FULL else f"missed: equal, though excuse {excuse.name.lower()}"
        if outcome is Outcome.DIFFERENT:
            # Records of before the source's start would explain doubles, too. These are still doubles.
            is_right = bool(self.faults) and self._invented() is None
            if excuse is Excuse.NONE or is_right:
                return self._unnamed() or self._invented()
            return f"false alarm: different, though excuse {excuse.name.lower()}" if is_explained else None
        if self._repeats_itself:
            return None
        if excuse is Excuse.FULL:
            return "false alarm: not compared" if is_explained else None
        if excuse is Excuse.NONE:
            left = {item for offset, item in self.theirs if offset >= self.foreign}
            is_little = len(left) < _FEW or len(self.ours) < _FEW
            return None if is_little or self._has_nothing_in_common else f"missed: {self.report.reason}"
        return None

    @property
    def _repeats_itself(self) -> bool:
        """Whether neither a position nor enough records that are once on each side show the beginning."""
        assert self.truth is not None
        if self.truth.origin is not None:
            return False
        ours, theirs = (
            Counter(self._without_time(item) for _, item in side) for side in (self.ours, self.theirs)
        )
        return sum(count == 1 and theirs[item] == 1 for item, count in ours.items()) < _PROOF

    @property
    def _has_nothing_in_common(self) -> bool:
        """Whether not one record is on both sides: nothing shows that this is a copy of the topic."""
        return {item for _, item in self.ours}.isdisjoint(item for _, item in self.theirs)

    @property
    def ours(self) -> list[Placed]:
        assert self.truth is not None
        return self.truth.source.records

    @property
    def theirs(self) -> list[Placed]:
        assert self.truth is not None
        return self.truth.destination.records

    def _explained(self) -> Explained:
        assert self.truth is not None
        return Explained(Excuse.NONE, 0) if self._is_foreign_extra else self.truth.explain()

    @property
    def _is_foreign_extra(self) -> bool:
        """Whether nothing shows that another program wrote the first records: they are extra."""
        assert self.truth is not None
        return (
            self.foreign > 0
            and self.truth.origin is None
            and self.truth.source.start == 0
            and self.truth.destination.start < self.foreign
        )

    def _places(self) -> list[tuple[Fault, range, range]]:
        """Return the source offsets and the destination offsets at which each fault may be named."""
        offsets = {
            source: offset
            for piece in self.pieces
            for (source, _), offset in zip(piece.records, piece.offsets, strict=True)
            if source is not None
        }
        end = max((offset for piece in self.pieces for offset in piece.offsets), default=0) + 1
        found = []
        for fault in self.faults:
            behind = offsets.get(fault.before, end) if fault.before is not None else end
            own = offsets.get(fault.source) if fault.source is not None else None
            if own is None:
                before = [to for source, to in offsets.items() if fault.source and source < fault.source]
                own = max(before, default=0)
            if fault.kind == "swapped":
                # The other one is before it: each of the two may be the one that is not in order.
                own = max((to for to in offsets.values() if to < own), default=own)
            here = range(fault.source or 0, (fault.source or 0) + 1)
            found.append((fault, here, range(min(own, behind), max(own, behind) + 1)))
        return found

    def _unnamed(self) -> str | None:
        """Return the first fault that no difference names at its offset."""
        assert self.report is not None
        if self.report.differences_omitted:
            return None
        counts = Counter(self._without_time(item) for _, item in (*self.ours, *self.theirs))
        copies = Counter(self._without_time(item) for _, item in self.theirs)
        times = Counter((each.source, each.before) for each in self.faults)
        for fault, here, there in self._places():
            if times[fault.source, fault.before] > 1 or counts[self._without_time(fault.item)] > 2:
                continue  # the second may have undone the first; or which of several is missing is not known
            if fault.kind.startswith("doubled") and copies[self._without_time(fault.item)] < 2:
                continue  # another fault has removed or altered one of the two
            if fault.kind == "swapped" and self._is_beside_another(fault):
                continue
            if not self._is_visible(fault, here, there):
                continue
            # The cleaner may have left nothing of an altered record but its double.
            doubles = [range(at, at + 1) for at, item in self.theirs if item == fault.altered]
            if not any(
                _meet(source, here) or any(_meet(destination, each) for each in (there, *doubles))
                for source, destination in (
                    *((each.source, each.destination) for each in self.report.differences),
                    *((each.source, each.destination) for each in self.report.not_compared),
                )
            ):
                return f"not named: {fault}"
        return None

    def _without_time(self, item: Content) -> Content:
        """Return a record as it is known if its copy may have another time."""
        has_two_times = self.source is not None and self.source.has_two_times
        return item._replace(timestamp=0) if has_two_times or self.has_own_times else item

    def _is_beside_another(self, fault: Fault) -> bool:
        """Whether another fault may have removed one of two swapped records."""
        others = [each.source for each in self.faults if each is not fault and each.source is not None]
        return fault.source is None or any(abs(each - fault.source) < _FEW for each in others)

    def _is_visible(self, fault: Fault, here: range, there: range) -> bool:
        """Whether both sides still have the fault's neighbours, and enough else to find its place."""
        is_kept = self.is_compacted and self._has_altered(fault)
        if not is_kept and len(self.theirs) < 10 * len(self.faults):
            return False
        kept = [offset for offset, _ in self.ours]
        offsets = [offset for offset, _ in self.theirs]
        if fault.source not in kept or not offsets:
            return False
        if self.is_compacted and not any(offset in there for offset in offsets):
            return False
        is_within = offsets[0] + 1 < there.start and there.stop - 1 < offsets[-1]
        # Compaction may explain this one by itself, however many others are faults; but no record that is
        # altered if both sides still have it.
        return is_within and (is_kept or not self.is_compacted)

    def _has_altered(self, fault: Fault) -> bool:
        """Whether the destination has the altered record, with the key of the source's."""
        altered = fault.altered
        is_one = altered is not None and altered.key == fault.item.key
        return is_one and any(item == altered for _, item in self.theirs)

    def _has_keys_of_faults(self, difference: Difference) -> bool:
        """Whether the records of a difference may be those with keys of faults; a range may span others."""
        keys = set[bytes | None]().union(*(fault.keys for fault in self.faults))
        here = sum(offset in range(*difference.source) and item.key in keys for offset, item in self.ours)
        there = sum(
            offset in range(*difference.destination) and item.key in keys for offset, item in self.theirs
        )
        return max(here, there) >= difference.records

    def _invented(self) -> str | None:
        """Return the first difference that is at no fault's place."""
        assert self.report is not None
        assert self.truth is not None
        if self.report.reason or not self.theirs:
            return None
        places = self._places()
        counts = Counter(item for _, item in (*self.ours, *self.theirs))
        if max(counts.values()) > 2 + len({fault.change for fault in self.faults}):
            return None  # a topic that repeats itself has many right descriptions
        for each in self.report.differences:
            if self._is_foreign_extra and each.destination.start <= self.foreign:
                continue
            if self.is_compacted and self._has_keys_of_faults(each):
                continue  # a fault in a key's last record, or in its tombstone, shows at an earlier one
            if not any(
                _near(each.source, here) or _near(each.destination, there) for _, here, there in places
            ):
                return f"false alarm: {each} is at no fault"
        return None


def _meet(offsets: tuple[int, int], place: range) -> bool:
    return offsets[0] < max(place.stop, place.start + 1) and place.start < max(offsets[1], offsets[0] + 1)


def _near(offsets: tuple[int, int], place: range) -> bool:
    return _meet((offsets[0] - 1, offsets[1] + 1), place)


# Making trials


def run_trials(brokers: TwoBrokers, seeds: Sequence[int], *, records: int = 300) -> Iterator[Trial]:
    """Make trials, and let verify compare each: first all that `shoal mirror-maker` copies at once."""
    prepared = [_prepare(brokers, seed, records) for seed in seeds]
    for copier, level in (
        (copier, level) for copier in Copier if copier.is_maker for level in IsolationLevel
    ):
        trials = [each for each in prepared if each.copier is copier and each.level is level]
        copies = [Copy(each.topic, each.copy_topic, each.copied) for each in trials]
        for trial, pieces in zip(trials, copy_by_makers(brokers, copier, level, copies), strict=True):
            trial.pieces = pieces
    for trial in prepared:
        _finish(brokers, trial)
        brokers.source.topics.delete(brokers.source.topics.topic(trial.topic))
        brokers.destination.topics.delete(brokers.destination.topics.topic(trial.copy_topic))
        yield trial


def _prepare(brokers: TwoBrokers, seed: int, records: int) -> Trial:
    """Fill the source, and choose the records to copy."""
    rng = random.Random(seed)
    copier = list(Copier)[seed % len(Copier)]
    is_compacted = rng.random() < 0.4
    topic = f"trial-{seed}"
    copy_topic = topic if copier.is_maker or rng.random() < 0.5 else f"source.{topic}"
    log = brokers.source.create_topic(topic, 1).logs[0]
    brokers.destination.create_topic(copy_topic, 1)
    # The cleaner removes records of aborted transactions, which a reader of all has copied.
    level = IsolationLevel.READ_COMMITTED if is_compacted else rng.choice(list(IsolationLevel))
    found = random_items(rng, rng.randrange(1, records), is_compacted=is_compacted)
    trial = Trial(
        seed,
        copier,
        is_compacted,
        level,
        topic,
        copy_topic,
        rng,
        fill(rng, log, found, is_compacted=is_compacted, keeps_no_time=copier.keeps_create_time),
    )
    if trial.source is not None and trial.source.has_two_times:
        trial.notes.append("append times that are no create times")
    if trial.source is not None and trial.source.old_magics:
        trial.notes.append(f"messages of magic {sorted(trial.source.old_magics)}")
    if is_compacted and rng.random() < 0.4:
        trial.notes.append(f"source before: {clean(rng, brokers.source, topic, trial.aborted)}")
    # A choice of its own, so that earlier seeds make the same trials but for this.
    if copier in _OTHERS and not is_compacted and random.Random(f"own times {seed}").random() < 0.4:
        trial.has_own_times = trial.source is not None and not trial.source.has_two_times
        trial.notes.append("the destination writes its own times")
    trial.copied = _visible(brokers, trial)
    if not copier.is_maker and rng.random() < 0.3:
        start = rng.randrange(len(trial.copied) + 1)
        trial.copied = trial.copied[start:]
        trial.notes.append(f"later start, {start} records")
    if not copier.is_maker and rng.random() < 0.3:
        end = len(trial.copied) - rng.randrange(min(10, len(trial.copied) + 1))
        trial.notes.append(f"lag of {len(trial.copied) - end} records")
        trial.copied, trial.behind = trial.copied[:end], trial.copied[end:]
    return trial


def _visible(brokers: TwoBrokers, trial: Trial) -> list[Placed]:
    """Return the source's records that count."""
    aborted = trial.aborted if trial.level is IsolationLevel.READ_COMMITTED else ()
    as_appended = not trial.copier.keeps_create_time
    return stored_records(brokers.source.log(trial.topic), aborted, as_appended=as_appended)


def _copy(brokers: TwoBrokers, trial: Trial) -> None:
    rng = trial.rng
    if not trial.copier.is_maker and rng.random() < 0.2:
        trial.foreign = rng.randrange(1, 40)
        others = [Content(number, b"other %d" % number, b"writer") for number in range(trial.foreign)]
        found, _ = lay(cut(rng, Copier.CONFLUENT, [Placed(-1, each) for each in others]), 0)
        for batch in found:
            brokers.destination.log(trial.copy_topic).store(memoryview(batch))
        trial.notes.append(f"{trial.foreign} records of another writer")
    copy = Copy(trial.topic, trial.copy_topic, trial.copied, trial.behind)
    if trial.copier in (Copier.SHOAL, Copier.RECOMPRESSED):
        brokers = brokers if trial.level is IsolationLevel.READ_COMMITTED else brokers.read_uncommitted()
        is_recompressed = trial.copier is Copier.RECOMPRESSED
        trial.pieces = copy_by_shoal(rng, brokers, copy, is_recompressed=is_recompressed)
    elif not trial.copier.is_maker:
        trial.pieces = cut(rng, trial.copier, trial.copied)


def _finish(brokers: TwoBrokers, trial: Trial) -> None:
    """Copy, put faults in, let retention and the cleaner work, and verify."""
    rng = trial.rng
    _copy(brokers, trial)
    trial.pieces, trial.faults = put_in(rng, trial.pieces, rng.choice([0, 0, 0, 1, 1, 2, 3, 4, 5]))
    before = _stored_before(brokers, trial)
    if trial.has_own_times:
        trial.faults = [each for each in trial.faults if each.kind != "time"]  # nothing shows these
    found, end = lay(trial.pieces, trial.foreign, append_time=NOW_MS if trial.has_own_times else None)
    replaced(brokers.destination, trial.copy_topic, [*before, *found], end)
    for broker, topic, aborted in (
        (brokers.source, trial.topic, trial.aborted),
        (brokers.destination, trial.copy_topic, set[int]()),
    ):
        # A choice of its own, as above: the policy may be another one since the log was cleaned.
        if trial.is_compacted and random.Random(f"policy {trial.seed} {broker.cluster_id}").random() < 0.8:
            # Retention may delete of it, too.
            broker.topics.alter(broker.topics.topic(topic), {"cleanup.policy": "compact,delete"})
        if trial.is_compacted and rng.random() < 0.6:
            copied = trial.copied[-1].offset + 1 if trial.copied else 0
            up_to = copied if broker is brokers.source else None
            trial.notes.append(f"{broker.cluster_id}: {clean(rng, broker, topic, aborted, up_to)}")
        if rng.random() < 0.3:
            log = broker.log(topic)
            log.delete_records(rng.randrange(log.log_end_offset + 1))
            trial.notes.append(f"retention at the {broker.cluster_id} up to {log.log_start_offset}")
    _verify(brokers, trial)


def _stored_before(brokers: TwoBrokers, trial: Trial) -> list[bytes]:
    """Return the batches of another writer, before the copy."""
    log = brokers.destination.log(trial.copy_topic)
    return [bytes(each.view) for each in batches_of(log) if each.header.base_offset < trial.foreign]


def _verify(brokers: TwoBrokers, trial: Trial) -> None:
    source = replace(brokers.settings.source, isolation_level=trial.level)
    has_position = trial.copier is Copier.SHOAL and bool(trial.copied) and trial.rng.random() < 0.5
    group = brokers.settings.group if has_position else "none"
    (trial.report,) = verify(
        source, brokers.settings.destination, {trial.topic: trial.copy_topic}, group=group, patience_s=5.0
    ).partitions
    ours, theirs = brokers.source.log(trial.topic), brokers.destination.log(trial.copy_topic)
    is_committed = trial.level is IsolationLevel.READ_COMMITTED
    here, there = _visible(brokers, trial), stored_records(theirs)
    if trial.has_own_times:
        here, there = (
            [each._replace(item=each.item._replace(timestamp=0)) for each in side] for side in (here, there)
        )
    trial.truth = Truth(
        LogSide.of(ours, here, trial.aborted if is_committed else set()), LogSide.of(theirs, there, set())
    )
    copied = {source for piece in trial.pieces for source, _ in piece.records}
    trial.truth.source.copied_until = next(
        (each.offset for each in trial.behind if each.offset not in copied), None
    )
    if has_position:
        trial.notes.append("with a position")
        position = brokers.position(trial.topic)
        trial.truth.mirrored = position.source_offset
        trial.truth.origin = position.origin
