"""The driver's end of the control connections."""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ...client.coordinator import MemberId
from ...errors import Disconnected
from ...net.listener import Admitted, Listener
from ...printable import logger
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..model.handover import Handover, InheritedPosition
from ..model.incidents import IncidentKind
from ..model.json_values import typed
from ..model.position import MirrorPosition
from ..model.reports import TaskReport, left_out_report
from ..model.steering import MirrorSteering
from ..model.window import WindowClock, WindowPlan
from .attempts import Attempt, Attempts
from .handover import Handovers
from .protocol import INSTALLED, NOT_UNDERSTOOD, lease_clock_s, line, partition_of
from .steered import SteeredTasks
from .strangers import Strangers, first_line

__all__ = ["ControlServer", "DriverEvents"]

_IDLE_LOOK_S = 0.02

#: The longest delay of an attempt after the lease of an older one has expired.
_FENCE_LOOK_S = 0.25

#: Between two windows, the tasks of the first commit before they leave their partitions. If that takes
#: longer, the page says what the others wait for.
_USUAL_END_S = 1.0

#: Timeout for the driver's first answer.
_ANSWER_TIMEOUT_S = 10.0

#: The time for which a report of being idle counts.
_IDLE_FOR_S = 1.0

_TIMEVAL = struct.Struct("@ll")

_log = logger("shoal.control")


class DriverEvents(Protocol):
    """The driver's reactions to tasks and their planner; the control server calls them from any thread."""

    def apply(self, report: TaskReport) -> None:
        """Count a task's report."""

    def plan(self) -> WindowPlan:
        """Return the partitions to copy in the next window."""

    def in_trouble(self) -> Mapping[TopicPartition, str]:
        """Return the partitions that wait, with the reason that they reported last."""

    def accepted(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, IncidentKind]:
        """Return the kinds of incidents that an operator has accepted once, of some partitions."""

    def has(self, partition: TopicPartition) -> bool:
        """Whether a task may take a partition; a shared group may have revoked it since the plan."""


class ControlServer:
    """
    Listens in threads for tasks and the planner, and calls the driver's reactions from any of them.

    Attributes:
        address: Host and port for the tasks.
        token: The secret in a task's first line.
        windows: The clock of the windows; None if tasks end with their work.

    """

    def __init__(
        self,
        host: str,
        token: str,
        events: DriverEvents,
        sealed: str = "",
        *,
        windows: WindowClock | None = None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Bind a port of an address, without a task yet.

        Args:
            host: The address to listen on.
            token: The secret that every first line must have.
            sealed: The sealed credentials, for tasks that request them.
            windows: The clock that ends tasks; None if they end with their work.
            timing: How long the driver waits for tasks that neither send nor read.

        Raises:
            Disconnected: The driver cannot listen on the host.

        """
        self.token = token
        self._sealed_credentials = sealed
        self._events = events
        self._timing = timing
        self.windows = windows
        self._handovers = Handovers()
        #: Held during every change of state; notified when a task has ended, or all have to.
        self._changed = threading.Condition()
        self._tasks: set[Attempt] = set()
        self._attempts = Attempts()
        self._steered = SteeredTasks()
        self._idle_at: dict[Attempt, float] = {}
        #: The tasks of the next window that have asked for their partitions, and how many there will be.
        self._ready: set[Attempt] = set()
        self._awaited = math.inf
        self._stop = False
        self._membership = MemberId()
        self._begin_generation: Callable[[], object] | None = None
        #: The member of the last generation that has to end.
        self._ends_as: MemberId | None = None
        self._lease_until = lease_clock_s()
        self._last_report_at = time.monotonic()
        self._strangers = Strangers(timing.leaving_s)
        self._listener = Listener(host, 0, self._admit, "shoal-control")
        try:
            self._listener.start()
        except OSError as error:
            raise Disconnected(host, f"cannot listen for the tasks: {error}") from error
        self.address: tuple[str, int] = (host, self._listener.port)

    # One connection

    def _admit(self, connection: socket.socket) -> Admitted | None:
        if not self._strangers.enter(connection):
            return None
        return Admitted(partial(self._serve, connection), partial(self._strangers.leave, connection))

    def _serve(self, connection: socket.socket) -> None:
        timeval = _TIMEVAL.pack(self._timing.tell_s, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        attempt = Attempt(connection, 0.0)
        try:
            words = json.loads(first_line(connection, self._timing.first_line_s))
            if not hmac.compare_digest(words["hello"].encode(), self.token.encode()):
                return
            self._strangers.leave(connection)
            self._last_report_at = time.monotonic()
            connection.settimeout(_ANSWER_TIMEOUT_S)
            subject = words.get("for")
            if subject is not None:
                connection.sendall(line({subject: self._answer(subject)}))
            else:
                attempt.clock_s = typed(float, words["clock_s"])
                window = words["window"]
                attempt.window = self.current_window if window is None else typed(int, window)
                self._begin(attempt)
            connection.settimeout(None)
            with connection.makefile("rb") as lines:
                for each in lines:
                    if each.endswith(b"\n"):  # else the task was killed while it wrote
                        self._last_report_at = time.monotonic()
                        self._receive(attempt, json.loads(each))
            attempt.end()
        except NOT_UNDERSTOOD:
            return  # a stranger, or a task that has ended; Spark repeats the task if it has to
        finally:
            with self._changed:
                self._tasks.discard(attempt)
                self._idle_at.pop(attempt, None)
                self._ready.discard(attempt)
                self._steered.forget(attempt)
                self._changed.notify_all()

    def _answer(self, subject: str) -> Any:
        return self._sealed_credentials if subject == "credentials" else None

    def _begin(self, attempt: Attempt) -> None:
        with self._changed:
            if self.windows:
                self.windows.advance()
                if attempt.window == self.windows.current:
                    self.windows.begin()
            self._tasks.add(attempt)
            attempt.connection.sendall(self._state(attempt))

    def _receive(self, attempt: Attempt, said: dict[str, Any]) -> None:
        if said.pop("steered", False):
            with self._changed:
                self._steered.confirm(attempt)
                self._send_steering(attempt)
        if "clock_s" in said:
            attempt.clock_s = typed(float, said.pop("clock_s"))
            if not said:
                return
        if "takes" in said:
            self._take(attempt, [partition_of(each) for each in said["takes"]])
            return
        if "wants" in said:
            with self._changed:
                self._steered.ask(attempt, said["wants"])
            return
        report = TaskReport.from_json_object(said)
        if report.leaves:
            self._leave(attempt, report.leaves)
        if report.aligns:
            with self._changed:
                if self.windows and self.windows.prolong(for_ever=True):
                    self._send_to_all()
        if report.is_idle:
            self._note_idle(attempt)
        if report.begin_generation and attempt.membership == self._membership:
            self._end_generation()
        self.apply(report)

    def _leave(self, attempt: Attempt, leaves: Mapping[TopicPartition, InheritedPosition | None]) -> None:
        self._handovers.leave(leaves, attempt)
        with self._changed:
            attempt.leave(leaves)
            self._changed.notify_all()

    def apply(self, report: TaskReport) -> None:
        """Act on a report of a task, or of the planner of windows."""
        if report.assign_again:
            self.end_window()
        self._report(report)

    def _report(self, report: TaskReport) -> None:
        try:
            self._events.apply(report)
        except Exception:
            # The error is the driver's or its caller's, so the task that reports continues.
            _log.exception("a report of a task could not be handled")

    def _take(self, attempt: Attempt, asked: Sequence[TopicPartition]) -> None:
        """Hand an attempt its partitions, once it is its turn and no older attempt can write them."""
        with self._changed:
            is_early = self.windows is not None and self.windows.is_prepared(attempt.window)
            is_in_time = attempt.window == self.current_window
            if is_in_time and self.windows:
                # The task may have connected while its window was the next one.
                self.windows.begin()
        if is_early:
            self._start(self._take_in_turn, attempt, asked)
            return
        if not is_in_time:
            # Spark repeats a task of a window that is over, or had no slot for one that was dismissed.
            self._hand_over(attempt, (), {}, given_up=asked)
            return
        in_trouble = self._events.in_trouble()
        rivals = self._fence(attempt, asked)
        if rivals or self._handovers.have_unsettled(asked):
            self._start(self._hand_over_when_alone, attempt, asked, in_trouble, rivals)
        else:
            self._hand_over(attempt, asked, in_trouble)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        """Wait in a thread: the connection must be read meanwhile, as leases count from the task's clock."""
        threading.Thread(target=work, args=arguments, name="shoal-fence", daemon=True).start()

    def _take_in_turn(self, attempt: Attempt, asked: Sequence[TopicPartition]) -> None:
        """Hand an attempt of the next window its partitions when the present tasks have left them."""
        with self._changed:
            is_its_turn = self._await_turn(attempt)
        in_trouble = self._events.in_trouble()  # before this is reported as trouble
        if is_its_turn:
            self._hand_over_when_alone(attempt, asked, in_trouble, self._fence(attempt, asked))
        else:
            with contextlib.suppress(OSError):  # the attempt may have ended meanwhile
                self._hand_over(attempt, (), {}, given_up=asked)

    def _fence(self, attempt: Attempt, asked: Sequence[TopicPartition]) -> list[Attempt]:
        """Register an attempt's partitions; let those end that may still write them, and return these."""
        with self._changed:
            rivals = self._attempts.begin(attempt, asked)
            for each in rivals:
                if each in self._tasks:
                    self._send(each)
            return rivals

    def _hand_over_when_alone(
        self,
        attempt: Attempt,
        asked: Sequence[TopicPartition],
        in_trouble: Mapping[TopicPartition, str],
        rivals: Sequence[Attempt],
    ) -> None:
        with self._changed:
            is_alone = self._await_alone(attempt, rivals, _USUAL_END_S)
        if not is_alone and self._may_wait(attempt):
            waits_s = max(each.lease_s for each in rivals)
            reason = f"an older attempt of its task to end, which may write for {waits_s:.0f} s more"
            self._report(left_out_report(dict.fromkeys(asked, reason)))
            with self._changed:
                is_alone = self._await_alone(attempt, rivals, math.inf)
        is_fenced = False
        if is_alone and self._handovers.have_unsettled(asked):
            is_alone = is_fenced = self._await_generation(attempt)
        with contextlib.suppress(OSError):  # the attempt may have ended meanwhile
            self._hand_over(
                attempt,
                asked if is_alone else (),
                in_trouble,
                given_up=() if is_alone else asked,
                is_fenced=is_fenced,
            )

    def _await_turn(self, attempt: Attempt) -> bool:
        """Wait for the end of the window before an attempt's; return whether its own follows."""
        windows = self.windows
        assert windows is not None, "else no attempt is early"
        self._ready.add(attempt)
        self._hasten()
        while attempt in self._tasks and not self._stop:
            windows.advance()
            if not windows.is_prepared(attempt.window):
                break
            self._changed.wait(windows.remaining_s)
        if attempt not in self._tasks or self._stop or attempt.window != windows.current:
            return False
        windows.begin()
        self._send_to_all()
        return True

    def _hasten(self) -> None:
        """End the window once all tasks of the next one have asked for their partitions."""
        if self.windows is not None and len(self._ready) >= self._awaited:
            self.windows.hasten()
            self._send_to_all()

    def _await_alone(self, attempt: Attempt, rivals: Sequence[Attempt], patience_s: float) -> bool:
        """Wait until no rival may write the attempt's partitions; return whether it may take them."""

        def have_rivals() -> bool:
            return any(each.may_write(attempt.partitions) for each in rivals)

        until = time.monotonic() + patience_s
        while self._may_wait(attempt) and have_rivals() and time.monotonic() < until:
            self._changed.wait(_FENCE_LOOK_S)
        return attempt in self._tasks and not attempt.is_fenced and not have_rivals()

    def _await_generation(self, attempt: Attempt) -> bool:
        """Wait for a new generation, which refuses all earlier commits; return whether it has begun."""
        if self._begin_generation is None:
            return True
        with self._changed:
            before = self._membership
        self._end_generation()
        with self._changed:
            while self._membership == before and self._may_wait(attempt):
                self._changed.wait(_FENCE_LOOK_S)
            return self._membership != before

    def _end_generation(self) -> None:
        """Have the group begin a new generation, once for all that ask in the present one."""
        with self._changed:
            is_asked, self._ends_as = self._ends_as == self._membership, self._membership
        if not is_asked and self._begin_generation is not None:
            self._begin_generation()

    def _may_wait(self, attempt: Attempt) -> bool:
        """Whether an attempt still waits for its partitions; its window or the mirror may end before."""
        window_is_over = self.windows is not None and self.windows.remaining_of(attempt.window) <= 0
        return attempt in self._tasks and not (attempt.is_fenced or self._stop or window_is_over)

    def _hand_over(
        self,
        attempt: Attempt,
        asked: Sequence[TopicPartition],
        in_trouble: Mapping[TopicPartition, str],
        given_up: Sequence[TopicPartition] = (),
        *,
        is_fenced: bool = False,
    ) -> None:
        wanted = [each for each in asked if self._events.has(each)]
        left, unsettled = self._handovers.take(wanted, attempt, is_fenced=is_fenced)
        handover = Handover(
            left,
            {each: in_trouble[each] for each in wanted if each in in_trouble},
            unsettled.union(given_up, (each for each in asked if each not in wanted)),
            self._events.accepted(wanted),
        )
        with self._changed:
            # In one line: a paused topic is not fetched for a moment, either.
            entries = {"handover": handover.to_json_object(), **self._steered.begin(attempt)}
            attempt.connection.sendall(line(entries))

    def _note_idle(self, attempt: Attempt) -> None:
        """Prolong the window if all tasks have reported within a moment that they are idle."""
        now = time.monotonic()
        with self._changed:
            self._idle_at[attempt] = now
            present = [each for each in self._tasks if each.window == self.current_window]
            all_idle = all(now - self._idle_at.get(each, -math.inf) < _IDLE_FOR_S for each in present)
            if all_idle and self.windows and self.windows.prolong():
                self._idle_at.clear()
                self._send_to_all()

    def _state(self, attempt: Attempt) -> bytes:
        """Return the state for a task. The attempt has the lease in it from now on."""
        if not attempt.is_fenced:
            attempt.membership = self._membership
        membership = attempt.membership
        ends_in_s = self.windows.remaining_of(attempt.window) if self.windows else None
        lease_until = self._lease_until
        if attempt.is_fenced:
            ends_in_s, lease_until = 0.0, min(lease_until, attempt.lease_until)
        attempt.lease_until = max(attempt.lease_until, lease_until)
        return line(
            {
                "shoal": INSTALLED,
                "stop": self._stop,
                "clock_s": attempt.clock_s,
                "lease_s": max(0.0, lease_until - lease_clock_s()),
                "membership": [membership.member_id, membership.generation, membership.instance_id],
                "ends_in_s": ends_in_s,
                "lead_s": self.windows.lead_s if self.windows else 0.0,
            }
        )

    # The planner of windows

    def plan(self) -> WindowPlan | None:
        """Return the plan of the next window, with all reports until now; None if the mirror stops."""
        if self._stop:
            return None
        self._last_report_at = time.monotonic()
        if self.windows:
            with self._changed:
                # Before the driver makes the plan, which lacks all later reports.
                self.windows.plan()
        return self._events.plan()

    @property
    def tasks(self) -> frozenset[Attempt]:
        """The tasks that are connected."""
        with self._changed:
            return frozenset(self._tasks)

    @property
    def ready(self) -> frozenset[Attempt]:
        """The tasks of the next window that wait for their partitions."""
        with self._changed:
            return frozenset(self._ready)

    # The successor of a window

    @property
    def current_window(self) -> int:
        """The number of the current window; 0 without windows."""
        return self.windows.current if self.windows else 0

    @property
    def planned_window(self) -> int:
        """The number of the window that was planned last; tasks send it in their first line."""
        return self.windows.planned if self.windows else 0

    @property
    def is_next_due(self) -> bool:
        """Whether it is time to prepare the next window while this one lasts."""
        with self._changed:
            return not self._stop and self.windows is not None and self.windows.is_next_due

    def plan_ahead(self) -> WindowPlan | None:
        """Plan the next window while this one lasts; None if it does not last, or the mirror stops."""
        with self._changed:
            if not self.is_next_due or self.windows is None or not self.windows.prepare():
                return None
            self._ready.clear()
            self._awaited = math.inf
            self._send_to_all()
        return self._events.plan()

    def await_next(self, tasks: int) -> None:
        """End the current window once so many tasks of the next one are ready, or when its time is over."""
        with self._changed:
            self._awaited = tasks
            self._hasten()

    def dismiss_next(self) -> None:
        """Give the next window up. Its tasks end, without any partition."""
        with self._changed:
            if self.windows and self.windows.dismiss():
                self._send_to_all()

    def follow(self, number: int, following: int) -> bool:
        """
        Let a window follow one whose tasks have all ended, maybe before its end.

        Returns:
            Whether the following window is the current one now. If not, it was dismissed.

        """
        with self._changed:
            if self.windows is None:
                return False
            self.windows.advance(over=number)
            self._changed.notify_all()
            return following == self.windows.current

    # Steering

    def steer(self, steering: MirrorSteering) -> None:
        """Steer all tasks, also later ones."""
        with self._changed:
            self._steered.set(steering)
            for attempt in self._tasks:
                self._send_steering(attempt)

    def _send_steering(self, attempt: Attempt) -> None:
        # A task that has not asked for its partitions yet gets its steering with them.
        if attempt.partitions and (entries := self._steered.next_line(attempt)):
            self._send_line(attempt, line(entries))

    @property
    def is_steered(self) -> bool:
        """Whether all tasks with partitions have confirmed the newest steering."""
        with self._changed:
            return all(self._steered.is_confirmed(each) for each in self._tasks if each.partitions)

    def grant(self) -> bool:
        """Grant the bytes that are due to workers that ask; return whether anything is limited."""
        with self._changed:
            for attempt, entries in self._steered.grants().items():
                self._send_line(attempt, line(entries))
            return self._steered.has_limit

    # To all tasks

    def use_group(self, begin_generation: Callable[[], object]) -> None:
        """Begin a new generation of the group by this function if one is needed; from any thread."""
        self._begin_generation = begin_generation

    def renew(self, membership: MemberId, lease_s: float) -> None:
        """Renew the tasks' lease, and let them commit as this member."""
        with self._changed:
            if membership != self._membership or lease_clock_s() >= self._lease_until:
                self._handovers.forget()
            self._membership = membership
            self._lease_until = lease_clock_s() + lease_s
            self._send_to_all()

    def end_window(self) -> None:
        """End the window early, to assign the partitions again."""
        with self._changed:
            if self.windows and self.windows.end():
                self._send_to_all()

    def end_tasks(self, seconds: float) -> bool:
        """
        End all running tasks at once, and wait for them; return whether they ended in time.

        The driver closes the connections of tasks that did not. These are orphans, and stop producing at the
        latest when their lease expires. :meth:`DriverEvents.has` decides which partitions new tasks may take.

        """
        with self._changed:
            tasks = set(self._tasks)
            if self.windows and self.windows.end(at_once=True):
                self._send_to_all()
        deadline = time.monotonic() + seconds
        while (left := tasks & self._tasks) and time.monotonic() < deadline:
            time.sleep(_IDLE_LOOK_S)
        for attempt in left:
            attempt.cut()
        return not left

    def end_lease(self) -> None:
        """End the lease. No task may produce until the driver renews it."""
        with self._changed:
            self._lease_until = lease_clock_s()
            self._send_to_all()

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the positions of partitions that another mirror has now, or that have to be aligned."""
        self._handovers.give_up(partitions)

    def uncommitted(self) -> tuple[dict[TopicPartition, MirrorPosition], MemberId]:
        """Return positions that finished tasks left uncommitted, and the member that can commit them."""
        return self._handovers.uncommitted(), self._membership

    def request_stop(self) -> None:
        """Ask all tasks, also later ones, to finish the requests in flight, commit and end."""
        with self._changed:
            self._stop = True
            self._send_to_all()

    def _send_to_all(self) -> None:
        for attempt in self._tasks:
            self._send(attempt)
        self._changed.notify_all()

    def _send(self, attempt: Attempt) -> None:
        self._send_line(attempt, self._state(attempt))

    def _send_line(self, attempt: Attempt, words: bytes) -> None:
        try:
            attempt.connection.sendall(words)
        except ConnectionError:
            pass  # the thread that reads finds out whether the task closed the connection
        except OSError:
            attempt.cut()  # the task may have received half a line, so no other line can follow

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no task is connected; return False after a timeout."""
        deadline = time.monotonic() + seconds
        while self._tasks and time.monotonic() < deadline:
            time.sleep(_IDLE_LOOK_S)
        return not self._tasks

    @property
    def stop_requested(self) -> bool:
        """Whether the driver has requested a stop."""
        return self._stop

    @property
    def last_report_at(self) -> float:
        """The time of the last message from a task, or of the last plan, on the monotonic clock."""
        return self._last_report_at

    def close(self) -> None:
        """Stop listening. Tasks that still run become orphans."""
        self._listener.stop(self._timing.tell_s)
