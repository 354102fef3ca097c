"""
One mirror a group: the driver's membership in the source cluster's consumer group.

A thread sends heartbeats. Each one that succeeds renews the tasks' lease,
which is shorter than the session: when the group is lost (to a network that
fails, or another member after the session timed out), nobody produces any
more by the time that somebody else may begin.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import psutil

from ...client.cluster import Cluster, is_transient, patiently
from ...client.config import ClientConfig
from ...client.coordinator import JOIN_AGAIN, GroupMember, MemberId
from ...errors import BrokerError, ConfigError, GroupHeld, ShoalError
from ...state_directory import make_state_directory, open_no_link
from ...topic_partition import TopicPartition
from ..control import lease_clock_s

__all__ = ["GroupLock", "MirrorIdentity", "this_process"]

#: As Kafka's consumers since 3.0 (KIP-735); within any broker's default bounds.
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_S = 3.0

#: The tasks stop 15 s before the session ends: time for what was sent last to arrive.
LEASE_S = 30.0

#: How long the coordinator may take at the end of a mirror.
_RELEASE_PATIENCE_S = 2.0


_ANOTHER_DIRECTORY = "; make it writable, or name another with --checkpoint or XDG_STATE_HOME"


def _open_to_others(directory: Path, where: str) -> str | None:
    """Return a warning if other users may enter a directory."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & 0o077:
        return None
    return (
        f"{where}: other users of this machine may enter it (mode {mode:04o}), and Spark's log in it names "
        f"topics and hosts; if they should not, use `chmod 700 {directory}`"
    )


class MirrorIdentity:
    """
    Which mirror this is: a name kept in its checkpoint directory, held by one process at a time.

    A mirror that starts again from the same directory is the same mirror, and
    takes its place in the group at once; any other is refused.

    Attributes:
        name: Random, made at the first start.
        warning: What the user should know of the directory, if there is something.

    """

    def __init__(self, checkpoint: Path, *, is_given: bool = True) -> None:
        """
        Read or make the name.

        Args:
            checkpoint: The directory.
            is_given: Whether the user named it; if not, errors say how to name another.

        Raises:
            ConfigError: The directory cannot be used, or another process holds it.

        """
        self._path = checkpoint / "mirror-id"
        where = f"--checkpoint {checkpoint}" if is_given else f"the state directory {checkpoint}"
        advice = "" if is_given else _ANOTHER_DIRECTORY
        try:
            if is_given:
                checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                make_state_directory(checkpoint)
            self.warning = _open_to_others(checkpoint, where)
            self._file = open(self._path, "a+", encoding="ascii", opener=open_no_link)  # noqa: SIM115
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror}{advice}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConfigError(
                f"{where}: another shoal on this machine is at work in it; "
                "stop that mirror first. A mirror of other topics needs a --group of its own, and has a "
                "--checkpoint of its own then"
            ) from None
        except OSError as error:
            self._file.close()
            raise ConfigError(f"{where}: {error.strerror}{advice}") from error
        try:
            self._file.seek(0)
            self.name = self._file.read().strip() or self._make()
        except (OSError, UnicodeDecodeError) as error:
            self._file.close()
            raise ConfigError(f"{where}: mirror-id cannot be read or written{advice}") from error

    def _make(self) -> str:
        name = uuid.uuid4().hex
        self._file.write(name)
        self._file.flush()
        os.fsync(self._file.fileno())
        return name

    def release(self) -> None:
        self._file.close()


class GroupLock:
    """
    Holds the group from :meth:`acquire` to :meth:`release`.

    Attributes:
        lost: Why the group is lost for good, once it is.

    """

    def __init__(
        self,
        source: ClientConfig,
        group: str,
        mirror_name: str,
        on_renewed: Callable[[MemberId, float], None],
    ) -> None:
        """
        Args:
            source: The cluster whose group it is.
            group: Its name.
            mirror_name: From :class:`MirrorIdentity`.
            on_renewed: Told of the membership and of the seconds that the
                lease lasts from now; from the heartbeats' thread.
        """
        # Other tools show the client id: of the process that was the first to have this mirror's place.
        client_id = f"{source.client_id}@{socket.gethostname()}[{os.getpid()}]"
        self._cluster = Cluster(replace(source.impatient(), client_id=client_id))
        self._member = GroupMember(
            self._cluster,
            group,
            protocol=f"shoal-{mirror_name}",
            instance_id=f"shoal-{mirror_name}",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            description=this_process(),
        )
        self._on_renewed = on_renewed
        self._released = threading.Event()
        self._thread: threading.Thread | None = None
        self._assignment: tuple[TopicPartition, ...] = ()
        self._subscription_is_stale = False
        self.lost: ShoalError | None = None

    @property
    def failure(self) -> ShoalError | None:
        """Why the mirror has to end, once the group is lost."""
        if self.lost is None:
            return None
        return ShoalError(f"the mirror lost its consumer group and has ended: {self.lost}")

    def acquire(self, assignment: Iterable[TopicPartition], patience_s: float) -> None:
        """
        Join the group and keep it.

        Args:
            assignment: What Kafka's tools show as this member's partitions.
            patience_s: How long brokers that are not ready yet are asked.

        Raises:
            GroupHeld: Another mirror, or any consumer, is in the group.
            ShoalError: The group cannot be joined.

        """
        self._assignment = tuple(assignment)
        patiently(self._join, patience_s=patience_s, can_heal=_can_heal)
        self._thread = threading.Thread(target=self._keep, name="shoal-group", daemon=True)
        self._thread.start()

    def extend(self, assignment: Iterable[TopicPartition]) -> None:
        """
        Subscribe to more, with the next heartbeat; from any thread.

        A group's committed offsets expire where no member subscribes to their topic.
        The tasks have to resume then: the group's generation is a new one.

        """
        topics = {each.topic for each in self._assignment}
        self._assignment += tuple(assignment)
        if {each.topic for each in self._assignment} != topics:
            self._subscription_is_stale = True

    def _join(self) -> None:
        self._subscription_is_stale = False
        self._renew_after(lambda: self._member.join(self._assignment))

    def _renew_after(self, request: Callable[[], object]) -> None:
        # The lease counts from before the request: the session cannot have begun earlier.
        asked_s = lease_clock_s()
        request()
        self._on_renewed(self._member.membership, LEASE_S - (lease_clock_s() - asked_s))

    def _keep(self) -> None:
        while not self._released.wait(HEARTBEAT_INTERVAL_S):
            try:
                self._heartbeat()
            except GroupHeld as error:
                self.lost = error
                return
            except ShoalError as error:
                if not _can_heal(error):
                    self.lost = error
                    return

    def _heartbeat(self) -> None:
        if self._subscription_is_stale:
            self._join()
            return
        try:
            self._renew_after(self._member.heartbeat)
        except BrokerError as error:
            if error.code not in JOIN_AGAIN:
                raise
            self._join()

    def release(self) -> None:
        """Leave the group, so that a next mirror need not wait; never raises, and does not take long."""
        self._released.set()
        # Who does not answer will not hear that this member leaves, either: its session ends by itself.
        patience = threading.Timer(_RELEASE_PATIENCE_S, self._cluster.abort)
        patience.daemon = True
        patience.start()
        if self._thread:
            self._thread.join(2 * _RELEASE_PATIENCE_S)
            if self._thread.is_alive():
                return  # in a connect that cannot be given up; it ends with the process
        if patience.is_alive():
            with contextlib.suppress(ShoalError):
                self._member.leave()
        patience.cancel()
        self._cluster.close()

    def __enter__(self) -> GroupLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def this_process() -> str:
    """Return a phrase that names this process to the operator whose mirror finds the group held."""
    process = psutil.Process()
    started = datetime.fromtimestamp(process.create_time(), UTC)
    return f"shoal process {process.pid} on {socket.gethostname()}, started {started:%Y-%m-%d %H:%M:%S} UTC"


def _can_heal(error: ShoalError) -> bool:
    """Whether to try again: time heals it, or the group changed between two requests."""
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)
