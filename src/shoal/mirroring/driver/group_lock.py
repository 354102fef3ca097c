"""
One mirror for each group: the driver is the only member of the source cluster's consumer group.

Each successful heartbeat renews the tasks' lease, which is shorter than the session.
If the group is lost, to a network failure or to a member that joined after the session timed out, the lease
ends first: no task produces when another mirror may begin.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import psutil

from ...client.assignors import Assignor, Member
from ...client.config import ClientConfig
from ...client.coordinator import MemberId
from ...client.membership import Membership, MembershipSettings, RebalanceListener
from ...errors import ConfigError, Disconnected, ShoalError
from ...state_directory import make_state_directory, open_no_link
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..control import lease_clock_s
from ..model.text import utc

__all__ = ["GroupLock", "MirrorIdentity", "this_process"]

#: As Kafka's consumers since 3.0 (KIP-735); within any broker's default bounds.
SESSION_TIMEOUT_MS = 45_000

#: The tasks stop 15 s before the session ends: time for the last requests to arrive.
LEASE_S = 30.0

_ANOTHER_DIRECTORY = ". Make it writable, or set another by --checkpoint or XDG_STATE_HOME"


def _open_to_others(directory: Path, where: str) -> str | None:
    """Return a warning if other users may enter a directory."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & 0o077:
        return None
    return (
        f"{where}: other users of this machine may enter it (mode {mode:04o}), and Spark's log in it names "
        f"topics and hosts. If they should not, use `chmod 700 {directory}`"
    )


class MirrorIdentity:
    """
    The name of a mirror: kept in its checkpoint directory, held by one process at a time.

    A mirror that starts again from the same directory is the same mirror, and
    takes its place in the group at once; any other is refused.

    Attributes:
        name: Random, made at the first start.
        warning: A warning about the directory; None if there is none.

    """

    def __init__(self, checkpoint: Path, *, is_given: bool = True) -> None:
        """
        Read or make the name.

        Args:
            is_given: Whether the user named it; if not, errors say how to name another.

        Raises:
            ConfigError: The directory cannot be used, or another process holds it.

        """
        where = f"{'checkpoint' if is_given else 'state'} directory '{checkpoint}'"
        with contextlib.ExitStack() as opened:
            try:
                if is_given:
                    checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
                else:
                    make_state_directory(checkpoint)
                self.warning = _open_to_others(checkpoint, where)
                path = checkpoint / "mirror-id"
                self._file = opened.enter_context(open(path, "a+", encoding="ascii", opener=open_no_link))
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._file.seek(0)
                self.name = self._file.read().strip() or self._make()
            except BlockingIOError:
                raise ConfigError(
                    f"{where}: another shoal on this machine uses it. Stop that mirror first. A mirror of "
                    "other topics needs its own --group, and has its own directory then. An archive has one "
                    "mirror for all its topics"
                ) from None
            except (OSError, UnicodeDecodeError) as error:
                cause = getattr(error, "strerror", None) or "mirror-id cannot be read or written"
                raise ConfigError(f"{where}: {cause}" + ("" if is_given else _ANOTHER_DIRECTORY)) from error
            opened.pop_all()

    def _make(self) -> str:
        name = uuid.uuid4().hex
        self._file.write(name)
        self._file.flush()
        os.fsync(self._file.fileno())
        return name

    def release(self) -> None:
        """Let another process use the directory."""
        self._file.close()


class GroupLock:
    """Holds the group from :meth:`acquire` to :meth:`release`."""

    def __init__(
        self,
        source: ClientConfig,
        group: str,
        mirror_name: str,
        on_renewed: Callable[[MemberId, float], None],
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Prepare the member; :meth:`acquire` sends the first request.

        Args:
            source: The cluster of the group.
            mirror_name: From :class:`MirrorIdentity`.
            on_renewed: Called after each successful join and heartbeat, from the member's thread. It receives
                the member's id and the seconds for which the tasks' lease lasts from now.
            timing: The time between two heartbeats.

        """
        # Kafka's tools show the client id of the process that was the first in this mirror's place.
        client_id = f"{source.client_id}@{socket.gethostname()}[{os.getpid()}]"
        name = f"shoal-{mirror_name}"
        self._partitions: tuple[TopicPartition, ...] = ()
        self._group = group
        self._on_renewed = on_renewed
        self._has_news = threading.Event()
        self._is_acquired = False
        self._member = Membership(
            replace(source, client_id=client_id),
            MembershipSettings(
                group,
                instance_id=name,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=round(timing.heartbeat_interval_s * 1000),
                max_poll_interval_ms=SESSION_TIMEOUT_MS,
            ),
            self._has_news.set,
            on_renewed=self._renew,
            clock=lease_clock_s,
            # The name refuses every other mirror, and describe_holder shows it the process.
            sole=Assignor(name, self._take_all, this_process().encode()),
        )

    def _take_all(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> dict[str, list[TopicPartition]]:
        """Give the mirror's partitions to the only member: Kafka's tools show them."""
        return {member.member_id: list(self._partitions) for member in members}

    @property
    def failure(self) -> ShoalError | None:
        """The error with which the mirror has to end, once the group is lost."""
        lost = self._member.error
        return lost and ShoalError(f"the mirror lost its consumer group and has ended: {lost}")

    def acquire(self, assignment: Iterable[TopicPartition], patience_s: float) -> None:
        """
        Join the group and keep it.

        Args:
            assignment: The partitions that Kafka's tools show for this member.
            patience_s: The limit for brokers that are not ready yet.

        Raises:
            GroupHeld: Another mirror, or any consumer, is in the group.
            ShoalError: The group cannot be joined.

        """
        deadline = time.monotonic() + patience_s
        self.extend(assignment)
        while not self._is_acquired:
            has_news = self._has_news.wait(max(0.0, deadline - time.monotonic()))
            self._has_news.clear()
            error = self._member.error or (None if has_news else self._member.last_failure)
            if error is not None:
                raise error
            if not has_news:
                raise Disconnected(
                    f"the coordinator of group {self._group!r}", f"no answer in {patience_s:g} s"
                )

    def extend(self, assignment: Iterable[TopicPartition]) -> None:
        """
        Subscribe to the topics of more partitions; from any thread.

        The committed offsets of a group expire if none of its members subscribes to their topic.
        The join begins a new generation, so the tasks resume.

        """
        self._partitions += tuple(assignment)
        self._member.subscribe({each.topic for each in self._partitions})

    def begin_generation(self) -> None:
        """
        Join again, from any thread: the coordinator refuses all earlier commits then.

        The group's only member leads it, and a leader that joins begins a new generation
        (``ClassicGroupManager``).
        """
        self._member.join_again()

    def _renew(self, member: MemberId, asked_s: float) -> None:
        # The lease counts from before the request: the session cannot have begun earlier.
        self._on_renewed(member, LEASE_S - (lease_clock_s() - asked_s))
        self._is_acquired = True
        self._has_news.set()

    def release(self) -> None:
        """Leave the group, so that the next mirror need not wait; takes at most 4 s, and never raises."""
        self._member.close(RebalanceListener())

    def __enter__(self) -> GroupLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def this_process() -> str:
    """Return a phrase that names this process to the operator whose mirror finds the group held."""
    process = psutil.Process()
    return f"shoal process {process.pid} on {socket.gethostname()}, started {utc(process.create_time())}"
