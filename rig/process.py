"""
Child processes that never outlive this Python process.

Linux can kill a child when its parent dies (``PR_SET_PDEATHSIG``), even by SIGKILL. But "parent"
there means the *thread* that forked: a broker started from a worker thread would die with that
thread. So every child is forked by one thread that lives as long as the process.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["adopting_orphans", "cpu_seconds_of", "forget_peak_rss_of", "peak_rss_of", "spawn", "tail"]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rig-forker")
# Loaded here, because loading a library between fork and exec could deadlock.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _begin() -> None:
    # A shell starts background jobs, such as nightly tests, with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    arguments: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    errors: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child whose stdout and stderr are appended to ``log``.

    The child has a session of its own. If you press Ctrl-C, the terminal signals only this process,
    which then stops its children in order.

    Args:
        environment: Variables added to this process's own.
        errors: Gets stderr instead.
    """

    def fork() -> subprocess.Popen[bytes]:
        with log.open("ab") as output, (errors or log).open("ab") as stderr:
            return subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=_begin,
            )

    return _forker.submit(fork).result()


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Become the parent of descendants whose own parent ends, so that none is lost."""
    _set_subreaper(1)
    try:
        yield
    finally:
        _set_subreaper(0)


def _set_subreaper(on: int) -> None:
    if _libc is not None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, on)


def tail(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log file, for an error text."""
    if not log.exists():
        return "(no output)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def peak_rss_of(process_id: int) -> int:
    """Return the highest resident set size since its start or `forget_peak_rss_of`, in bytes.

    Linux only (VmHWM in /proc); 0 for a process that has ended.
    """
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak_rss_of(process_id: int) -> None:
    """Let the peak of `peak_rss_of` begin at what the process has now; Linux only, as that is."""
    with suppress(FileNotFoundError):
        Path(f"/proc/{process_id}/clear_refs").write_text("5")


def cpu_seconds_of(process: subprocess.Popen[bytes]) -> float:
    """Return the user and system time of a process; 0 after its end."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
