"""The clients of an attack: many that send one request at a time, and others beside them.

A request is done if a response has come, or if the server has closed the connection. If a request may make
the server wait, the attacker waits for a while and then disconnects without a word, as a client that dies.
Any other request without a response after a long time is a hang.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from tests import old_messages
from tests.broker.wire import Wire, framed
from tests.world.batches import batch

from .inputs import TOPICS, Input, Kind, draw_input

__all__ = [
    "HANG_S",
    "PASSWORD",
    "PROBED_TOPIC",
    "USER",
    "End",
    "LogIn",
    "Tally",
    "attack",
    "crowd",
    "honest_client",
    "log_in",
]

USER, PASSWORD = "alice", "alice-secret"

#: Logs in on a new socket.
LogIn = Callable[[socket.socket], None]

#: Long, since the machine may run other programs: responses with hundreds of partitions took 3 s.
HANG_S = 120.0
#: A batch with the largest number of records takes a broker half a minute of a core.
_BOMB_HANG_S = 600.0
_WAIT_S = 0.5

#: After a Produce request, which may get no response: ApiVersions, answered or no longer served.
_SENTINEL_ID = 0x5E4711
_SENTINEL = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, _SENTINEL_ID, -1)

#: Exists while an honest client asks.
PROBED_TOPIC = "probe"
_LONGEST_WAIT_MS = 2**31 - 1


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


def attack(
    address: tuple[str, int],
    inputs: Iterator[Input],
    connections: int,
    log_in: LogIn | None = None,
    *,
    may_wait: Collection[int] = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
) -> Tally:
    """
    Send all inputs over this many connections at a time.

    Args:
        log_in: Logs in on each of them, if it is given.
        may_wait: The APIs whose requests the server may let wait.

    """
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
                if log_in is not None:
                    log_in(client)
            end = _send(client, sent, may_wait=sent.api in may_wait)
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


def log_in(client: socket.socket, user: str = USER, password: str = PASSWORD) -> None:
    """Log in by PLAIN, on a socket with a timeout; AssertionError if that is refused."""
    handshake = struct.pack(">hhihh", ApiKey.SASL_HANDSHAKE, 1, 17, -1, 5) + b"PLAIN"
    token = framed(f"\0{user}\0{password}".encode())
    client.sendall(
        framed(handshake) + framed(struct.pack(">hhih", ApiKey.SASL_AUTHENTICATE, 0, 36, -1) + token)
    )
    for _ in range(2):
        answer = _read_exactly(client, int.from_bytes(_read_exactly(client, 4)))
        assert answer[4:6] == b"\0\0", answer


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


@contextlib.contextmanager
def crowd(address: tuple[str, int], draw: random.Random) -> Iterator[None]:
    """
    Occupy connections.

    40 clients connect and send nothing. 4 request much data and never read. 8 send a request byte by byte. 24
    begin a request, or request a wait of 24 days, and disconnect, half of them by a reset.
    """
    with contextlib.ExitStack() as stack:

        def connect(data: bytes = b"") -> socket.socket:
            client = stack.enter_context(socket.create_connection(address, timeout=10))
            client.settimeout(1)
            _send_some(client, data)
            return client

        for _ in range(40):
            connect()
        for _ in range(4):
            connect(_fetch(0) * 20)
        for number in range(24):
            client = connect(_fetch(_LONGEST_WAIT_MS) if number % 3 else _any_request(draw)[:-3])
            if number % 2:
                # A reset, as if the client's machine had failed.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        slow = [(connect(), _any_request(draw)) for _ in range(8)]

        def send_slowly(turn: int) -> None:
            for client, request in slow:
                _send_some(client, request[turn % len(request)].to_bytes())

        with _repeating(send_slowly, 0.2):
            yield


def _send_some(client: socket.socket, data: bytes) -> None:
    # The server may have disconnected, or have no room for a deaf client's request.
    with contextlib.suppress(OSError):
        client.sendall(data)


def _any_request(draw: random.Random) -> bytes:
    return draw_input(0, draw.randrange(1 << 32)).frame


def _fetch(wait_ms: int) -> bytes:
    """Write a Fetch v4 of a topic's end or beginning; at -1, an invalid offset, a broker does not wait."""
    asked = old_messages.schema(ApiKey.FETCH, 4, is_request=True)(
        -1, wait_ms, 1, 50 << 20, 0, [(topic, [(0, 0, 1 << 20)]) for topic in TOPICS]
    )
    return framed(old_messages.encode_request(asked, 1, "crowd"))


@contextlib.contextmanager
def honest_client(address: str, log_in: LogIn | None, problems: list[str]) -> Iterator[list[float]]:
    """
    Connect, read metadata, write a record and read it, twice a second, until the end.

    Args:
        problems: Receives the failures.

    Yields:
        The seconds of each successful round.

    """
    served: list[float] = []

    def look(_: int) -> None:
        began = time.monotonic()
        try:
            with Wire(address, "honest") as wire:
                if log_in is not None:
                    log_in(wire.socket)
                _write_and_read(wire)
        except Exception as error:
            problems.append(f"an honest client: {type(error).__name__}: {error}")
        else:
            served.append(time.monotonic() - began)

    with _repeating(look, 0.5):
        yield served


def _write_and_read(wire: Wire) -> None:
    assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
    # Retention could delete an older one before it is read.
    written = batch(1, base_timestamp=int(time.time() * 1000))
    appended = wire.produce(PROBED_TOPIC, written, version=9)
    assert appended.error_code == ErrorCode.NONE, ErrorCode(appended.error_code)
    fetched = wire.fetch(PROBED_TOPIC, appended.base_offset)
    assert fetched.error_code == ErrorCode.NONE, ErrorCode(fetched.error_code)
    assert len(fetched.record_set) == len(written)


@contextlib.contextmanager
def _repeating(act: Callable[[int], Any], every_s: float) -> Iterator[None]:
    """Act in a thread, at least once, until the end."""
    ended = threading.Event()

    def run() -> None:
        turn = 0
        while True:
            act(turn)
            turn += 1
            if ended.wait(every_s):
                return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
