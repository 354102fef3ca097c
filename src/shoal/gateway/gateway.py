"""The gateway: a bootstrap listener, one listener for each broker, and the sessions of clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from ..client.cluster import Cluster
from ..client.connection import Connection
from ..client.refused_logins import logins
from ..errors import ConfigError, Disconnected, ProtocolError, ShoalError
from ..net.address import Address
from ..net.listener import Admitted, Listener, addresses_of
from ..net.slots import network_of
from ..printable import logger
from .budget import Budget, Refused, Share
from .client_connection import Client, ClientGone, begin_tls
from .nodes import Nodes
from .pass_through_login import LoginFailed
from .server_tls import server_context
from .session import Session
from .settings import GatewaySettings
from .streamed_connection import StreamedConnection
from .upstream import TooLarge

__all__ = ["Gateway"]

_log = logger("shoal.gateway")

_LARGEST_PORT = 65535

#: The same warning appears once in this time, for any number of clients.
_WARN_AGAIN_S = 60.0

#: How long :meth:`Gateway.stop` waits for the threads of the listeners.
_STOP_PATIENCE_S = 5.0


@dataclass(slots=True, eq=False)
class _Place:
    """
    A client's connection, among all that are open.

    A client proves itself by its TLS handshake with a certificate, by its login or, without a login, by its
    first request. Until then a new connection may take its place.

    Attributes:
        share: Its share of the connections; None before it has one.
        abort: Ends the waits of its thread for brokers, from another thread.

    """

    connected: socket.socket
    address: str
    share: Share | None = None
    abort: Callable[[], object] = lambda: None

    @property
    def is_ended(self) -> bool:
        """Whether the connection was closed for another one."""
        return self.share is not None and self.share.is_ended

    def prove(self) -> None:
        """Keep the place until the connection ends."""
        if self.share is not None:
            self.share.end = None

    def end(self) -> None:
        """End the connection from another thread, without TLS's close_notify, which could block."""
        with contextlib.suppress(OSError):
            self.connected.shutdown(socket.SHUT_RDWR)
        self.abort()


class Gateway:
    """
    Serves old and new clients of one cluster, in threads of this process.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`.

    """

    def __init__(self, settings: GatewaySettings) -> None:
        """
        Prepare a gateway; nothing listens yet.

        Raises:
            ConfigError: The settings do not allow the address, or clients could not connect to it; or a
                certificate or its key is unusable.

        """
        _check_address(settings)
        self._settings = settings
        self._tls = server_context(settings.tls, "--tls") if settings.tls else None
        self._nodes = Nodes(settings.upstream.bootstrap, self._listen_for)
        timing = settings.timing
        self.memory = Budget(
            settings.bytes_in_flight,
            patience_s=timing.memory_patience_s,
            again_s=timing.memory_patience_s,
            refusal_s=2 * timing.memory_patience_s,
        )
        self._bootstrap = self._listener(None, settings.port)
        self._listeners = [self._bootstrap]
        self._open: set[_Place] = set()
        self._places = Budget(
            settings.most_connections,
            most_of_network=settings.most_connections_per_address,
            patience_s=0.0,
            again_s=timing.next_leaves_s,
            refusal_s=timing.longest_leave_s,
        )
        self._warned_at: dict[str, float] = {}
        self._started = self._stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def listening(self) -> Address:
        """The address that the bootstrap listener is bound to."""
        return Address(self._settings.host, self._bootstrap.port)

    @property
    def bootstrap(self) -> Address:
        """The bootstrap address that clients use."""
        return Address(self._advertised_host, self._bootstrap.port)

    @property
    def brokers(self) -> Mapping[int, Address]:
        """The address that clients use for each broker, by node id."""
        return self._nodes.listeners

    @property
    def connections(self) -> int:
        """The number of open client connections."""
        return self._places.held

    def start(self) -> None:
        """
        Ask the cluster for its brokers, and listen for each of them.

        Raises:
            AccessRefused: The cluster refuses the upstream login.
            Disconnected: The cluster does not answer.
            ConfigError: A port is taken, or a broker's port would be too large.

        """
        brokers: dict[int, Address | None] = dict.fromkeys(self._settings.broker_ids)
        if self._settings.may_ask_cluster:
            with Cluster(self._settings.upstream) as cluster:
                brokers |= cluster.refresh([]).brokers
        try:
            self._listen(self._bootstrap)
            self._nodes.advertise(brokers)
            self._started = True
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop listening, and hang up on every client."""
        with self._lock:
            self._stopped = True
            places, listeners = list(self._open), list(self._listeners)
        for place in places:
            place.end()
        deadline = time.monotonic() + _STOP_PATIENCE_S
        for listener in listeners:
            listener.stop(max(deadline - time.monotonic(), 0.1))

    # Listeners

    @property
    def _advertised_host(self) -> str:
        return self._settings.advertised_host or self._settings.host

    def _listener(self, node_id: int | None, port: int) -> Listener:
        name = "shoal-gateway" if node_id is None else f"shoal-gateway-{node_id}"
        return Listener(self._settings.host, port, partial(self._admit, node_id), name)

    def _listen(self, listener: Listener, node_id: int | None = None) -> None:
        """
        Begin to listen.

        Raises:
            ConfigError: The port is taken, or too large.

        """
        where = Address(self._settings.host, listener.port)
        if node_id is not None and not 0 <= listener.port <= _LARGEST_PORT:
            raise ConfigError(
                f"--listen: broker {node_id} would have port {listener.port}, as broker N has the port of "
                f"--listen + 1 + N. Choose a port up to {_LARGEST_PORT - 1 - node_id}"
            )
        try:
            listener.start()
        except OSError as error:
            whose = "" if node_id is None else f" for broker {node_id}"
            raise ConfigError(
                f"--listen: cannot listen on {where}{whose} ({error.strerror or error}). Free this port, or "
                "choose another one"
            ) from error

    def _listen_for(self, node_id: int) -> Address | None:
        """Begin to listen for a broker; after the start, warn and return None if that fails."""
        port = self._settings.port
        listener = self._listener(node_id, port + 1 + node_id if port else 0)
        try:
            with self._lock:
                if self._stopped:
                    return None
                self._listen(listener, node_id)
                self._listeners.append(listener)
        except ConfigError as error:
            if not self._started:
                raise
            self._warn(str(error))
            return None
        advertised = Address(self._advertised_host, listener.port)
        if self._started:
            _log.info("broker %d is at %s", node_id, advertised)
        return advertised

    # Clients

    def _admit(self, node_id: int | None, connected: socket.socket) -> Admitted | None:
        """Give a client a place, before it gets a thread."""
        try:
            place = _Place(connected, str(connected.getpeername()[0]))
        except OSError:
            return None  # the client has gone already
        try:
            share = place.share = self._places.take(network_of(place.address), end=place.end)
        except Refused as refusal:
            self._warn(self._refusal(place, is_of_network=refusal.is_of_network))
            return None
        return Admitted(partial(self._serve, node_id, place), partial(self._places.give_back, share))

    def _refusal(self, place: _Place, *, is_of_network: bool) -> str:
        if is_of_network:
            return (
                f"a connection from {network_of(place.address)} was refused: "
                f"{self._settings.most_connections_per_address} from there are open. "
                "Raise --max-connections-per-address to allow more"
            )
        return (
            f"a connection was refused: {self._settings.most_connections} are open. Raise --max-connections "
            "to allow more"
        )

    def _serve(self, node_id: int | None, place: _Place) -> None:
        """Serve one client, in a thread of its own."""
        with self._lock:
            if self._stopped:
                return
            self._open.add(place)
        try:
            self._run(node_id, place)
        except (ClientGone, OSError) as reason:
            _log.debug("a client's connection ends: %s", reason)
        except LoginFailed as error:
            self._warn_of(place, f"a login from {place.address} failed: {error}")
        except (TooLarge, ShoalError) as error:
            self._warn_of(place, str(error))
        except Exception:
            _log.exception("a request failed")
        finally:
            with self._lock:
                self._open.discard(place)

    def _run(self, node_id: int | None, place: _Place) -> None:
        with contextlib.ExitStack() as stack:
            own = place.connected
            if self._tls is not None:
                own = stack.enter_context(begin_tls(own, self._tls))
                if self._settings.tls is not None and self._settings.tls.client_authorities is not None:
                    place.prove()
            session = Session(
                self._settings,
                self._nodes,
                node_id,
                Client(own, self._settings.idle_s, place.address),
                partial(self._connect, place),
                self._warn,
                self.memory,
                place.prove,
            )
            place.abort = session.abort
            session.run()

    def _connect(
        self, place: _Place, node_id: int | None, on_begun: Callable[[Connection], object]
    ) -> StreamedConnection:
        def begun(connection: Connection) -> None:
            on_begun(connection)
            if place.is_ended:  # since before another thread could abort it
                connection.abort()

        errors: list[ShoalError] = []
        for address in self._nodes.addresses(node_id):
            security, upstream = self._settings.client_security, self._settings.upstream
            where = f"the upstream cluster's broker {address}"
            try:
                with logins.attempt(upstream.bootstrap, address, security, where):
                    connection = StreamedConnection(
                        address,
                        client_id=upstream.client_id,
                        timeout_s=upstream.request_timeout_s,
                        security=security,
                        on_begun=begun,
                        sizes=upstream.answer_sizes,
                    )
            except (Disconnected, ProtocolError) as error:
                errors.append(error)
                if self._stopped or place.is_ended:
                    break
                self._nodes.remember(address, failed=True)
                continue
            self._nodes.remember(address, failed=False)
            return connection
        raise errors[0]

    def _warn_of(self, place: _Place, sentence: str) -> None:
        """Warn of an error in a connection, unless it was closed for another one."""
        if place.is_ended:
            _log.debug("a client's connection ends for another one: %s", sentence)
        else:
            self._warn(sentence)

    def _warn(self, sentence: str) -> None:
        """Warn, at most once a minute with the same sentence; not before the start, which raises errors."""
        now = time.monotonic()
        with self._lock:
            last = self._warned_at.get(sentence)
            if not self._started or self._stopped or (last is not None and now - last < _WARN_AGAIN_S):
                return
            # Old sentences are dropped: they name clients' addresses, of which there may be any number.
            self._warned_at = {each: at for each, at in self._warned_at.items() if now - at < _WARN_AGAIN_S}
            self._warned_at[sentence] = now
        _log.warning("%s", sentence)


def _check_address(settings: GatewaySettings) -> None:
    host = settings.host
    addresses = addresses_of(host)
    if not settings.allow_any_address and not all(address.is_loopback for address in addresses):
        raise ConfigError(
            f"--listen {host!r}: other machines could connect. Use a loopback address, or add "
            "--allow-any-address"
        )
    if any(address.is_unspecified for address in addresses) and not settings.advertised_host:
        raise ConfigError(
            f"the gateway would advertise {host!r}, which clients cannot connect to. Set --advertise HOST"
        )
