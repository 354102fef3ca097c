"""The threads and sockets of another process: how many it holds, and the most that it held at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

__all__ = ["Held", "Watch", "held"]

#: Between two counts. A thread or socket that lives shorter is seen only by chance.
_EVERY_S = 0.01


class Held(NamedTuple):
    """Numbers of threads and sockets; files are not counted, because a broker's logs may grow."""

    threads: int
    sockets: int

    def exceeds(self, other: Held) -> bool:
        return self.threads > other.threads or self.sockets > other.sockets


def held(process_id: int) -> Held:
    """Count the threads and sockets that a process holds at this moment.

    A single look takes a while, and would count both one that ends meanwhile and one that begins. Those that
    are there in two looks, one right after the other, were all there between the two.
    """
    first, second = _look(process_id), _look(process_id)
    return Held(*(len(before & after) for before, after in zip(first, second, strict=True)))


def _look(process_id: int) -> tuple[set[str], set[str]]:
    """Return the ids of all threads, and the inodes of all sockets."""
    process = Path(f"/proc/{process_id}")
    threads = {each.name for each in (process / "task").iterdir()}
    return threads, set(_sockets(process / "fd"))


def _sockets(descriptors: Path) -> Iterator[str]:
    for each in descriptors.iterdir():
        with contextlib.suppress(OSError):
            name = str(each.readlink())
            if name.startswith("socket:"):
                yield name


class Watch:
    """Records the most threads and sockets of a process while it is entered."""

    def __init__(self, process_id: int) -> None:
        self.most = Held(0, 0)
        self._process_id = process_id
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # another check finds a process that ended
            while not self._ended.wait(_EVERY_S):
                now = held(self._process_id)
                self.most = Held(*map(max, self.most, now))
