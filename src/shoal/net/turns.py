"""
Turns at something that takes CPU, given to the client that has used the least of late.

A plain semaphore gives most turns to the client with the most connections and the dearest requests. Here a
client that comes now and then waits for no more than the turns under way, whatever the others ask for.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Turns"]

#: Who waits looks so often whether there is still somebody to wait for.
_LOOK_S = 0.25

#: After so long half of what a client has used is forgotten.
_HALF_LIFE_S = 10.0

#: Clients whose use of late differs by less take turns in the order in which they came.
_STEP_S = 0.1

#: More clients than this are looked through for those that have used nothing of late.
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
    """Lets so many threads work at a time; a turn passes on to the waiting client with the least use."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[_Waiting] = []
        self._use: dict[Hashable, _Use] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, *clients: Hashable, check: Callable[[], object] | None = None) -> Iterator[None]:
        """
        Wait for a turn, and end it.

        Args:
            clients: The client by several names, the widest first, such as its address and its connection:
                a later one decides between clients with the same use by the earlier ones.
            check: Called now and then during a wait, in this thread; an error of it ends the wait.

        """
        self._begin(_Waiting(clients), check)
        before_s = time.thread_time()
        try:
            yield
        finally:
            cpu_s = time.thread_time() - before_s
            with self._lock:
                self._add(clients, cpu_s)
                self._pass_on()

    def look(self, connection: Hashable) -> None:
        """Have whoever waits with this as the last of its names call its ``check`` at once."""
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

    @staticmethod
    def _wait(waiting: _Waiting, check: Callable[[], object] | None) -> None:
        while True:
            if check is not None:  # also with a turn: nobody may be left to use it for
                check()
            if waiting.has_turn:
                return
            waiting.woken.wait(None if check is None else _LOOK_S)
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
