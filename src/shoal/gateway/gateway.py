"""The gateway: a bootstrap listener, one listener for each broker, and the sessions of clients."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Self

from ..client.cluster import Cluster
from ..errors import ConfigError, ShoalError
from ..net.address import Address
from ..net.budget import Budget, Refused
from ..net.listener import Admitted, Listener, addresses_of
from ..printable import logger
from .client_connection import Client, ClientGone
from .nodes import Nodes
from .pass_through_login import LoginFailed
from .server_tls import server_context
from .session import Session
from .settings import GatewaySettings
from .upstream import TooLarge

__all__ = ["Gateway"]

_log = logger("shoal.gateway")

_LARGEST_PORT = 65535

#: The same warning appears once in this time, for any number of clients.
_WARN_AGAIN_S = 60.0

#: How long :meth:`Gateway.stop` waits for the threads of the listeners.
_STOP_PATIENCE_S = 5.0


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
        self._tls = server_context(settings.tls) if settings.tls else None
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
        self._clients: set[Client] = set()
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
            clients, listeners = list(self._clients), list(self._listeners)
        for client in clients:
            client.end()
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
        settings = self._settings
        try:
            host = str(connected.getpeername()[0])
            client = Client(connected, settings.idle_s, host, self.memory, self._warn)
            leave = client.take_place(self._places)
        except OSError:
            return None  # the client has gone already
        except Refused as refusal:
            most, option, where = settings.most_connections, "--max-connections", ""
            if refusal.is_of_network:
                where = f" from {client.network}"
                most, option = settings.most_connections_per_address or most, f"{option}-per-address"
            self._warn(
                f"a connection{where} was refused: {most} are open{where and ' from there'}. "
                f"Raise {option} to allow more"
            )
            return None
        return Admitted(partial(self._serve, node_id, client), leave)

    def _serve(self, node_id: int | None, client: Client) -> None:
        """Serve one client, in a thread of its own."""
        with self._lock:
            if self._stopped:
                return
            self._clients.add(client)
        try:
            self._run(node_id, client)
        except (ClientGone, OSError) as reason:
            _log.debug("a client's connection ends: %s", reason)
        except (LoginFailed, TooLarge, ShoalError) as error:
            prefix = f"a login from {client.host} failed: " if isinstance(error, LoginFailed) else ""
            (_log.debug if client.is_ended else self._warn)(f"{prefix}{error}")
        except Exception:
            _log.exception("a request failed")
        finally:
            client.close()
            with self._lock:
                self._clients.discard(client)

    def _run(self, node_id: int | None, client: Client) -> None:
        settings = self._settings
        if self._tls is not None:
            client.begin_tls(self._tls)
            if settings.tls is not None and settings.tls.client_authorities is not None:
                client.prove()
        Session(settings, self._nodes, node_id, client, self._warn).run()

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
