"""
Which task has which partition: the rules that ``tests/model/assignment.py`` searches.

A partition is in one document at a time. It goes into another one when the former task has reported that it
left, has closed its connection, or has no lease any more. The next task resumes by the group's position.
If the former one does not know the outcome of all its commits, or did not leave in good order, one may take
effect late. The partition is *unsettled* then, and waits for a new generation of the group, which refuses
that commit (FENCE in docs/architecture.md).

A lease counts from a reading of the task's own clock that the driver had before. So it has run out for the
task when it has for the driver, which counts from the time at which it received that reading. A task that
does not leave partitions in time gets no lease any more. The driver closes its connection when the last one
has run out. Then the task is an orphan: it writes and commits nothing.
"""

from __future__ import annotations

import itertools
import math
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from ...client.coordinator import MemberId
from ...net.listener import hang_up
from ...timing import Timing
from ...topic_partition import TopicPartition
from ..assignment import Wanted, share_out
from ..model.incidents import IncidentKind
from ..model.reports import Assigned, Left
from .protocol import lease_clock_s

__all__ = ["Assignment", "Member", "Partitions"]


class Member:
    """
    The driver's state of one attempt of a task.

    Attributes:
        job: The number of the job that the task belongs to.
        attempt: The number of the attempt: Spark's, from 0.
        clock_s: The newest reading of the task's own clock that the driver has received.
        partitions: Its document, without what only steers it.
        leaving: The partitions that it was asked to leave: the entry, and since when.
        is_over: Whether the attempt has closed the connection. It writes nothing more then.
        is_cut: Whether the driver has closed the connection. The task may still have a lease.
        ends: Whether the driver has asked this task alone to end.
        waits: Whether a worker of the task waits for bytes of the mirror's limit.
        weight: Its weight when the limit is shared out.
        bytes_per_s: Its part of the limit; 0 before it has one.

    """

    def __init__(self, connection: socket.socket, job: int = 0, attempt: int = 0) -> None:
        self.connection = connection
        self.job = job
        self.attempt = attempt
        self.clock_s = 0.0
        self.partitions: dict[TopicPartition, Assigned] = {}
        self.leaving: dict[TopicPartition, tuple[Assigned, float]] = {}
        self.membership = MemberId()
        self.is_over = False
        self.is_cut = False
        self.ends = False
        self.waits = False
        self.weight = 1.0
        self.bytes_per_s = 0
        self._counts_from = 0.0
        #: When the oldest line was sent that may not be answered; None if all are.
        self._unanswered_since: float | None = None
        self._lease_until = -math.inf

    def hear(self, clock_s: float, *, waits: bool = False) -> None:
        """Note that a line came, with a reading of the task's clock, and whether it waits for bytes."""
        self._unanswered_since = None
        self.clock_s = clock_s
        self.waits = waits
        self._counts_from = lease_clock_s()

    def give_lease(self, until: float) -> float:
        """Give the lease up to a time of the driver's clock; return its seconds from the task's reading."""
        lease_s = max(0.0, until - lease_clock_s())
        self._lease_until = max(self._lease_until, min(until, self._counts_from + lease_s))
        return lease_s

    @property
    def may_write(self) -> bool:
        """Whether the attempt may still write, if it has received every lease."""
        return not self.is_over and lease_clock_s() < self._lease_until

    def note_sent(self) -> None:
        """Note that a line was sent, which the task answers at once."""
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()

    @property
    def silent_s(self) -> float:
        """The seconds for which it has not answered a line."""
        return 0.0 if self._unanswered_since is None else time.monotonic() - self._unanswered_since

    @property
    def overdue_s(self) -> float:
        """The longest time for which it has not left a partition that it was asked to leave."""
        return max((time.monotonic() - since for _, since in self.leaving.values()), default=0.0)

    def cut(self) -> None:
        """Close the connection from the driver's side."""
        self.is_cut = True
        hang_up(self.connection)

    def ask_to_leave(self, partition: TopicPartition) -> None:
        """Take a partition out of the document."""
        self.leaving[partition] = self.partitions.pop(partition), time.monotonic()

    def leave(self, partition: TopicPartition, entry: int) -> Assigned | None:
        """Note that it writes no more by an entry; return the entry, or None if it does not have that."""
        assigned, asked = self.partitions.get(partition), self.leaving.get(partition)
        if assigned is not None and assigned.entry == entry:
            return self.partitions.pop(partition)
        if asked is not None and asked[0].entry == entry:
            return self.leaving.pop(partition)[0]
        return None


class Partitions(Protocol):
    """The driver's knowledge of partitions when it gives them to a task."""

    def takeable(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that a task may take now: neither stopped nor revoked."""

    def in_trouble(self) -> Mapping[TopicPartition, str]:
        """Return the partitions that wait, with the reason that they reported last."""

    def accepted(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, IncidentKind]:
        """Return the kinds of incidents that an operator has accepted once, of some partitions."""


class Assignment:
    """
    The documents of all tasks. Not thread-safe: the control server holds its lock.

    Attributes:
        members: The tasks that are connected.
        membership: The mirror's own member of its group.
        done: The partitions of which everything up to an end is copied, with that end.
        lease_s: The length of a lease.

    """

    def __init__(self, partitions: Partitions, timing: Timing) -> None:
        self._partitions = partitions
        self._timing = timing
        self.members: set[Member] = set()
        self.membership = MemberId()
        self.done: dict[TopicPartition, int] = {}
        self.lease_s = 0.0
        #: Whether the group refuses late commits of a former generation.
        self.has_generations = False
        #: Members without a connection that still have partitions.
        self._former: set[Member] = set()
        self._wanted: Mapping[TopicPartition, Wanted] = {}
        self._holders: dict[TopicPartition, Member] = {}
        self._desired: dict[TopicPartition, Member] = {}
        self._all_are_held = False
        self._is_stale = False
        self._recalled: set[TopicPartition] = set()
        self._unsettled: dict[TopicPartition, MemberId] = {}
        self._entries = itertools.count(1)
        #: The members whose documents have changed since they were sent.
        self._changed: set[Member] = set()
        self._expected = 0
        self._gathers_until = 0.0

    # The tasks

    def expect(self, tasks: int) -> None:
        """Wait a moment for so many tasks that start together, before the first of them gets partitions."""
        self._expected, self._gathers_until = len(self.members) + tasks, 0.0

    def join(self, member: Member) -> None:
        """Add a task."""
        if self._expected and not self._gathers_until:
            self._gathers_until = time.monotonic() + self._timing.gathering_s
        self.members.add(member)
        self._is_stale = True

    def end(self, member: Member) -> None:
        """Give a task nothing more: it was asked to end."""
        member.ends = True
        self._is_stale = True

    def part(self, member: Member) -> None:
        """Remove a task whose connection has ended."""
        if member in self.members:
            self.members.discard(member)
            self._former.add(member)
            self._is_stale = True

    def leave(self, member: Member, leaves: Mapping[TopicPartition, Left]) -> None:
        """Note that a task writes partitions no more."""
        for partition, left in leaves.items():
            entry = member.leave(partition, left.entry)
            if entry is None:
                continue  # it is about an entry that another task has taken since
            self._changed.add(member)
            del self._holders[partition]
            self._unsettled.pop(partition, None)
            if not left.is_settled:
                self._unsettled[partition] = self.membership
            self._recalled.discard(partition)
            if left.is_done:
                self.done[partition] = entry.range.end_offset
            self._is_stale = True

    # The partitions

    def want(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        """Set the partitions that tasks are to copy."""
        self._wanted = wanted
        self._is_stale = True

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """Want partitions no more."""
        gone = frozenset(partitions)
        self.want({each: wanted for each, wanted in self._wanted.items() if each not in gone})

    def recall(self, partitions: Iterable[TopicPartition]) -> None:
        """Have partitions aligned by another task, or by the same one once it has left them."""
        for partition in partitions:
            if partition in self._holders:
                self._recalled.add(partition)
        self._is_stale = True

    def holders(self, partitions: Iterable[TopicPartition]) -> set[Member]:
        """Return the tasks that may still write some of these partitions."""
        return {self._holders[each] for each in partitions if each in self._holders}

    @property
    def is_done(self) -> bool:
        """Whether all wanted partitions are copied up to their ends."""
        return all(map(self._is_done, self._wanted))

    def _is_done(self, partition: TopicPartition) -> bool:
        """Whether a wanted partition is copied up to its end, which may have grown."""
        return self.done.get(partition, -1) >= self._wanted[partition].range.end_offset

    @property
    def needs_generation(self) -> bool:
        """Whether a partition that a task could take waits for a new generation."""
        waits = any(self._is_unsettled(each) for each in self._unsettled if each in self._wanted)
        return waits and bool(self._able)

    # Documents

    def converge(self, *, may_grant: bool = True) -> set[Member]:
        """
        Bring the documents closer to what is wanted; return the tasks whose document has changed.

        Args:
            may_grant: Whether the mirror has its place in the group, so that a task may begin.

        """
        self._lose()
        self._free()
        if self._is_stale and not self._gathers:
            self._ask()
        if may_grant:
            self._grant()
        changed, self._changed = self._changed & self.members, set()
        return changed

    @property
    def _gathers(self) -> bool:
        if self._expected and len(self.members) < self._expected:
            return time.monotonic() < self._gathers_until
        self._expected = 0
        return False

    @property
    def _able(self) -> list[Member]:
        staying = [each for each in self.members if not each.ends and not each.is_cut]
        if not self.lease_s:
            return staying
        return [each for each in staying if each.silent_s < self.lease_s and not self._is_late(each)]

    def _is_late(self, member: Member) -> bool:
        return member.overdue_s > self._timing.leaving_patience_s

    def gets_lease(self, member: Member) -> bool:
        """Whether a task gets leases: not if others wait for partitions that it does not leave in time."""
        return not self._is_late(member) or not self._able

    def _lose(self) -> None:
        """Cut the tasks off that have no lease any more, if another one can take their partitions."""
        if not self.lease_s or not any(self._able):
            return
        for each in list(self.members):
            is_lost = each.silent_s >= self.lease_s or self._is_late(each)
            if is_lost and not each.may_write and not each.is_cut and (each.partitions or each.leaving):
                each.cut()
                self.part(each)

    def _free(self) -> None:
        """Take the partitions of tasks that can write no more."""
        for member in [each for each in self._former if not each.may_write]:
            self._former.discard(member)
            for partition in (*member.partitions, *member.leaving):
                del self._holders[partition]
                self._recalled.discard(partition)
                self._unsettled[partition] = self.membership
            member.partitions.clear()
            member.leaving.clear()
            self._is_stale = True

    def _ask(self) -> None:
        """Decide which task should have each partition, and ask others to leave it."""
        able = self._able
        if not able:
            return
        self._is_stale = False
        wanted = {each: wanted for each, wanted in self._wanted.items() if not self._is_done(each)}
        self._desired = share_out(wanted, able, self._holders)
        self._all_are_held = False
        # An alignment may take long, and would begin again in another task.
        for partition in self._partitions.in_trouble():
            if partition in wanted and (holder := self._holders.get(partition)) in able:
                self._desired[partition] = holder
        for partition, member in self._holders.items():
            if partition not in member.partitions or member.is_cut:
                continue
            leaves = self._desired.get(partition) is not member or partition in self._recalled
            if leaves or self._has_grown(member.partitions[partition]):
                member.ask_to_leave(partition)
                self._changed.add(member)

    def _has_grown(self, entry: Assigned) -> bool:
        """Whether the end of a partition was set later since a task got the entry."""
        wanted = self._wanted.get(entry.range.source)
        return wanted is not None and wanted.range.end_offset > entry.range.end_offset

    def _grant(self) -> None:
        """Give partitions that no task has to those that should have them."""
        if self._all_are_held and not self._is_stale:
            return  # of ten thousand partitions none may be without a task for hours
        without = [each for each in self._desired if each not in self._holders]
        self._all_are_held = not without
        able = set(self._able) if without else set()
        free = [each for each in without if self._desired[each] in able and not self._is_unsettled(each)]
        free = self._partitions.takeable(free) if free else []
        if not free:
            return
        in_trouble, accepted = self._partitions.in_trouble(), self._partitions.accepted(free)
        for partition in free:
            member = self._desired[partition]
            self._holders[partition] = member
            self._unsettled.pop(partition, None)
            member.partitions[partition] = Assigned(
                next(self._entries),
                self._wanted[partition].range,
                in_trouble.get(partition),
                accepted.get(partition),
            )
            self._changed.add(member)

    def _is_unsettled(self, partition: TopicPartition) -> bool:
        return self.has_generations and self._unsettled.get(partition) == self.membership
