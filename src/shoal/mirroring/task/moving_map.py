"""
The map of a partition while a worker copies it: what is queued adds runs, and what lands moves the position.

A topic with few records moves the position for every record. Between two commits it is a few numbers, and the
header of the last batch. To make a :class:`MirrorPosition` for each record, with a fingerprint of that batch,
took a tenth of the copying's CPU.

A batch may go out only if each map that the group may hold leads to its records: the one that was committed
last, and those whose commit has an unknown outcome. So whichever of them the next task finds, it looks up the
right place (docs/resume-protocol.md, PLAN and DOUBT).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

from ...records import RecordBatch, fingerprint, read_header
from ..model.offset_map import MOST_EDGES
from ..model.position import MirrorPosition, ProducerIdentity
from ..model.runs import Run, are_alike, edges_of, run_at

__all__ = ["Doubt", "LandedEnd", "MovingMap"]

#: The most runs ahead in a commit: one has six to nine characters of its metadata. A batch may add a hundred
#: more. The next commit has the others.
_MOST_RUNS = 200


class LandedEnd(NamedTuple):
    """
    The end of an acknowledged batch.

    Attributes:
        source_offset: The next source offset.
        records_end: The source offset behind the batch's last record; all up to the next one is dealt with.
        destination_offset: The next destination offset.
        header: The batch's header; its bytes are its own.
        source_leader_epoch: The batch's leader epoch at the source.

    """

    source_offset: int
    records_end: int
    destination_offset: int
    header: bytes
    source_leader_epoch: int


class Doubt(NamedTuple):
    """
    A map whose commit has an unknown outcome.

    Attributes:
        generation: The number of the generation that sent it; see :attr:`.Control.generation`. A later one
            refuses it.

    """

    position: MirrorPosition
    generation: int


class MovingMap:
    """
    The map of one partition.

    Attributes:
        source_offset: The next source offset to mirror; -1 before the first alignment.
        destination_offset: The destination offset behind the last acknowledged record; -1 before that.
        committed: The map that was committed last; None if that is not known.
        doubts: The maps that may still replace it.
        most_runs: How many runs may be ahead.
        leader_epoch: The epoch of the source's leader. Records whose batches have none count as of this one:
            should the leader's log be cut, it ends before them.

    """

    __slots__ = (
        "_edges",
        "_has_moved",
        "_landed",
        "_made",
        "_plan",
        "_source_leader_epoch",
        "committed",
        "destination_offset",
        "doubts",
        "leader_epoch",
        "most_runs",
        "source_offset",
    )

    def __init__(self) -> None:
        self.source_offset = -1
        self.committed: MirrorPosition | None = None
        self.doubts: list[Doubt] = []
        self.most_runs = _MOST_RUNS
        self.leader_epoch = -1
        self._made: MirrorPosition | None = None
        self._has_moved = False
        self._landed: LandedEnd | None = None
        self.destination_offset = -1
        self._source_leader_epoch = -1
        self._plan: deque[Run] = deque()
        self._edges: deque[tuple[int, int]] = deque(maxlen=MOST_EDGES)

    def __bool__(self) -> bool:
        """Whether there is a position."""
        return self._made is not None

    @property
    def identity(self) -> ProducerIdentity:
        """The producer that writes from the position on."""
        assert self._made is not None, "it is aligned"
        return self._made.identity

    @property
    def source_leader_epoch(self) -> int:
        """The source's leader epoch of the record before the position."""
        return self._source_leader_epoch

    def put(self, position: MirrorPosition) -> None:
        """Go on from a position."""
        self._made = position
        self._has_moved = False
        self._landed = None
        self._edges.clear()
        self._plan.clear()
        self.source_offset = position.source_offset
        self.destination_offset = position.destination_offset
        self._source_leader_epoch = position.source_leader_epoch
        self._plan.extend(position.plan)

    # Ahead

    @property
    def _here(self) -> Run:
        return Run(self.destination_offset, self.source_offset, self._source_leader_epoch)

    @property
    def has_room(self) -> bool:
        """Whether a commit's metadata have room for one more run."""
        return len(self._plan) < self.most_runs

    def lead_to(self, run: Run, end: int) -> None:
        """
        Let the map lead to queued records that follow one another without a gap.

        If it leads elsewhere, a run begins there. The runs behind it are void: the source is cut otherwise
        now.

        Args:
            run: The run that the records are.
            end: The destination offset behind the last of them.

        """
        plan = self._plan
        if run.leader_epoch < 0:
            run = run._replace(leader_epoch=self.leader_epoch)
        if not plan:
            before = self._here
        elif plan[-1].destination <= run.destination:
            before = plan[-1]
        else:
            before = run_at(self._here, list(plan), run.destination)
            self._drop_others_before(end, behind=before)
        if before.source_at(run.destination) != run.source or before.leader_epoch != run.leader_epoch:
            while plan and plan[-1].destination >= run.destination:
                plan.pop()
            plan.append(run)
            self._has_moved = True

    def _drop_others_before(self, end: int, *, behind: Run) -> None:
        """Drop the runs from the first one on that begins inside of records that follow one another."""
        plan = self._plan
        if not any(behind.destination < run.destination < end for run in plan):
            return
        while plan and plan[-1].destination > behind.destination:
            plan.pop()
        self._has_moved = True

    def is_committed_up_to(self, begin: int, end: int, generation: int) -> bool:
        """
        Whether each map that the group may hold leads to the records in a range of destination offsets.

        Args:
            begin: The first offset that may go out now.
            end: The offset behind the last one.
            generation: The number of the present generation.

        """
        self.end_doubts(generation)
        in_force = [self.committed, *(each.position for each in self.doubts)]
        ahead = self._here, list(self._plan)
        return all(
            each is not None
            and each.identity == self.identity
            and each.destination_offset <= begin
            and are_alike((each.here, each.plan), ahead, begin, end)
            for each in in_force
        )

    def doubt(self, position: MirrorPosition, generation: int) -> None:
        """Keep a map whose commit has an unknown outcome; once, if it was sent again."""
        self.doubts = [each for each in self.doubts if each.position != position]
        self.doubts.append(Doubt(position, generation))

    def end_doubts(self, generation: int) -> None:
        """Forget the commits that the present generation refuses."""
        if self.doubts:
            self.doubts = [each for each in self.doubts if each.generation == generation]

    # Behind

    def land(self, end: LandedEnd) -> None:
        """Move behind an acknowledged batch."""
        passed: list[Run] = []
        while self._plan and self._plan[0].destination < end.destination_offset:
            passed.append(self._plan.popleft())
        if passed:
            self._edges.extend(edges_of(self._here, passed))
        if end.source_offset > end.records_end:
            self._edges.append((end.records_end, end.destination_offset))
            self._edges.append((end.source_offset, end.destination_offset))
        self._landed = end
        self._has_moved = True
        self.source_offset = end.source_offset
        self.destination_offset = end.destination_offset
        self._source_leader_epoch = self._known_epoch(end.source_leader_epoch)

    def pass_over(self, source_offset: int, *, source_leader_epoch: int) -> None:
        """Move behind source offsets of which nothing is left to send, and after this leader epoch."""
        self._has_moved = True
        has_passed = source_offset > self.source_offset
        if has_passed:
            self._edges.append((self.source_offset, self.destination_offset))
            self._edges.append((source_offset, self.destination_offset))
            self.source_offset = source_offset
        if has_passed or source_leader_epoch >= 0:
            self._source_leader_epoch = self._known_epoch(source_leader_epoch)

    def _known_epoch(self, leader_epoch: int) -> int:
        return leader_epoch if leader_epoch >= 0 else self.leader_epoch

    def get(self) -> MirrorPosition | None:
        """Return the position as of now; None before the first alignment."""
        if self._has_moved and self._made is not None:
            made = self._made
            if self._edges:
                made = replace(made, milestones=made.offsets.passed(list(self._edges)))
                self._edges.clear()
            made = replace(
                made,
                source_offset=self.source_offset,
                destination_offset=self.destination_offset,
                source_leader_epoch=self._source_leader_epoch,
                plan=tuple(self._plan),
            )
            if self._landed is not None:
                made = replace(made, last_batch=_crc(self._landed.header))
                self._landed = None
            self._made = made
            self._has_moved = False
        return self._made


def _crc(header: bytes) -> int:
    view = memoryview(header)
    return fingerprint(RecordBatch(read_header(view), view)).crc
