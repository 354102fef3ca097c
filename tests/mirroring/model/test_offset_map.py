"""The offset map against brute force: logs of all kinds, each offset, both directions, every thinning."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import pytest

from shoal.mirroring.model import offset_map
from shoal.mirroring.model.counting import Piece
from shoal.mirroring.model.offset_map import Exactness, Milestone, OffsetMap, Question, Stretch, Translation
from tests.nights import night_seeds
from tests.world.maps import translate

#: Both limits of milestones: thinned to nothing, to a few, and as the product does.
LIMITS = (2, 3, 8, 40)

#: Those of each run: more find the same. The nights have :data:`MORE_SEEDS`.
SEEDS = range(20)
MORE_SEEDS = night_seeds(180)

#: Limits and seeds of each run and of the nights.
LOGS = [
    pytest.param(most, seeds, marks=marks, id=f"{most}-{name}")
    for name, seeds, marks in (("some", SEEDS, ()), ("more", MORE_SEEDS, pytest.mark.long))
    for most in LIMITS
]


@dataclass
class Mirror:
    """
    A source log and its copy.

    Attributes:
        offsets: The source offsets up to the end: True for a record that the mirror copies.
        landed: The destination offsets of each mirrored source offset, by the present source log.
        compacted: Source offsets whose records are gone since.
        skipped: Source offsets whose records the destination refused.
        start: The source's log start.
        position: The next source offset to mirror.
        end: The destination's log end.
        has_other_writers: Whether records of unknown outcome are copied again.
        written: The destination offsets of the present writer's records.

    """

    rng: random.Random
    map: OffsetMap
    offsets: list[bool] = field(default_factory=list)
    landed: dict[int, set[int]] = field(default_factory=dict)
    compacted: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    start: int = 0
    position: int = 0
    end: int = 0
    has_other_writers: bool = False
    written: set[int] = field(default_factory=set)

    def write(self) -> None:
        share = self.rng.choice((0.0, 0.1, 0.5, 1.0, 1.0, 1.0))
        self.offsets += [self.rng.random() < share for _ in range(self.rng.randrange(1, 30))]

    def copy(self) -> None:
        until = self.rng.randint(self.position, len(self.offsets))
        self.written |= self._land(self.position, until)
        self.position = until
        self.map = self.map.reached(self.position, self.end)

    def _land(self, first: int, until: int) -> set[int]:
        """Let the records of a range land; return their places."""
        before = self.end
        for offset in range(first, until):
            if self.offsets[offset] and offset not in self.compacted | self.skipped:
                self.landed.setdefault(offset, set()).add(self.end)
                self.end += 1
        return set(range(before, self.end))

    def die(self) -> None:
        """A task with other writers dies. The next one copies the records of unknown outcome again."""
        self._land(self.position, self.rng.randint(self.position, len(self.offsets)))
        self.map = self.map.reached(self.position, self.end, Stretch.REPEATED)
        self.written = set()

    def land_late(self) -> None:
        """A request of a dead process lands behind what its successor has written."""
        first = self.rng.randint(min(self.start, self.position), self.position)
        self.map = self.map.reached(self.position, self.end)
        self._land(first, min(first + self.rng.randrange(9), len(self.offsets)))
        self.map = self.map.reached(self.position, self.end, Stretch.REPEATED)

    def compact(self) -> None:
        self.compacted |= {each for each in range(len(self.offsets)) if self.rng.random() < 0.1}

    def retain(self) -> None:
        self.start = self.rng.randint(self.start, max(self.start, self.position))

    def meet_foreign_records(self) -> None:
        self.map = self.map.reached(self.position, self.end)
        self.end += self.rng.randrange(1, 9)
        self.map = self.map.reached(self.position, self.end, Stretch.BROKEN)

    def skip_what_is_refused(self) -> None:
        self.map = self.map.reached(self.position, self.end)
        behind = self.rng.randint(self.position, len(self.offsets))
        self.skipped |= set(range(self.position, behind))
        self.position = behind
        self.map = self.map.reached(self.position, self.end, Stretch.BROKEN)

    def lose_what_is_not_mirrored(self) -> None:
        """Retention overtakes the mirror."""
        self.start = self.rng.randint(self.position, len(self.offsets))
        if self.start > self.position:
            self.map = self.map.reached(self.position, self.end)
            self.position = self.start
            self.map = self.map.reached(self.position, self.end, Stretch.BROKEN)

    def lose_the_tail_of_the_source(self) -> None:
        """The source loses records, and others get their offsets."""
        end = self.rng.randint(max(self.start, len(self.offsets) - 20), len(self.offsets))
        del self.offsets[end:]
        self.compacted -= set(range(end, end + 20))
        self.skipped -= set(range(end, end + 20))
        self.landed = {each: places for each, places in self.landed.items() if each < end}
        if end < self.position:
            self.map = self.map.reached(self.position, self.end).cut(end, self.end)
            self.map = self.map.reached(end, self.end, Stretch.BROKEN)
            self.position = end

    def lose_the_tail_of_the_copy(self) -> None:
        """The destination loses records, and the mirror copies them again."""
        self.end -= self.rng.randint(0, min(self.end, 20))
        self.written &= set(range(self.end))
        left = {each: {at for at in places if at < self.end} for each, places in self.landed.items()}
        self.landed = {each: left[each] for each in sorted(left) if left[each]}
        ours = [each for each, places in self.landed.items() if not places.isdisjoint(self.written)]
        self.position = ours[-1] + 1 if ours else self.start
        if self.has_other_writers and not ours:
            self.map = OffsetMap.begun_at(self.position, self.end, is_whole=False, is_repeated=True)
        else:
            unaccounted = Stretch.REPEATED if self.has_other_writers else Stretch.BROKEN
            self.map = self.map.cut(self.position, self.end).reached(self.position, self.end, unaccounted)
        self.skipped -= set(range(self.position, len(self.offsets)))

    @cached_property
    def pieces(self) -> list[Piece]:
        """The source after all events."""
        there = (each for each in range(self.start, len(self.offsets)) if each not in self.compacted)
        return [Piece(each, each + 1, self.offsets[each], is_complete=True) for each in there]

    def translated(self, offset: int, *, is_source: bool) -> Translation:
        return translate(self.map, Question(offset, is_source), self.pieces, self.start)

    def check(self, found: Translation, wanted: set[int], read: list[int]) -> None:
        """
        Compare the records that a consumer reads at the other cluster with those that it has not read.

        With other writers, a record may be only where it is copied no more, since the source lost it.
        """
        present = (wanted - self.compacted - self.skipped) & set(range(self.start, self.position))
        assert set(read) >= (present if self.has_other_writers else wanted)
        if found.exactness is Exactness.EXACT or not (
            self.has_other_writers or found.exactness is Exactness.AT_LEAST
        ):
            assert sorted(read) == sorted(wanted & set(read))


def mirrored(seed: int, *, in_peace: bool = False, with_other_writers: bool = False) -> Mirror:
    rng = random.Random(seed)
    mirror = Mirror(rng, OffsetMap((Milestone(0, 0),)), has_other_writers=with_other_writers)
    events = [mirror.write, mirror.copy] * 5
    if not in_peace:
        events += [
            mirror.compact,
            mirror.retain,
            mirror.meet_foreign_records,
            mirror.skip_what_is_refused,
            mirror.lose_what_is_not_mirrored,
            mirror.lose_the_tail_of_the_source,
            mirror.lose_the_tail_of_the_copy,
        ]
    if with_other_writers:
        events += [mirror.die, mirror.land_late]
    for _ in range(rng.randrange(1, 60)):
        rng.choice(events)()
    return mirror


@pytest.mark.parametrize("with_other_writers", [False, True])
@pytest.mark.parametrize(("most", "seeds"), LOGS)
def test_exact_translation_of_random_logs_is_right_and_no_other_skips_a_record(
    most: int, seeds: range, with_other_writers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_map, "MOST_MILESTONES", most)
    seen = dict.fromkeys(Exactness, 0)
    for seed in seeds:
        mirror = mirrored(seed, with_other_writers=with_other_writers)
        stored = json.loads(json.dumps(mirror.map.to_json_object()))
        assert OffsetMap.from_json_object(stored) == mirror.map
        assert len(mirror.map.milestones) <= most
        for offset in range(len(mirror.offsets) + 2):
            found = mirror.translated(offset, is_source=True)
            seen[found.exactness] += 1
            wanted = {each for each in mirror.landed if each >= offset}
            read = [each for each in mirror.landed for at in mirror.landed[each] if at >= found.offset]
            mirror.check(found, wanted, read)
            assert (found.exactness is Exactness.AHEAD) == (offset > mirror.position)
    assert all(seen.values())


@pytest.mark.parametrize("with_other_writers", [False, True])
@pytest.mark.parametrize(("most", "seeds"), LOGS)
def test_destination_offset_of_random_logs_leads_back_without_a_gap_or_a_double(
    most: int, seeds: range, with_other_writers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_map, "MOST_MILESTONES", most)
    for seed in seeds:
        mirror = mirrored(seed, with_other_writers=with_other_writers)
        for offset in range(mirror.end + 2):
            found = mirror.translated(offset, is_source=False)
            wanted = {each for each, places in mirror.landed.items() if min(places) >= offset}
            mirror.check(found, wanted, [each for each in mirror.landed if each >= found.offset])


@pytest.mark.parametrize(("most", "seeds"), LOGS)
def test_translation_without_compaction_retention_and_incidents_is_always_exact(
    most: int, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_map, "MOST_MILESTONES", most)
    for seed in seeds:
        mirror = mirrored(seed, in_peace=True)
        there = [mirror.translated(each, is_source=True) for each in range(mirror.position + 1)]
        back = [mirror.translated(each, is_source=False) for each in range(mirror.end + 1)]
        assert {each.exactness for each in there + back} == {Exactness.EXACT}


def test_map_of_equal_logs_asks_for_nothing_and_keeps_two_milestones() -> None:
    whole = OffsetMap((Milestone(5, 0),))
    for source in range(6, 5000, 7):
        whole = whole.reached(source, source - 5)

    assert whole.milestones == (Milestone(5, 0), Milestone(4997, 4992))
    assert whole.translate(Question(1234, is_source=True)) == (1229, Exactness.EXACT)
    assert whole.translate(Question(1229, is_source=False)) == (1234, Exactness.EXACT)


def test_offset_before_the_beginning_of_a_mirror_is_that_of_the_beginning() -> None:
    before = Question(3, is_source=True)
    assert OffsetMap((Milestone(5, 0),)).translate(before) == (0, Exactness.EXACT)
    torn = OffsetMap((Milestone(5, 9),), is_whole=False)
    assert torn.translate(before) == (0, Exactness.AT_LEAST)


def test_map_of_many_transactions_is_bounded_and_dense_near_the_position() -> None:
    thinned = OffsetMap((Milestone(0, 0),))
    for number in range(1, 5_000):
        thinned = thinned.reached(number * 11, number * 10)

    assert len(thinned.milestones) == 40
    assert len(json.dumps(thinned.to_json_object(), separators=(",", ":"))) < 800
    distances = [thinned.milestones[-1].source - each.source for each in thinned.milestones]
    assert distances[-2] == 11
    assert all(far <= 4 * near + 44 for far, near in pairwise(distances))


def test_gap_before_a_change_of_the_level_is_not_counted_if_the_map_is_thinned() -> None:
    """Readers of the new level may see records in the gap."""
    found = OffsetMap.begun_at(0, 0, is_whole=True)
    for source, destination in [(10, 10), (15, 10), (25, 20)]:
        found = found.reached(source, destination, Stretch.KNOWN)
    for most in (2, 3, 4):
        thinned = found.counted_otherwise().with_at_most(most)
        gaps = [
            end
            for begin, end in pairwise(thinned.milestones)
            if end.source - begin.source != end.destination - begin.destination
        ]
        assert {each.stretch for each in gaps} == {Stretch.BROKEN}, most


def test_cut_map_forgets_the_milestones_that_a_side_lost() -> None:
    before = OffsetMap((Milestone(0, 0), Milestone(10, 8), Milestone(20, 16)))

    assert before.cut(15, 12).milestones == (Milestone(0, 0), Milestone(10, 8))
    assert OffsetMap((Milestone(2, 2), Milestone(9, 9))).cut(7, 5).milestones[1:] == (Milestone(5, 5),)
    assert before.cut(0, 0).milestones == (Milestone(0, 0),)
    assert not OffsetMap((Milestone(5, 5),)).cut(3, 3).is_whole
