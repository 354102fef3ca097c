"""Many connections in one thread, each with one request of an attack at a time.

A request is done if a response has come, or if the server has closed the connection. If a request may make
the server wait, the attacker waits for a while and then disconnects without a word, as a client that dies.
Any other request without a response after a long time is a hang.
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

#: Responses with arrays of hundreds of partitions took 3 s. By the caller's clock, which may exclude time
#: that the machine spent on other programs.
HANG_S = 60.0
#: A batch with the largest number of records takes a broker half a minute of a core.
_BOMB_HANG_S = 600.0
_WAIT_S = 0.5
_MAY_WAIT = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)

#: After a Produce request, which may get no response: ApiVersions, answered or no longer served.
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
    """Results of requests.

    Attributes:
        longest_s: The longest response time, of requests that neither wait nor are bombs.
        longest: The request that took it.
        hung: Requests without a response.
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
    """One connection, and its current request."""

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
        """Start to send a request, at a time of the clock that measures the response."""
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
        """Read the available bytes; return how the request ended, if it did."""
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
    """Send all inputs, over this many connections at a time, and return the results by a clock.

    If `log_in` is given, each connection logs in first.
    """
    tally = Tally()
    selector = selectors.DefaultSelector()
    busy: set[_Connection] = set()

    def begin(connection: _Connection | None) -> None:
        """Send the next input on a free connection, or a new one; close it if there is none."""
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
