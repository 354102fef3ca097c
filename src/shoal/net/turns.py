"""
Turns at work that takes CPU; the client that has used the least recently comes first.

A plain semaphore gives most turns to the client with the most connections and the most expensive requests.
Here, if a client comes only now and then, it waits for no more than the turns under way.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Turns"]

#: The half-life of a client's use.
_HALF_LIFE_S = 10.0

#: If the uses of two clients differ by less, the one that waits longer comes first.
_STEP_S = 0.1

#: The number of clients above which those without recent use are forgotten.
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class _Use:
    cpu_s: float
    at: float

    def recent(self, now: float) -> float:
        return self.cpu_s * math.exp2((self.at - now) / _HALF_LIFE_S)


@dataclass(slots=True, eq=False)
class _Waiting:
    clients: tuple[Hashable, ...]
    has_turn: bool = False
    woken: threading.Event = field(default_factory=threading.Event)


class Turns:
    """
    Lets a number of threads work at a time; the next turn goes to the client with the least recent use.

    Attributes:
        look_s: The interval at which a wait calls its check.

    """

    def __init__(self, places: int, look_s: float = 0.25) -> None:
        self.look_s = look_s
        self._free = places
        self._waiting: list[_Waiting] = []
        self._use: dict[Hashable, _Use] = {}
        self._working: set[Hashable] = set()
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        """The number of turns that no thread has."""
        return self._free

    @property
    def waiting(self) -> int:
        """The number of threads that wait for a turn."""
        return len(self._waiting)

    @contextmanager
    def turn(self, *clients: Hashable, check: Callable[[], object] | None = None) -> Iterator[None]:
        """
        Wait for a turn, and end it after the block.

        Args:
            clients: The names of the client, the widest first, such as its address and its connection. If
                two clients have the same use by the first name, the next name decides.
            check: Called repeatedly during the wait, in this thread; if it raises, the wait ends.

        """
        self._begin(_Waiting(clients), check)
        before_s = time.thread_time()
        with self._lock:
            self._working.add(clients[-1])
        try:
            yield
        finally:
            cpu_s = time.thread_time() - before_s
            with self._lock:
                self._working.discard(clients[-1])
                self._add(clients, cpu_s)
                self._pass_on()

    def works(self, connection: Hashable) -> bool:
        """Return whether a turn whose last name is this connection is under way."""
        with self._lock:
            return connection in self._working

    def look(self, connection: Hashable) -> None:
        """Make the wait whose last name is this connection call its ``check`` at once."""
        with self._lock:
            for each in self._waiting:
                if each.clients[-1] == connection:
                    each.woken.set()

    def _begin(self, waiting: _Waiting, check: Callable[[], object] | None) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            self._waiting.append(waiting)
        try:
            self._wait(waiting, check)
        except BaseException:  # of the check, or Ctrl-C in the main thread
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                else:
                    self._pass_on()
            raise

    def _wait(self, waiting: _Waiting, check: Callable[[], object] | None) -> None:
        while True:
            if check is not None:  # also after the wait: the client may be gone
                check()
            if waiting.has_turn:
                return
            waiting.woken.wait(None if check is None else self.look_s)
            waiting.woken.clear()

    def _pass_on(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        now = time.monotonic()
        following = min(self._waiting, key=lambda each: self._rank(each.clients, now))
        self._waiting.remove(following)
        following.has_turn = True
        following.woken.set()

    def _rank(self, clients: tuple[Hashable, ...], now: float) -> tuple[int, ...]:
        return tuple(int(self._recent(each, now) / _STEP_S) for each in clients)

    def _recent(self, client: Hashable, now: float) -> float:
        use = self._use.get(client)
        return use.recent(now) if use is not None else 0.0

    def _add(self, clients: tuple[Hashable, ...], cpu_s: float) -> None:
        now = time.monotonic()
        for each in clients:
            self._use[each] = _Use(self._recent(each, now) + cpu_s, now)
        if len(self._use) > _MOST_REMEMBERED:
            self._use = {each: use for each, use in self._use.items() if use.recent(now) >= _STEP_S}
