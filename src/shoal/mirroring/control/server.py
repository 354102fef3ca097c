"""The driver's end of the control connections."""

from __future__ import annotations

import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from ...client.coordinator import MemberId
from ...errors import Disconnected
from ...json_values import read_value, to_json, typed
from ...net.budget import Share
from ...net.listener import Admitted, Listener, places, take_place
from ...printable import logger
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..assignment import Wanted
from ..model.reports import TaskReport
from ..model.steering import TaskSteering
from .assignment import Assignment, Member, Partitions
from .limit import share_limit
from .protocol import INSTALLED, NOT_UNDERSTOOD, DriverState, first_line, lease_clock_s, line

__all__ = ["ControlServer", "DriverEvents"]

#: The most connections that have not sent the token: more than tasks that connect at the same moment.
MOST_STRANGERS = 256

_IDLE_LOOK_S = 0.02

#: Timeout for the driver's first answer.
_ANSWER_TIMEOUT_S = 10.0

_TIMEVAL = struct.Struct("@ll")

_log = logger("shoal.control")


class DriverEvents(Partitions, Protocol):
    """The driver's reactions to tasks; the control server calls them from any thread."""

    def apply(self, report: TaskReport) -> None:
        """Count a task's report."""


class ControlServer:
    """
    Listens in threads for tasks, sends each its document, and calls the driver's reactions.

    Attributes:
        address: Host and port for the tasks.
        token: The secret in a task's first line.

    """

    def __init__(
        self,
        host: str,
        token: str,
        events: DriverEvents,
        sealed: str = "",
        *,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Bind a port of an address, without a task yet.

        Args:
            host: The address to listen on.
            token: The secret that every first line must have.
            sealed: The clusters' sealed credentials, for each task's first line; empty for none.
            timing: How long the driver waits for tasks that neither send nor read.

        Raises:
            Disconnected: The driver cannot listen on the host.

        """
        self.token = token
        self._sealed_credentials = sealed
        self._events = events
        self._timing = timing
        #: Held during every change of state; notified when a task has ended or left partitions.
        self._changed = threading.Condition()
        self._assignment = Assignment(events, timing)
        self._paused: frozenset[str] = frozenset()
        self._limit: int | None = None
        #: The jobs whose tasks end as soon as they begin.
        self._ended_jobs: set[int] = set()
        self._stop = False
        self._stopped_at = 0.0
        self._begin_generation: Callable[[], object] | None = None
        #: The member of the last generation that has to end.
        self._ends_as: MemberId | None = None
        self._lease_until = lease_clock_s()
        self._last_report_at = time.monotonic()
        self._strangers = places(MOST_STRANGERS, timing.leaving_s)
        self._listener = Listener(host, 0, self._admit, "shoal-control")
        try:
            self._listener.start()
        except OSError as error:
            raise Disconnected(host, f"cannot listen for the tasks: {error}") from error
        self.address: tuple[str, int] = (host, self._listener.port)

    # One connection

    def _admit(self, connection: socket.socket) -> Admitted | None:
        place = take_place(self._strangers, connection)
        if place is None:
            return None
        leave = partial(self._strangers.give_back, place)
        return Admitted(partial(self._serve, connection, place), leave)

    def _serve(self, connection: socket.socket, place: Share) -> None:
        is_proven = False
        timeval = _TIMEVAL.pack(self._timing.tell_s, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        member = Member(connection)
        try:
            words = json.loads(first_line(connection, self._timing.first_line_s))
            if not hmac.compare_digest(words["hello"].encode(), self.token.encode()):
                return
            is_proven = True
            self._strangers.give_back(place)
            connection.settimeout(_ANSWER_TIMEOUT_S)
            member.job, member.attempt = typed(int, words["job"]), typed(int, words["attempt"])
            member.hear(typed(float, words["clock_s"]))
            self._last_report_at = time.monotonic()
            self._begin(member)
            connection.settimeout(None)
            with connection.makefile("rb") as lines:
                for each in lines:
                    if each.endswith(b"\n"):  # else the task was killed while it wrote
                        self._last_report_at = time.monotonic()
                        self._receive(member, json.loads(each))
            member.is_over = not member.is_cut
        except NOT_UNDERSTOOD as error:
            # A stranger, or a task that has ended: Spark repeats the task if it has to.
            if is_proven and not isinstance(error, OSError):
                _log.exception("a line of a task could not be handled")
        finally:
            with self._changed:
                self._assignment.part(member)
                self._converge()

    def _begin(self, member: Member) -> None:
        with self._changed:
            member.ends = member.job in self._ended_jobs
            self._assignment.join(member)
            self._send(member, with_document=True, credentials=self._sealed_credentials)
            self._converge()

    def _receive(self, member: Member, said: dict[str, Any]) -> None:
        member.hear(typed(float, said.pop("clock_s")), waits=typed(bool, said.pop("waits")))
        if not said:
            return
        report: TaskReport = read_value(TaskReport, said)
        # Before the partitions are given to another task, so that counts and stops come in their order.
        self._report(report)
        if report.leaves:
            with self._changed:
                self._assignment.leave(member, report.leaves)
                self._converge()
        if report.begin_generation:
            self._end_generation(member.membership)

    def _report(self, report: TaskReport) -> None:
        try:
            self._events.apply(report)
        except Exception:
            # The error is the driver's or its caller's, so the task that reports continues.
            _log.exception("a report of a task could not be handled")

    # Documents

    def _converge(self) -> None:
        """Send the documents that change."""
        if self._stop:
            self._changed.notify_all()
            return
        for member in self._assignment.converge(may_grant=lease_clock_s() < self._lease_until):
            self._send(member, with_document=True)
        if self._assignment.needs_generation:
            # From a thread of its own: the group calls renew(), and this one has the lock.
            membership = self._assignment.membership
            threading.Thread(
                target=self._end_generation, args=(membership,), name="shoal-fence", daemon=True
            ).start()
        self._changed.notify_all()

    def _end_generation(self, membership: MemberId) -> None:
        """Have the group begin a new generation after that of a member, once for all that ask."""
        with self._changed:
            if membership == self._ends_as or membership != self._assignment.membership:
                return
            self._ends_as = membership
        if self._begin_generation is not None:
            self._begin_generation()

    def _send(self, member: Member, *, with_document: bool = False, **more: str) -> None:
        """Send a task the state, with its document if that has changed."""
        assignment = self._assignment
        member.membership = membership = assignment.membership
        until = self._lease_until if assignment.gets_lease(member) else lease_clock_s()
        state = DriverState(
            self._stop or member.ends,
            member.clock_s,
            member.give_lease(until),
            membership,
            self._steering_of(member),
        )
        said: dict[str, Any] = {"shoal": INSTALLED, **to_json(state), **more}
        if with_document:
            said["document"] = to_json(member.partitions)
        member.note_sent()
        self._send_line(member, line(said))

    def _steering_of(self, member: Member) -> TaskSteering:
        paused = self._paused.intersection(each.topic for each in member.partitions)
        if self._limit is None:
            return TaskSteering(paused)
        # A task that has just come, until the next look.
        first_part = max(1, self._limit // max(1, len(self._assignment.members)))
        return TaskSteering(paused, member.bytes_per_s or first_part)

    def _send_line(self, member: Member, words: bytes) -> None:
        try:
            member.connection.sendall(words)
        except ConnectionError:
            pass  # the thread that reads finds out whether the task closed the connection
        except OSError:
            member.cut()  # the task may have received half a line, so no other line can follow

    def _send_to_all(self) -> None:
        for member in list(self._assignment.members):
            self._send(member)
        self._changed.notify_all()

    # The partitions

    def want(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        """Set the partitions that tasks are to copy."""
        with self._changed:
            self._assignment.want(wanted)
            self._converge()

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """Have tasks leave partitions that the group revoked."""
        with self._changed:
            self._assignment.withdraw(partitions)
            self._converge()

    def recall(self, partitions: Iterable[TopicPartition]) -> None:
        """Have partitions aligned again, by both logs."""
        with self._changed:
            self._assignment.recall(partitions)
            self._converge()

    def await_left(self, partitions: Iterable[TopicPartition], seconds: float) -> bool:
        """
        Wait until no task may write partitions that are not wanted any more; return whether that was in time.

        The driver closes the connections of tasks that still may. These are orphans, and stop producing at
        the latest when their lease expires.

        """
        partitions = list(partitions)
        deadline = time.monotonic() + seconds
        with self._changed:
            while (holders := self._assignment.holders(partitions)) and time.monotonic() < deadline:
                self._changed.wait(_IDLE_LOOK_S)
                self._converge()
        for each in holders:
            each.cut()
        return not holders

    @property
    def is_done(self) -> bool:
        """Whether all wanted partitions are copied up to their ends."""
        with self._changed:
            return self._assignment.is_done

    def look(self) -> None:
        """
        Take the partitions of tasks that are silent, or do not leave, and share the limit out again.

        Call it about twice a second.
        """
        with self._changed:
            if self._limit is not None:
                for member in share_limit(self._limit, self._assignment.members):
                    self._send(member)
            self._converge()

    # The tasks of a job

    def expect(self, tasks: int) -> None:
        """Wait a moment for so many tasks that start together, before the first of them gets partitions."""
        with self._changed:
            self._assignment.expect(tasks)

    @property
    def attempts(self) -> Mapping[int, int]:
        """The highest number of an attempt, from 0, of each job that has tasks."""
        found: dict[int, int] = {}
        with self._changed:
            for each in self._assignment.members:
                found[each.job] = max(found.get(each.job, 0), each.attempt)
        return found

    def end_one(self, job: int) -> None:
        """Ask one task of a job to end; its others, if they begin from now on, end at once."""
        with self._changed:
            self._ended_jobs.add(job)
            of_job = [each for each in self._assignment.members if each.job == job and not each.ends]
            if of_job:
                self._assignment.end(of_job[0])
                self._send(of_job[0])
                self._converge()

    # Steering

    def steer(self, paused: frozenset[str] = frozenset(), limit: int | None = None) -> None:
        """Let no task, also no later one, fetch these topics, and all together so many bytes a second."""
        with self._changed:
            if limit is not None and limit != self._limit:
                share_limit(limit, self._assignment.members)
            self._paused, self._limit = paused, limit
            self._send_to_all()

    # To all tasks

    def use_group(self, begin_generation: Callable[[], object]) -> None:
        """Begin a new generation of the group by this function if one is needed; from any thread."""
        self._begin_generation = begin_generation
        self._assignment.has_generations = True

    def renew(self, membership: MemberId, lease_s: float) -> None:
        """Renew the tasks' lease, and let them commit as this member."""
        with self._changed:
            self._assignment.membership = membership
            self._assignment.lease_s = max(self._assignment.lease_s, lease_s)
            self._lease_until = lease_clock_s() + lease_s
            self._send_to_all()
            self._converge()

    def end_lease(self) -> None:
        """End the lease. No task may produce until the driver renews it."""
        with self._changed:
            self._lease_until = lease_clock_s()
            self._send_to_all()

    @property
    def membership(self) -> MemberId:
        """The mirror's own member of its group."""
        with self._changed:
            return self._assignment.membership

    def request_stop(self) -> None:
        """Ask all tasks, also later ones, to finish the requests in flight, commit and end."""
        with self._changed:
            if not self._stop:
                self._stop, self._stopped_at = True, time.monotonic()
            self._send_to_all()

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no task is connected, at most so long after the request to stop; return whether so."""
        with self._changed:
            left_s = max(0.0, self._stopped_at + seconds - time.monotonic())
            return self._changed.wait_for(lambda: not self._assignment.members, left_s)

    @property
    def tasks(self) -> int:
        """The number of tasks that are connected."""
        with self._changed:
            return len(self._assignment.members)

    @property
    def stop_requested(self) -> bool:
        """Whether the driver has requested a stop."""
        return self._stop

    @property
    def last_report_at(self) -> float:
        """The time of the last message from a task, on the monotonic clock."""
        return self._last_report_at

    def close(self) -> None:
        """Stop listening. Tasks that still run become orphans."""
        self._listener.stop(self._timing.tell_s)
