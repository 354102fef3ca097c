"""
The control connection: from each task to the driver.

Spark gives a Python task neither a signal to stop nor a way to report. One
TCP connection serves for all: the driver says who commits, renews the lease,
and asks for an end; the task reports what it did. When it breaks, the task is
an orphan and stops producing.

Lines of JSON. The task's first is ``{"hello": token}``; the driver answers
with its state, and again whenever that changes (or, to ``{"hello": token, "for": "credentials"}``, with
``{"credentials": "…"}`` and nothing more: sealed, see :mod:`~shoal.mirroring.credentials`)::

    {"stop": false, "lease_s": 20.0, "membership": ["member-id", 7, "instance-id"],
     "excluded": [["topic", 3]], "waiting": false}
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from ..client.groups import Membership
from ..client.metadata import TopicPartition
from ..errors import BrokerError, Disconnected, ErrorCode, Stopped

__all__ = [
    "Control",
    "ControlConnection",
    "ControlServer",
    "Uncontrolled",
    "ask_letter",
    "lease_clock_s",
]

_CONNECT_TIMEOUT_S = 10.0

#: How long the driver tries to tell a task something; one that does not read is given up.
_TELL_TIMEOUT_S = 5

_IDLE_LOOK_S = 0.05

#: So long the end of the server may take.
_POLL_INTERVAL_S = 0.1

#: The longest first line of a task; a stranger may connect.
_LONGEST_HELLO = 4096

#: The driver's longest word, which names the partitions that are stopped; another may listen at its address.
_LONGEST_STATE = 64 * 1024 * 1024

#: A stranger who connects and says nothing is not waited for.
_HELLO_TIMEOUT_S = 10.0

#: No lease lasts longer, in seconds.
_LONGEST_LEASE_S = 3600.0

#: What comes of a connection that breaks, and of lines that are not ours, such as brackets by the thousand.
_NOT_UNDERSTOOD = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

_TIMEVAL = struct.Struct("@ll")

T = TypeVar("T")

_log = logging.getLogger("shoal.control")


def lease_clock_s() -> float:
    """
    Return the time by which leases are measured.

    Where there is one, a clock that goes on while the machine sleeps, as the
    group's coordinator does; a process that is stopped for long is covered by any.

    """
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


class Control(Protocol):
    """What a task knows of its driver."""

    @property
    def stop_requested(self) -> bool:
        """Whether the task should finish what is in flight, commit and end."""

    def check_lease(self) -> None:
        """
        Raise where nothing may be produced.

        Raises:
            Stopped: The driver is gone: for good.
            BrokerError: The lease lapsed, and may be renewed: retriable. Or it
                did and was, or the mirror joined its group anew: until
                :meth:`begin`, since somebody else may have produced meanwhile.

        """

    def begin(self) -> bool:
        """Start over after that; return whether there was reason to."""

    def membership(self) -> Membership:
        """Who commits, for the moment."""

    def report(self, message: dict[str, Any]) -> None:
        """Tell the driver; what cannot be told is dropped."""

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than until a stop is requested or the driver is gone."""


class Uncontrolled:
    """A task without a driver of ours: it runs to its end and holds no group."""

    stop_requested = False

    def check_lease(self) -> None:
        """Nobody takes it away."""

    def begin(self) -> bool:
        return False

    def membership(self) -> Membership:
        return Membership()

    def report(self, message: dict[str, Any]) -> None:
        """Nobody listens; what cannot be made good is in the log of the task."""
        for each in message.get("partitions", ()):
            for kind, reason, lost, continued in each["incidents"]:
                if continued:
                    name = f"{each['topic']}-{each['partition']}"
                    _log.warning("%s went on after %s (lost: %s): %s", name, kind, lost, reason)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class ControlConnection:
    """
    A task's end. A thread reads what the driver says.

    Attributes:
        excluded: Source partitions that are stopped: not to be planned again.
        waiting: Whether there are partitions that wait, to be tried again.

    """

    def __init__(self, address: tuple[str, int], token: str) -> None:
        """
        Connect, and wait for the driver's first word.

        Raises:
            Stopped: There is no driver (any more): the task is an orphan.

        """
        self._changed = threading.Condition()
        self._stop = False
        self._orphan = False
        self._lease_until = 0.0
        self._membership = Membership()
        self._interrupted = False
        self.excluded: frozenset[TopicPartition] = frozenset()
        self.waiting = False
        where = f"the driver at {address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise Stopped(f"{where} is gone: {error}") from error
        self._lines = self._socket.makefile("rb")
        try:
            self._socket.sendall(_line({"hello": token}))
            self._hear(self._lines.readline(_LONGEST_STATE))
            self._interrupted = False
            self._socket.settimeout(None)
        except _NOT_UNDERSTOOD as error:
            self._lines.close()
            self._socket.close()
            raise Stopped(f"{where} is gone, or another than ours: {error}") from error
        self._thread = threading.Thread(target=self._listen, name="shoal-control", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(*_NOT_UNDERSTOOD):
            while line := self._lines.readline(_LONGEST_STATE):
                self._hear(line)
        with self._changed:
            # No stop: who ends early for want of a driver has failed.
            self._orphan = True
            self._changed.notify_all()

    def _hear(self, line: bytes) -> None:
        state = json.loads(line)
        member_id, generation, instance_id = state["membership"]
        membership = Membership(
            _of(str, member_id), _of(int, generation), None if instance_id is None else _of(str, instance_id)
        )
        excluded = frozenset(
            TopicPartition(_of(str, topic), _of(int, partition)) for topic, partition in state["excluded"]
        )
        stop, waiting = _of(bool, state["stop"]), _of(bool, state["waiting"])
        lease_s = _of(float, state["lease_s"])
        if not 0 <= lease_s <= _LONGEST_LEASE_S:  # nor is NaN
            raise ValueError(f"a lease of {lease_s} s")
        now = lease_clock_s()
        with self._changed:
            self._stop = stop
            self._interrupted |= now >= self._lease_until or membership != self._membership
            self._lease_until = now + lease_s
            self._membership = membership
            self.excluded = excluded
            self.waiting = waiting
            self._changed.notify_all()

    @property
    def stop_requested(self) -> bool:
        return self._stop

    def check_lease(self) -> None:
        if self._orphan:
            raise Stopped("the driver is gone: nothing more is produced")
        if lease_clock_s() >= self._lease_until:
            where = "the mirror's place in its consumer group (no heartbeat for too long)"
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where)
        if self._interrupted:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS, "the mirror's place in its consumer group")

    def begin(self) -> bool:
        with self._changed:
            interrupted, self._interrupted = self._interrupted, False
        return interrupted

    def membership(self) -> Membership:
        return self._membership

    def report(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(_line(message))

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop or self._orphan, timeout=seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> ControlConnection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def ask_letter(address: tuple[str, int], token: str) -> str:
    """
    Return what the driver has sealed for its tasks.

    Raises:
        Stopped: There is no driver (any more).

    """
    try:
        with (
            socket.create_connection(address, _CONNECT_TIMEOUT_S) as connection,
            connection.makefile("rb") as lines,
        ):
            connection.sendall(_line({"hello": token, "for": "credentials"}))
            return _of(str, json.loads(lines.readline(_LONGEST_STATE))["credentials"])
    except _NOT_UNDERSTOOD as error:
        where = f"the driver at {address[0]}:{address[1]}"
        raise Stopped(f"{where} is gone, or another than ours: {error}") from error


class ControlServer:
    """
    The driver's end: listens in threads, calls ``on_report`` from any of them.

    Attributes:
        address: Host and port for the tasks.
        token: What a task must say first.

    ``letter`` is handed to who asks for the credentials: they are sealed in it.

    """

    def __init__(
        self, host: str, token: str, on_report: Callable[[dict[str, Any]], None], letter: str = ""
    ) -> None:
        self.token = token
        self._letter = letter
        self._on_report = on_report
        self._lock = threading.Lock()
        self._tasks: set[socket.socket] = set()
        self._stop = False
        self._membership = Membership()
        self._excluded: frozenset[TopicPartition] = frozenset()
        self._waiting = False
        self._lease_until = lease_clock_s()
        serve = self._serve

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                serve(self.connection, self.rfile)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        try:
            self._server = Server((host, 0), Handler)
        except OSError as error:
            raise Disconnected(host, f"cannot listen for the tasks: {error}") from error
        self.address: tuple[str, int] = (host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_INTERVAL_S,), name="shoal-control", daemon=True
        )
        self._thread.start()

    def _serve(self, connection: socket.socket, lines: Any) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(_TELL_TIMEOUT_S, 0))
        try:
            connection.settimeout(_HELLO_TIMEOUT_S)
            words = json.loads(lines.readline(_LONGEST_HELLO))
            if not hmac.compare_digest(words["hello"].encode(), self.token.encode()):
                return
            if words.get("for") == "credentials":
                connection.sendall(_line({"credentials": self._letter}))
                return
            connection.settimeout(None)
            with self._lock:
                self._tasks.add(connection)
                connection.sendall(self._state())
            for line in lines:
                self._hear(json.loads(line))
        except _NOT_UNDERSTOOD:
            return  # a stranger, or a task that went away; Spark knows what to do about it
        finally:
            with self._lock:
                self._tasks.discard(connection)

    def _hear(self, report: dict[str, Any]) -> None:
        try:
            self._on_report(report)
        except Exception:
            # Somebody's callback: the task that reports has no part in it, and goes on.
            _log.exception("a report of a task could not be handled")

    def _state(self) -> bytes:
        membership = self._membership
        return _line(
            {
                "stop": self._stop,
                "lease_s": max(0.0, self._lease_until - lease_clock_s()),
                "membership": [membership.member_id, membership.generation, membership.instance_id],
                "excluded": sorted(self._excluded),
                "waiting": self._waiting,
            }
        )

    def renew(self, membership: Membership, lease_s: float) -> None:
        """Let the tasks produce for so long, and commit as this member."""
        with self._lock:
            self._membership = membership
            self._lease_until = lease_clock_s() + lease_s
            self._tell_all()

    def direct(self, excluded: Iterable[TopicPartition], waiting: bool) -> None:
        """Tell the planner which source partitions are stopped, and whether others wait to be tried again."""
        with self._lock:
            now = frozenset(excluded), waiting
            if now != (self._excluded, self._waiting):
                self._excluded, self._waiting = now
                self._tell_all()

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no task is connected; return whether that came true in time."""
        deadline = time.monotonic() + seconds
        while self._tasks and time.monotonic() < deadline:
            time.sleep(_IDLE_LOOK_S)
        return not self._tasks

    def request_stop(self) -> None:
        """Ask all tasks, and those to come, to finish what is in flight, commit and end."""
        with self._lock:
            self._stop = True
            self._tell_all()

    def _tell_all(self) -> None:
        for connection in self._tasks:
            try:
                connection.sendall(self._state())
            except OSError:
                # It may have half a line: nothing more can be said to it.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def stop_requested(self) -> bool:
        return self._stop

    def close(self) -> None:
        """Stop listening; tasks that still run are orphans then."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for connection in self._tasks:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


def _of(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
