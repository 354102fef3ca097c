"""A task's end of the control connection, and its question for the credentials."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import socket
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from ...client.coordinator import MemberId
from ...error_codes import ErrorCode
from ...errors import BrokerError, Stopped
from ...topic_partition import TopicPartition
from ..model.handover import Handover
from ..model.json_values import typed
from ..model.reports import TaskReport
from ..model.steering import UNSTEERED, TaskSteering
from .allowance import Allowance
from .protocol import (
    INSTALLED,
    LONGEST_LINE,
    NOT_UNDERSTOOD,
    lease_clock_s,
    line,
    seconds_of,
)
from .task_control import CLOSED, Gate

__all__ = ["ControlConnection", "ask_sealed_credentials"]

_CONNECT_TIMEOUT_S = 10.0


class ControlConnection:
    """A task's connection to the driver. A thread reads the driver's messages."""

    def __init__(self, address: tuple[str, int], token: str, window: int | None = None) -> None:
        """
        Connect, and wait for the driver's first state.

        Args:
            address: Where the driver listens.
            window: The number of the window that the task belongs to; None for the current one.

        Raises:
            Stopped: The driver is gone. The task is an orphan.

        """
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._stop = False
        self._orphan = False
        self._lease_until = 0.0
        self._ends_at = math.inf
        self._lead_s = 0.0
        self._membership = MemberId()
        self.generation = 0
        self._interruptions = 0
        #: The gates of senders at work, by their identity.
        self._gates: dict[int, Gate] = {}
        self._steering = UNSTEERED
        #: Whether the next line confirms the steering.
        self._confirms = False
        #: Those of workers that are at work.
        self._allowances: WeakValueDictionary[int, Allowance] = WeakValueDictionary()
        self._numbers = itertools.count()
        self._handover: Handover | None = None
        self._where = f"the driver at {address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise Stopped(f"{self._where} is gone: {error}") from error
        self._lines = self._socket.makefile("rb")
        try:
            self._socket.sendall(
                line(
                    {
                        "hello": token,
                        "window": window,
                        "clock_s": lease_clock_s(),
                    }
                )
            )
            said = json.loads(self._lines.readline(LONGEST_LINE))
            _check_version(said)
            self._receive(said)
            self._interruptions = 0
            self._socket.settimeout(None)
        except NOT_UNDERSTOOD as error:
            self._lines.close()
            self._socket.close()
            raise Stopped(f"{self._where} is gone, or another program listens there: {error}") from error
        self._thread = threading.Thread(target=self._listen, name="shoal-control", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(*NOT_UNDERSTOOD):
            while words := self._lines.readline(LONGEST_LINE):
                self._receive(json.loads(words))
                self._send_clock()
        with self._changed:
            # Not a stop: a task that ends early because its driver is gone has failed.
            self._orphan = True
            self._set_gates(CLOSED)
            self._changed.notify_all()

    def _send_clock(self) -> None:
        """Send the clock, so that the next lease counts from now, unless a report is in progress."""
        if self._sending.acquire(blocking=False):
            try:
                self._socket.sendall(line(self._with_clock({})))
            finally:
                self._sending.release()

    def _receive(self, said: dict[str, Any]) -> None:
        if "steering" in said:
            self._steer(TaskSteering.from_json_object(said["steering"]))
        if "handover" in said:
            with self._changed:
                self._handover = Handover.from_json_object(said["handover"])
                self._changed.notify_all()
        elif "grants" in said:
            rate = typed(int, said["grants"]["rate"])
            for worker, size in said["grants"]["to"]:
                if (allowance := self._allowances.get(worker)) is not None:
                    allowance.receive(rate, typed(int, size))
        elif "steering" not in said:
            self._apply_state(said)

    def _steer(self, steering: TaskSteering) -> None:
        self._steering = steering
        for each in list(self._allowances.values()):
            each.wake()
        # Not sent here: this thread reads the lease, and may not wait for a report in progress.
        self._confirms = True

    def _apply_state(self, state: dict[str, Any]) -> None:
        member_id, generation, instance_id = state["membership"]
        membership = MemberId(
            typed(str, member_id),
            typed(int, generation),
            None if instance_id is None else typed(str, instance_id),
        )
        stop, lease_s = typed(bool, state["stop"]), seconds_of(state["lease_s"])
        ends_in_s = math.inf if state["ends_in_s"] is None else seconds_of(state["ends_in_s"])
        lead_s = seconds_of(state["lead_s"])
        now = lease_clock_s()
        # The driver's message may have waited in the socket while this process was stopped. The driver sent
        # it after it had received this reading of our clock, so the lease does not begin before the reading.
        given_at = typed(float, state["clock_s"])
        if not 0 <= given_at <= now:
            raise ValueError(f"a lease given at {given_at} s, and it is {now} s now")
        with self._changed:
            self._stop = stop
            is_interrupted = now >= self._lease_until or membership != self._membership
            self._interruptions += is_interrupted
            self.generation += membership != self._membership
            self._lease_until = given_at + lease_s
            self._set_gates(CLOSED if is_interrupted else self._gate_until)
            self._ends_at = now + ends_in_s
            self._lead_s = lead_s
            self._membership = membership
            self._changed.notify_all()

    @property
    def stop_requested(self) -> bool:
        """Whether the driver requested a stop, or the window is over."""
        return self._stop or lease_clock_s() >= self._ends_at

    @property
    def mirror_ends(self) -> bool:
        """Whether the driver requested a stop of the mirror."""
        return self._stop

    @property
    def remaining_s(self) -> float:
        """The time until the end of the window; 0 if the driver requested a stop."""
        return 0.0 if self._stop else max(0.0, self._ends_at - lease_clock_s())

    @property
    def lead_s(self) -> float:
        """The time before the end of the window at which the driver prepares the next one."""
        return self._lead_s

    @property
    def interruptions(self) -> int:
        """How often the lease expired or the mirror rejoined its group."""
        return self._interruptions

    def check_lease(self) -> None:
        """Raise an error if the task may not produce; see :meth:`Control.check_lease`."""
        if self._orphan:
            raise self._gone()
        if lease_clock_s() >= self._lease_until:
            where = "the mirror's place in its consumer group (no heartbeat for too long)"
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where)

    def open_gate(self) -> Gate:
        """Return a gate that closes with the lease, or if this task is an orphan or interrupted."""
        with self._changed:
            gate = array("Q", [CLOSED if self._orphan else self._gate_until, 0])
            self._gates[id(gate)] = gate
        return gate

    def close_gate(self, gate: Gate) -> None:
        """Release a gate of :meth:`open_gate`; it stays as it is."""
        with self._changed:
            self._gates.pop(id(gate), None)

    @property
    def _gate_until(self) -> int:
        return int(self._lease_until * 1e9)

    def _set_gates(self, until: int) -> None:
        """Move the ends of all gates that are not closed; what closes one closes it for good."""
        for gate in self._gates.values():
            gate[0] = until
        if until == CLOSED:
            self._gates.clear()

    @property
    def steering(self) -> TaskSteering:
        """The driver's newest steering: another object after each change."""
        return self._steering

    def open_allowance(self) -> Allowance:
        """Return the allowance of one more worker."""
        with self._changed:
            number = next(self._numbers)
            allowance = self._allowances[number] = Allowance(number, self._send)
        return allowance

    def _gone(self) -> Stopped:
        return Stopped("the driver is gone: nothing more is produced")

    def take(self, partitions: Sequence[TopicPartition]) -> Handover:
        """Request the partitions, and wait for the driver's answer; raises Stopped."""
        self._send({"takes": partitions})
        with self._changed:
            self._changed.wait_for(lambda: self._handover is not None or self._orphan)
            handover, self._handover = self._handover, None
        if handover is None:
            raise self._gone()
        return handover

    def begin_generation(self) -> None:
        """Ask the driver for a new generation; the membership of a later state has it."""
        self.report(TaskReport(begin_generation=True))

    def membership(self) -> MemberId:
        """Return the member in the driver's newest state."""
        return self._membership

    def report(self, report: TaskReport) -> None:
        """Send a report; drop it if the driver is gone."""
        self._send(report.to_json_object())

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), self._sending:
            self._socket.sendall(line(self._with_clock(message)))
        if self._confirms:  # it arrived while this thread was sending
            with contextlib.suppress(OSError):
                self._send_clock()

    def _with_clock(self, message: dict[str, Any]) -> dict[str, Any]:
        message = {**message, "clock_s": lease_clock_s()}
        if self._confirms:  # only then reset it: the other thread may set it at any time
            self._confirms = False
            message["steered"] = True
        return message

    def wait(self, seconds: float) -> None:
        """Wait; return earlier if a stop is requested, the window is over, or the driver is gone."""
        with self._changed:
            deadline = time.monotonic() + seconds
            while not (self._stop or self._orphan):
                # The driver may have moved the end of the window.
                left_s = min(deadline - time.monotonic(), self.remaining_s)
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def close(self) -> None:
        """Close the connection, and wait for its thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> ControlConnection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _check_version(said: Mapping[str, Any]) -> None:
    version = said.get("shoal")
    if version != INSTALLED:
        raise ValueError(
            f"shoal {INSTALLED} is installed here, and {version} there: install the same on all machines"
        )


def ask_sealed_credentials(address: tuple[str, int], token: str) -> str:
    """
    Request the sealed credentials from the driver.

    Raises:
        Stopped: The driver is gone.

    """
    where = f"the driver at {address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, _CONNECT_TIMEOUT_S) as connection:
            connection.sendall(line({"hello": token, "for": "credentials"}))
            with connection.makefile("rb") as lines:
                return typed(str, json.loads(lines.readline(LONGEST_LINE))["credentials"])
    except NOT_UNDERSTOOD as error:
        raise Stopped(f"{where} is gone, or another program listens there: {error}") from error
