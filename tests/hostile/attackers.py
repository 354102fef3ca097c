"""
Many connections in one thread, each with one request of an attack at a time.

A request is done when an answer has come, or when the server has hung up. An API that may let a client wait
as long as the request says gets some patience and is then left without a word, as a client that dies would.
Any other that has no answer after a long time is a hang.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from shoal.protocol.apis import ApiKey

from .inputs import Input, Kind

__all__ = ["HANG_S", "End", "LogIn", "Tally", "attack"]

#: Logs in on a new socket.
LogIn = Callable[[socket.socket], None]

#: Answers to arrays of hundreds of partitions took 3 s. By the caller's clock, which may leave out what the
#: machine did meanwhile.
HANG_S = 60.0
#: A batch of so many records as may be takes a broker half a minute of a core.
_BOMB_HANG_S = 600.0
_WAIT_S = 0.5
_MAY_WAIT = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)

#: Behind a Produce request, which may want no answer: ApiVersions, answered or not served any more.
_SENTINEL_ID = 0x5E4711
_SENTINEL = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, _SENTINEL_ID, -1)

_RECEIVED_BYTES = 256 * 1024


class End(Enum):
    ANSWERED = "answered"
    HUNG_UP = "refused by hanging up"
    WAITED = "left while it waited"
    HUNG = "hung"


@dataclass
class Tally:
    """
    What came of requests.

    Attributes:
        longest_s: The longest time to an answer, of requests that neither wait nor are bombs.
        longest: Which request that was.
        hung: Requests without an answer.

    """

    ends: Counter[End] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0
    longest_s: float = 0.0
    longest: str = ""
    hung: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.ends.total()

    def add(self, sent: Input, end: End, took_s: float) -> None:
        self.ends[end] += 1
        self.kinds[sent.kind.value] += 1
        if end is End.HUNG:
            self.hung.append(str(sent))
        if sent.api not in _MAY_WAIT and sent.kind is not Kind.BOMB and took_s > self.longest_s:
            self.longest_s, self.longest = took_s, str(sent)


class _Connection:
    """One connection, and the request that is on it."""

    def __init__(self, address: tuple[str, int], log_in: LogIn | None) -> None:
        self.socket = socket.create_connection(address, timeout=HANG_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if log_in is not None:
            log_in(self.socket)
        self.socket.setblocking(False)
        self.sent: Input | None = None
        self.began = 0.0
        self.waits_since = 0.0
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._left_of_answer = 0

    def begin(self, sent: Input, now: float) -> None:
        """Send a request from now on, by the clock of whoever waits for the answer."""
        self.sent, self.began, self.waits_since = sent, time.monotonic(), now
        self._received.clear()
        self._left_of_answer = 0
        self._unsent = memoryview(sent.frame + (_SENTINEL if sent.api == ApiKey.PRODUCE else b""))

    @property
    def may_wait(self) -> bool:
        assert self.sent is not None
        return self.sent.api in _MAY_WAIT and self.sent.kind is not Kind.BOMB

    @property
    def patience_s(self) -> float:
        assert self.sent is not None
        if self.sent.kind is Kind.BOMB:
            return _BOMB_HANG_S
        return _WAIT_S if self.may_wait else HANG_S

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self) -> None:
        self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def receive(self, tally: Tally) -> End | None:
        """Read what there is; return how the request ended, if it did."""
        data = self.socket.recv(_RECEIVED_BYTES)
        if not data:
            return End.HUNG_UP
        tally.received_bytes += len(data)
        rest = memoryview(data)
        while rest:
            if self._left_of_answer:
                taken = min(self._left_of_answer, len(rest))
                self._left_of_answer -= taken
            else:
                taken = min(8 - len(self._received), len(rest))
                self._received += rest[:taken]
                if len(self._received) == 8:
                    self._left_of_answer = int.from_bytes(self._received[:4]) - 4
            rest = rest[taken:]
            if len(self._received) == 8 and self._left_of_answer <= 0:
                answered = int.from_bytes(self._received[4:])
                self._received.clear()
                assert self.sent is not None
                if self.sent.api != ApiKey.PRODUCE or answered == _SENTINEL_ID:
                    return End.ANSWERED
        return None


def attack(
    address: tuple[str, int],
    inputs: Iterator[Input],
    connections: int,
    clock: Callable[[], float] = time.monotonic,
    log_in: LogIn | None = None,
) -> Tally:
    """
    Send all inputs, over so many connections at a time, and return what came of them by a clock.

    Each connection logs in first if it is told how.
    """
    tally = Tally()
    selector = selectors.DefaultSelector()
    busy: set[_Connection] = set()

    def begin(connection: _Connection | None) -> None:
        """Send the next input on a connection that is free, or a new one; close it if there is none."""
        following = next(inputs, None)
        if following is None:
            if connection is not None:
                connection.socket.close()
            return
        if connection is None:
            connection = _Connection(address, log_in)
        connection.begin(following, clock())
        busy.add(connection)
        selector.register(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def end(connection: _Connection, how: End) -> None:
        selector.unregister(connection.socket)
        busy.discard(connection)
        assert connection.sent is not None
        tally.add(connection.sent, how, time.monotonic() - connection.began)
        if how is End.ANSWERED:
            begin(connection)
        else:
            connection.socket.close()
            begin(None)

    for _ in range(connections):
        begin(None)
    looked = time.monotonic()
    while busy:
        for key, events in selector.select(0.05):
            connection: _Connection = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    connection.send()
                    if not connection.has_unsent:
                        selector.modify(connection.socket, selectors.EVENT_READ, connection)
                how = connection.receive(tally) if events & selectors.EVENT_READ else None
            except OSError:
                how = End.HUNG_UP
            if how is not None:
                end(connection, how)
        if time.monotonic() - looked > 0.1:
            looked = time.monotonic()
            now = clock()
            for connection in [each for each in busy if now - each.waits_since > each.patience_s]:
                end(connection, End.WAITED if connection.may_wait else End.HUNG)
    selector.close()
    return tally
