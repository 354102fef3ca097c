"""Count the CPU and the memory of all processes of a mover, to the last.

A mover's processes come and go: Spark's daemons fork workers, and a worker may end without any parent that
waits for it. A control group (cgroup v2) counts them all, also those that live for a millisecond: the kernel
adds the CPU of a process to its group while it runs. Each mover gets a group of its own, and needs no
controller for it.

If this process may not create a group, the tree of processes is sampled ten times a second instead, and
`Account.is_exact` is False.
"""

import contextlib
import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

import psutil

from rig import wait_until
from rig.process import adopting_orphans, spawn

__all__ = ["Account", "Cpu", "group_parent", "running"]

_SAMPLE_INTERVAL_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Enters the group before the mover is executed, so that nothing of it runs outside.
_ENTER = 'echo $$ > "$0" && cd "$1" && shift && exec "$@"'
_ONLY_CHANGE_DIRECTORY = 'cd "$1" && shift && exec "$@"'

_groups = count(1)


@dataclass(frozen=True)
class Cpu:
    """User and system time of a mover's processes so far, in seconds.

    Attributes:
        total_s: All processes, ended ones included.
        jvm_s: Its Java processes.
        by_process: Each other process that runs now.
    """

    total_s: float
    jvm_s: float
    by_process: Mapping[int, float]

    def busiest_since(self, earlier: "Cpu") -> float:
        """Return the time of the process, other than Java's, that used most since an earlier reading."""
        return max(
            (cpu_s - earlier.by_process.get(pid, 0.0) for pid, cpu_s in self.by_process.items()), default=0.0
        )


class Account(Protocol):
    """The processes of a mover that runs."""

    is_exact: bool

    def cpu(self) -> Cpu:
        """Read the CPU so far."""

    def pids(self) -> Sequence[int]:
        """Return the processes that run now."""

    def rss(self) -> int:
        """Return the sum of the resident memory in bytes; a page that processes share counts for each."""

    def pss(self) -> int:
        """Return the sum of the memory in bytes; a shared page is divided among its processes."""

    def kill(self) -> None:
        """End all processes, and wait until none is left."""

    def reap(self) -> None:
        """Wait for ended processes that this process has adopted; the root is waited for already."""


@contextmanager
def running(
    arguments: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[tuple[subprocess.Popen[bytes], Account]]:
    """Run a command inside a ``with`` block, and end all its processes afterwards.

    Args:
        log: Gets the output.
        environment: Variables added to this process's own.
        directory: Working directory; None for this process's own.
    """
    where = directory or Path.cwd()
    parent = group_parent()
    with adopting_orphans():
        account: Account
        if parent is not None:
            group = _make_group(parent)
            account = _GroupAccount(group)
            enter = ["sh", "-c", _ENTER, group / "cgroup.procs", where, *arguments]
            process = spawn(enter, log, environment)
            wait_until(lambda: process.pid in account.pids() or process.poll() is not None, "the mover")
        else:
            process = spawn(["sh", "-c", _ONLY_CHANGE_DIRECTORY, "sh", where, *arguments], log, environment)
            account = _TreeAccount(process.pid)
        try:
            yield process, account
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            account.kill()
            process.wait()
            account.reap()


def group_parent() -> Path | None:
    """Return this process's own cgroup v2, if it may create groups in it; None otherwise."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        mounted = next(Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
        entries = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line.removeprefix("0::") for line in entries if line.startswith("0::"))
        parent = mounted / own.lstrip("/")
        probe = _make_group(parent)
        counts = (probe / "cpu.stat").exists()
        probe.rmdir()
    except (OSError, StopIteration):
        return None
    return parent if counts and os.access(parent / "cgroup.procs", os.W_OK) else None


def _make_group(parent: Path) -> Path:
    group = parent / f"bench-{os.getpid()}-{next(_groups)}"
    group.mkdir()
    return group


class _Memory(ABC):
    """Memory of processes by ``/proc``."""

    @abstractmethod
    def pids(self) -> Sequence[int]:
        """Return the processes that run now."""

    def rss(self) -> int:
        return sum(_resident(pid) for pid in self.pids())

    def pss(self) -> int:
        return sum(_proportional(pid) for pid in self.pids())


class _GroupAccount(_Memory):
    is_exact = True

    def __init__(self, group: Path) -> None:
        self._group = group
        self._seen: set[int] = set()
        # The last readings of processes that have ended, too.
        self._jvm_s: dict[int, float] = {}
        self._others_s: dict[int, float] = {}

    def cpu(self) -> Cpu:
        fields = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        for pid in self.pids():
            if (found := _own_cpu(pid)) is not None:
                is_jvm, cpu_s, _ = found
                (self._jvm_s if is_jvm else self._others_s)[pid] = cpu_s
        return Cpu(int(fields["usage_usec"]) / 1e6, sum(self._jvm_s.values()), dict(self._others_s))

    def pids(self) -> Sequence[int]:
        pids = [int(pid) for pid in (self._group / "cgroup.procs").read_text().split()]
        self._seen.update(pids)
        return pids

    def kill(self) -> None:
        self.pids()
        with contextlib.suppress(OSError):  # before Linux 5.14
            (self._group / "cgroup.kill").write_text("1")

        def is_removed() -> bool:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self._group.rmdir()
            except OSError:
                return False  # a process is about to end
            return True

        wait_until(is_removed, "the end of the mover's processes")

    def reap(self) -> None:
        _reap(self._seen)


class _TreeAccount(_Memory):
    """The processes below one, sampled: what a process used after its last sample may be missing.

    Two estimates are made, both too low, and the higher one counts: the last readings of all processes seen,
    and the live processes' own times with those of the children that they waited for.
    """

    is_exact = False

    def __init__(self, root: int) -> None:
        self._others = {child.pid for child in psutil.Process().children()} - {root}
        self._known = {root: psutil.Process(root)}
        self._own_s: dict[int, tuple[bool, float]] = {}
        self._waited_s = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="account", daemon=True)
        self._thread.start()

    def cpu(self) -> Cpu:
        with self._lock:
            self._find_descendants()
            own_and_waited_s = 0.0
            others: dict[int, float] = {}
            for pid in self._known:
                if (found := _own_cpu(pid)) is not None:
                    is_jvm, cpu_s, waited_s = found
                    self._own_s[pid] = is_jvm, cpu_s
                    own_and_waited_s += cpu_s + waited_s
                    if not is_jvm:
                        others[pid] = cpu_s
            self._waited_s = max(self._waited_s, own_and_waited_s)
            readings_s = sum(cpu_s for _, cpu_s in self._own_s.values())
            jvm_s = sum(cpu_s for is_jvm, cpu_s in self._own_s.values() if is_jvm)
            return Cpu(max(readings_s, self._waited_s), jvm_s, others)

    def pids(self) -> Sequence[int]:
        with self._lock:
            self._find_descendants()
            if not self._running():  # a child was forked, and its parent has ended, in this moment
                self._find_descendants()
            return self._running()

    def kill(self) -> None:
        self._over.set()
        self._thread.join()

        def all_ended() -> bool:
            survivors = self.pids()
            for pid in survivors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not survivors

        wait_until(all_ended, "the end of the mover's processes")

    def reap(self) -> None:
        _reap(self._known)

    def _running(self) -> Sequence[int]:
        return [pid for pid, process in self._known.items() if _runs(process)]

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_INTERVAL_S):
            self.cpu()

    def _find_descendants(self) -> None:
        children: dict[int, list[psutil.Process]] = {}
        for process in psutil.process_iter(["ppid"]):
            children.setdefault(process.info["ppid"], []).append(process)
        for child in children.get(os.getpid(), []):  # an orphan that this process has adopted
            if child.pid not in self._others:
                self._known.setdefault(child.pid, child)
        unvisited = list(self._known)
        while unvisited:
            for child in children.get(unvisited.pop(), []):
                if child.pid not in self._known:
                    self._known[child.pid] = child
                    unvisited.append(child.pid)


def _own_cpu(pid: int) -> tuple[bool, float, float] | None:
    """Return whether a process is Java, its CPU, and that of children it waited for; None if it has ended."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
    except OSError:
        return None
    user, system, children_user, children_system = map(int, rest.split()[11:15])
    return name == "java", (user + system) / _TICKS_PER_S, (children_user + children_system) / _TICKS_PER_S


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _reap(pids: Collection[int]) -> None:
    """Wait for those of these processes that this process has adopted and that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
