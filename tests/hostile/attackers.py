"""The clients of an attack: many that send one request at a time.

A request is done if a response has come, or if the server has closed the connection. If a request may make
the server wait, the attacker waits for a while and then disconnects without a word, as a client that dies.
Any other request without a response after a long time is a hang.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from shoal.protocol.apis import ApiKey

from .inputs import Input, Kind

__all__ = ["HANG_S", "End", "Tally", "attack"]

#: The APIs whose requests the server may let wait.
_MAY_WAIT = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)

#: Long, since the machine may run other programs: responses with hundreds of partitions took 3 s.
HANG_S = 120.0
#: A batch with the largest number of records takes a broker half a minute of a core.
_BOMB_HANG_S = 600.0
_WAIT_S = 0.5

#: After a Produce request, which may get no response: ApiVersions, answered or no longer served.
_SENTINEL_ID = 0x5E4711
_SENTINEL = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, _SENTINEL_ID, -1)


class End(Enum):
    ANSWERED = "answered"
    HUNG_UP = "refused by hanging up"
    WAITED = "left while they waited"
    HUNG = "hung"


class Tally:
    """
    The results of requests.

    Attributes:
        ends: Their numbers, by their end.
        hung: Those without a response.

    """

    def __init__(self) -> None:
        self.ends: Counter[End] = Counter()
        self.hung: list[str] = []
        self._lock = threading.Lock()

    def add(self, sent: Input, end: End) -> None:
        with self._lock:
            self.ends[end] += 1
            if end is End.HUNG:
                self.hung.append(str(sent))


def attack(address: tuple[str, int], inputs: Iterator[Input], connections: int) -> Tally:
    """Send all inputs over this many connections at a time."""
    tally = Tally()
    lock = threading.Lock()

    def send_on() -> None:
        client: socket.socket | None = None
        while True:
            with lock:
                sent = next(inputs, None)
            if sent is None:
                break
            if client is None:
                client = socket.create_connection(address, timeout=HANG_S)
            end = _send(client, sent, may_wait=sent.api in _MAY_WAIT)
            tally.add(sent, end)
            if end is not End.ANSWERED:
                client.close()
                client = None
        if client is not None:
            client.close()

    with ThreadPoolExecutor(connections) as pool:
        for each in [pool.submit(send_on) for _ in range(connections)]:
            each.result()
    return tally


def _send(client: socket.socket, sent: Input, *, may_wait: bool) -> End:
    """Send a request, and read its response without keeping it."""
    is_bomb, is_produce = sent.kind is Kind.BOMB, sent.api == ApiKey.PRODUCE
    may_wait = may_wait and not is_bomb
    client.settimeout(_BOMB_HANG_S if is_bomb else _WAIT_S if may_wait else HANG_S)
    try:
        client.sendall(sent.frame + (_SENTINEL if is_produce else b""))
        answered = None
        while answered is None or (is_produce and answered != _SENTINEL_ID):
            answered = _read_id(client)
    except TimeoutError:
        return End.WAITED if may_wait else End.HUNG
    except OSError:
        return End.HUNG_UP
    return End.ANSWERED


def _read_id(client: socket.socket) -> int:
    """Read a response, and return its correlation id."""
    head = _read_exactly(client, 8)
    left = int.from_bytes(head[:4]) - 4
    while left > 0:
        left -= len(_read_exactly(client, min(left, 1 << 18)))
    return int.from_bytes(head[4:])


def _read_exactly(client: socket.socket, count: int) -> bytes:
    """Read so many bytes; ConnectionResetError if the server disconnects before."""
    data = bytearray()
    while len(data) < count:
        received = client.recv(count - len(data))
        if not received:
            raise ConnectionResetError
        data += received
    return bytes(data)
