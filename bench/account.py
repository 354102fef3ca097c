"""Count the CPU and the memory of all processes of a mover, to the last.

A mover's processes come and go: Spark's daemons fork workers, and a worker may end without any parent that
waits for it. A control group (cgroup v2) counts them all, also those that live for a millisecond: the kernel
adds the CPU of a process to its group while it runs. Each mover gets a group of its own, and needs no
controller for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from rig import wait_until
from rig.process import adopting_orphans, spawn

__all__ = ["Account", "NoControlGroup", "group_parent", "running"]


# Enters the group before the mover is executed, so that nothing of it runs outside.
_ENTER = 'echo $$ > "$0" && cd "$1" && shift && exec "$@"'

_groups = count(1)


class NoControlGroup(Exception):
    """This process may not create a control group."""


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
    if parent is None:
        raise NoControlGroup(
            "a mover's CPU is counted by a control group (cgroup v2), and this process may not create one. "
            "Run the bench as root, or in a slice that systemd delegates to your user"
        )
    with adopting_orphans():
        group = _make_group(parent)
        account = Account(group)
        enter = ["sh", "-c", _ENTER, group / "cgroup.procs", where, *arguments]
        process = spawn(enter, log, environment)
        wait_until(lambda: process.pid in account.pids() or process.poll() is not None, "the mover")
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


class Account:
    """The processes of a mover that runs, in a control group."""

    def __init__(self, group: Path) -> None:
        self._group = group
        self._seen: set[int] = set()

    def cpu_s(self) -> float:
        """Return the user and system time of all processes so far, ended ones included."""
        fields = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def pids(self) -> Sequence[int]:
        """Return the processes that run now."""
        pids = [int(pid) for pid in (self._group / "cgroup.procs").read_text().split()]
        self._seen.update(pids)
        return pids

    def pss(self) -> int:
        """Return the sum of the memory in bytes; a shared page is divided among its processes."""
        return sum(_proportional(pid) for pid in self.pids())

    def kill(self) -> None:
        """End all processes, and wait until none is left."""
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
        """Wait for ended processes that this process has adopted; the root is waited for already."""
        for pid in self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
