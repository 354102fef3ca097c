"""TCP proxies in front of a cluster's brokers, which cut connections at frames of Kafka's protocol.

Every request and response is a frame: a length (int32, big-endian), then as many bytes. A request
begins with its API key (int16); a broker answers the requests of a connection in order. From this,
a proxy derives the API of every frame.

The brokers advertise the proxies' ports (``KafkaCluster(behind_proxies=True)``). If a client
bootstraps at a proxy, it never connects around the proxies; clients of ``KafkaCluster.bootstrap``
use none.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from rig.cluster import ProxiedPort

__all__ = ["Disturbance", "Proxies", "Step", "frames_waiting_in"]

_CONNECT_TIMEOUT_S = 5.0
_LISTEN_BACKLOG = 128

#: More than the requests of a trial take.
_MOST_WAITING_BYTES = 4 * 1024 * 1024
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")

#: A frame's length, and the API key at the start of a request.
_SHORTEST_REQUEST = 4 + _INT16.size
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for 0 s. The peer gets a RST and loses its unread bytes."""


class Step(Enum):
    """Steps in the exchange of one request and its response."""

    BEFORE_REQUEST = "before the request"
    """The broker gets no part of it."""
    WITHIN_REQUEST = "within the request"
    """The broker gets its first half."""
    AFTER_REQUEST = "after the request"
    """The broker gets all of it; its effect is unknown."""
    BEFORE_RESPONSE = "before the response"
    """The broker has answered; the client gets no response: a lost acknowledgement."""
    WITHIN_RESPONSE = "within the response"
    """The client gets the first half."""

    @property
    def is_of_response(self) -> bool:
        return self in (Step.BEFORE_RESPONSE, Step.WITHIN_RESPONSE)


@dataclass(eq=False)
class Disturbance:
    """A fault that a proxy injects into one kind of request, at one step.

    Attributes:
        api_key: The API of the requests.
        step: The step at which it occurs.
        after: Number of requests of this API that pass first.
        times: Number of requests that it then affects.
        stall_s: Seconds for which it holds the exchange. If the client closes the connection meanwhile,
            the held frame is dropped, as by a network that lost it.
        cut: Then close the connection, to both sides.
        reset: Reset the client's connection (RST) instead of closing it.
        late: If the client closes its connection during a stall before the request, deliver the request
            all the same. A network does so that delayed a packet.
        hits: Number of requests affected so far.
    """

    api_key: int
    step: Step
    after: int = 0
    times: int = 1
    stall_s: float = 0.0
    cut: bool = True
    reset: bool = False
    late: bool = False
    hits: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)


@dataclass
class _Exchange:
    """A request that waits for its response."""

    api_key: int
    disturbance: Disturbance | None


class Proxies:
    """One proxy for each broker of a cluster, inside a ``with`` block.

    If a broker is down, its proxy closes every connection at once.

    Attributes:
        delays_s: Delay before each request of an API is forwarded, by API key.
    """

    def __init__(self, ports: Mapping[int, ProxiedPort]) -> None:
        """
        Args:
            ports: `KafkaCluster.proxied_ports`.
        """
        self._ports = ports
        self._changed = threading.Condition()
        self._disturbances: list[Disturbance] = []
        self._requests: Counter[int] = Counter()
        self._responses: Counter[int] = Counter()
        self._most_in_flight: Counter[int] = Counter()
        self._fronts: list[_Front] = []
        self.delays_s: Mapping[int, float] = {}

    def __enter__(self) -> Self:
        try:
            for ports in self._ports.values():
                self._fronts.append(_Front(self, ports))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of the proxies, by which a client never reaches a broker directly."""
        return ",".join(f"127.0.0.1:{each.advertised}" for each in self._ports.values())

    def disturb(self, disturbance: Disturbance) -> None:
        """Inject a fault; if several match a request, the oldest one applies."""
        with self._changed:
            self._disturbances.append(disturbance)

    def clear(self) -> None:
        """Remove all faults, stop counting, and cut the open connections."""
        with self._changed:
            self._disturbances.clear()
            self._requests.clear()
            self._responses.clear()
            self._most_in_flight.clear()
            self.delays_s = {}
            self._changed.notify_all()
        for front in self._fronts:
            front.cut_all()

    def responses(self, api_key: int) -> int:
        """Return how many responses of an API were forwarded, or dropped on purpose."""
        return self._responses[api_key]

    def requests(self, api_key: int) -> int:
        """Return how many requests of an API arrived."""
        return self._requests[api_key]

    def most_in_flight(self, api_key: int) -> int:
        """Return the most requests of a connection, from one of an API on, that had no response at a time."""
        return self._most_in_flight[api_key]

    def close(self) -> None:
        for front in self._fronts:
            front.close()

    # Called by the connections.

    def meet(self, api_key: int, in_flight: int) -> Disturbance | None:
        """Count a request, and those that its client has sent without a response; return its fault."""
        with self._changed:
            self._requests[api_key] += 1
            self._most_in_flight[api_key] = max(self._most_in_flight[api_key], in_flight)
            found = None
            for each in self._disturbances:
                if each.api_key == api_key:
                    each._seen += 1
                    if found is None and each._seen > each.after and each.hits < each.times:
                        each.hits += 1
                        found = each
            self._changed.notify_all()
        return found

    def count_response(self, api_key: int) -> None:
        with self._changed:
            self._responses[api_key] += 1
            self._changed.notify_all()


class _Front:
    """The proxy of one broker."""

    def __init__(self, proxies: Proxies, ports: ProxiedPort) -> None:
        self._proxies = proxies
        self._behind = ports.behind
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._listener = socket.create_server(("127.0.0.1", ports.advertised), backlog=_LISTEN_BACKLOG)
        self._thread = threading.Thread(target=self._accept, name="rig-proxy", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the proxy is closed
            try:
                broker = socket.create_connection(("127.0.0.1", self._behind), _CONNECT_TIMEOUT_S)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            connection = _Connection(self._proxies, client, broker, self._forget)
            with self._lock:
                self._connections.add(connection)
            connection.start()

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def cut_all(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for each in connections:
            each.cut()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut_all()


class _Cut(Exception):
    """The connection has ended."""


class _Connection:
    """One connection of a client, forwarded in two threads."""

    def __init__(
        self,
        proxies: Proxies,
        client: socket.socket,
        broker: socket.socket,
        forget: Callable[[_Connection], None],
    ) -> None:
        self._proxies = proxies
        self._client = client
        self._broker = broker
        self._behind = broker.getpeername()
        self._forget = forget
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._waiting: deque[_Exchange] = deque()
        for each in (client, broker):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for target in (self._pass_requests, self._pass_responses):
            threading.Thread(target=self._until_cut, args=(target,), name="rig-proxied", daemon=True).start()

    def _until_cut(self, pass_on: Callable[[], None]) -> None:
        # ValueError: poll() got a socket that the other thread has closed.
        with contextlib.suppress(OSError, ValueError, _Cut):
            pass_on()
        self.cut()

    def cut(self, reset: bool = False) -> None:
        """Close both sides. You can call it repeatedly."""
        with self._lock:
            if self._over.is_set():
                return
            self._over.set()
        if reset:
            with contextlib.suppress(OSError):
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes the thread that reads from the socket, and sends no FIN before the RST.
                self._client.shutdown(socket.SHUT_RD)
                self._client.close()
        for each in (self._client, self._broker):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._forget(self)

    def _pass_requests(self) -> None:
        for frame in _frames(self._client):
            if len(frame) < _SHORTEST_REQUEST:
                raise _Cut  # not a Kafka client: a broker closes the connection, too
            (api_key,) = _INT16.unpack_from(frame, 4)
            delay_s = self._proxies.delays_s.get(api_key)
            if delay_s:
                time.sleep(delay_s)
            # In this order: what has arrived was sent after the responses that are missing in `_waiting`.
            unread = len(frames_waiting_in(self._client))
            met = self._proxies.meet(api_key, len(self._waiting) + 1 + unread)
            self._waiting.append(_Exchange(api_key, met))
            if met is None or met.step.is_of_response:
                self._broker.sendall(frame)
            else:
                self._disturb(met, frame, self._broker)

    def _pass_responses(self) -> None:
        for frame in _frames(self._broker):
            exchange = self._waiting.popleft()
            met = exchange.disturbance
            try:
                if met is not None and met.step.is_of_response:
                    self._disturb(met, frame, self._client)
                elif met is None or not met.cut:
                    self._client.sendall(frame)
                # Otherwise the other thread is about to cut the connection: drop a response that is faster.
            finally:
                self._proxies.count_response(exchange.api_key)

    def _disturb(self, met: Disturbance, frame: memoryview, receiver: socket.socket) -> None:
        if met.step in (Step.WITHIN_REQUEST, Step.WITHIN_RESPONSE):
            receiver.sendall(frame[: len(frame) // 2])
            frame = frame[len(frame) // 2 :]
        elif met.step is Step.AFTER_REQUEST:
            receiver.sendall(frame)
            frame = frame[:0]
        until = time.monotonic() + met.stall_s
        if met.stall_s and self._hangs_up_before(until):
            if met.late and met.step is Step.BEFORE_REQUEST:
                time.sleep(max(0.0, until - time.monotonic()))
                self._deliver_late(frame)
                self._proxies.count_response(met.api_key)
            raise _Cut
        if met.cut:
            self.cut(met.reset)
            raise _Cut
        receiver.sendall(frame)

    def _hangs_up_before(self, deadline: float) -> bool:
        """Wait; return at once if the client has closed or reset its side, or the proxy closes."""
        watch = select.poll()
        watch.register(self._client.fileno(), select.POLLRDHUP)
        while (left := deadline - time.monotonic()) > 0:
            if self._over.is_set() or watch.poll(min(left, 0.1) * 1000):
                return True
        return False

    def _deliver_late(self, frame: memoryview) -> None:
        """Send a disconnected client's request on a separate connection, and wait for the response."""
        with socket.create_connection(self._behind, _CONNECT_TIMEOUT_S) as alone:
            alone.sendall(frame)
            next(_frames(alone), None)


def frames_waiting_in(client: socket.socket) -> list[bytes]:
    """Return the requests that have arrived and were not read yet; the last one may lack a part."""
    try:
        arrived = client.recv(_MOST_WAITING_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:  # none, or the client has gone
        return []
    frames: list[bytes] = []
    place = 0
    while place < len(arrived):
        end = place + 4 + int.from_bytes(arrived[place : place + 4])
        frames.append(arrived[place + 4 : end])
        place = end
    return frames


def _frames(sender: socket.socket) -> Iterator[memoryview]:
    """Yield frames, including their lengths, until the sender ends."""
    while True:
        head = _receive(sender, 4)
        if head is None:
            return
        (size,) = _INT32.unpack(head)
        body = _receive(sender, size)
        if body is None:
            return
        yield memoryview(head + body)


def _receive(sender: socket.socket, size: int) -> bytes | None:
    """Return exactly this many bytes; None if the sender ends before."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = sender.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return bytes(buffer)
