"""A task's end of the control connection, and one worker's part of it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...client.coordinator import MemberId
from ...client.lot import Gate
from ...error_codes import ErrorCode
from ...errors import BrokerError, Stopped
from ...json_values import read_value, to_json, typed
from ...net.listener import hang_up
from ...topic_partition import TopicPartition
from ..model.reports import Assigned, Document, TaskReport
from ..model.steering import UNSTEERED, TaskSteering
from .limit import Allowance
from .protocol import (
    INSTALLED,
    LONGEST_LINE,
    NOT_UNDERSTOOD,
    DriverState,
    lease_clock_s,
    line,
)

__all__ = ["ControlConnection", "WorkerControl"]

#: A gate that no request may pass.
CLOSED = 0

_CONNECT_TIMEOUT_S = 10.0


class ControlConnection:
    """
    A task's connection to the driver. A thread reads the driver's messages.

    Attributes:
        sealed_credentials: The clusters' credentials (:mod:`~shoal.mirroring.credentials`); empty for none.

    """

    def __init__(self, address: tuple[str, int], token: str, job: int = 0, attempt: int = 0) -> None:
        """
        Connect, and wait for the driver's first state.

        Args:
            address: Where the driver listens.
            job: The number of the job that the task belongs to.
            attempt: The number of the attempt, from 0.

        Raises:
            Stopped: The driver is gone. The task is an orphan.

        """
        self._changed = threading.Condition()
        #: Held while a line is sent.
        self.sending = threading.Lock()
        self._stop = False
        self._orphan = False
        self._lease_until = 0.0
        self.assignment: Mapping[TopicPartition, Assigned] = {}
        self._new: list[Assigned] = []
        self._on_document: Callable[[], object] = lambda: None
        self._membership = MemberId()
        self.generation = 0
        self._interruptions = 0
        #: The gates of senders at work, by their identity.
        self._gates: dict[int, Gate] = {}
        self._steering = UNSTEERED
        self.allowance = Allowance()
        self._where = f"the driver at {address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise Stopped(f"{self._where} is gone: {error}") from error
        self._lines = self._socket.makefile("rb")
        try:
            self._socket.sendall(
                line({"hello": token, "job": job, "attempt": attempt, "clock_s": lease_clock_s()})
            )
            said = json.loads(self._lines.readline(LONGEST_LINE))
            _check_version(said)
            self._receive(said)
            self.sealed_credentials = typed(str, said["credentials"])
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
        if self.sending.acquire(blocking=False):
            try:
                self._socket.sendall(line(self._heard()))
            finally:
                self.sending.release()

    def _heard(self) -> dict[str, Any]:
        """Return what each line says: the clock, and whether a worker waits for bytes."""
        return {"clock_s": lease_clock_s(), "waits": self.allowance.waits}

    def _receive(self, said: dict[str, Any]) -> None:
        document = read_value(Document, said["document"]) if "document" in said else None
        self._apply_state(read_value(DriverState, said), document)
        if document is not None:
            self._on_document()

    def _apply_state(self, state: DriverState, document: Document | None) -> None:
        membership, steering = state.membership, state.steering
        now = lease_clock_s()
        # The driver's message may have waited in the socket while this process was stopped. The driver sent
        # it after it had received this reading of our clock, so the lease does not begin before the reading.
        if not 0 <= state.clock_s <= now:
            raise ValueError(f"a lease given at {state.clock_s} s, and it is {now} s now")
        with self._changed:
            self._stop = state.stop
            is_interrupted = now >= self._lease_until or membership != self._membership
            self._interruptions += is_interrupted
            self.generation += membership != self._membership
            self._lease_until = state.clock_s + state.lease_s
            self._set_gates(CLOSED if is_interrupted else self._gate_until)
            self._membership = membership
            if document is not None:
                self._take_document(document)
            self._changed.notify_all()
        if steering != self._steering:
            self._steering = steering
            self.allowance.begin(steering.bytes_per_s)

    def _take_document(self, document: Document) -> None:
        """Take the newest document over; an entry that is known keeps its object."""
        taken = {}
        for partition, assigned in document.items():
            known = self.assignment.get(partition)
            if known is not None and known.entry == assigned.entry:
                taken[partition] = known
            else:
                taken[partition] = assigned
                self._new.append(assigned)
        if {each.entry for each in taken.values()} != {each.entry for each in self.assignment.values()}:
            self.assignment = taken

    def take_new(self) -> list[Assigned]:
        """Return the entries since the last call, also those that a later document lacks, to be left."""
        with self._changed:
            new, self._new = self._new, []
        return new

    def on_document(self, call: Callable[[], object]) -> None:
        """Call this after each document, in the connection's thread; and once now."""
        self._on_document = call
        call()

    @property
    def stop_requested(self) -> bool:
        """Whether the driver requested an end of this task."""
        return self._stop

    @property
    def interruptions(self) -> int:
        """How often the lease expired or the mirror rejoined its group. Others may have produced then."""
        return self._interruptions

    def check_lease(self) -> None:
        """
        Raise an error if the task may not produce.

        Raises:
            Stopped: The driver is gone. The task cannot continue.
            BrokerError: The lease expired. The driver may renew it, so a retry may succeed.

        """
        self.raise_if_orphan()
        if lease_clock_s() >= self._lease_until:
            where = "the mirror's place in its consumer group (no heartbeat for too long)"
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where)

    def raise_if_orphan(self) -> None:
        """Raise Stopped if the driver is gone."""
        if self._orphan:
            raise self._gone()

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

    def _gone(self) -> Stopped:
        return Stopped("the driver is gone: nothing more is produced")

    def begin_generation(self) -> None:
        """Ask the driver for a new generation; the membership of a later state has it."""
        self.report(TaskReport(begin_generation=True))

    def membership(self) -> MemberId:
        """Return the member in the driver's newest state."""
        return self._membership

    def report(self, report: TaskReport) -> None:
        """Send a report; drop it if the driver is gone."""
        with contextlib.suppress(OSError), self.sending:
            self._socket.sendall(line({**to_json(report), **self._heard()}))

    def wait(self, seconds: float) -> None:
        """Wait; return earlier if an end is requested, or the driver is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._stop or self._orphan, seconds)

    def close(self) -> None:
        """Close the connection, and wait for its thread."""
        hang_up(self._socket)
        self._thread.join()
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> ControlConnection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class WorkerControl:
    """
    The driver for one worker of a task: after an interruption, the worker has to begin again.

    Attributes:
        driver: The task's connection.
        seen_interruptions: The number of interruptions before which this worker has begun.

    """

    def __init__(self, driver: ControlConnection) -> None:
        self.driver = driver
        self.seen_interruptions = driver.interruptions
        self._end_requested = False

    def request_end(self) -> None:
        """Ask this worker to end; the task's other workers continue."""
        self._end_requested = True

    @property
    def stop_requested(self) -> bool:
        """Whether the worker or its task should end."""
        return self._end_requested or self.driver.stop_requested

    def check_lease(self) -> None:
        """
        Raise as :meth:`ControlConnection.check_lease`.

        Raises:
            BrokerError: Also after an interruption, until :meth:`begin`.

        """
        self.driver.check_lease()
        if self.driver.interruptions != self.seen_interruptions:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS, "the mirror's place in its consumer group")

    @contextlib.contextmanager
    def gate(self) -> Iterator[Gate]:
        """
        Yield a gate that is open as long as :meth:`check_lease` raises nothing.

        Raises:
            Stopped, BrokerError: As :meth:`check_lease`.

        """
        gate = self.driver.open_gate()
        try:
            # In this order: whatever closes gates from now on closes this one.
            self.check_lease()
            yield gate
        finally:
            self.driver.close_gate(gate)

    def begin(self) -> bool:
        """Start over after an interruption; return whether there was one."""
        seen, self.seen_interruptions = self.seen_interruptions, self.driver.interruptions
        return seen != self.seen_interruptions


def _check_version(said: Mapping[str, Any]) -> None:
    version = said.get("shoal")
    if version != INSTALLED:
        raise ValueError(
            f"shoal {INSTALLED} is installed here, and {version} there: install the same on all machines"
        )
