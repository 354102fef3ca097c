"""The gateway: a listener to bootstrap from, one for each broker, and the sessions of their clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

from ..client.cluster import Cluster
from ..client.connection import Connection
from ..client.refused_logins import logins
from ..errors import ConfigError, Disconnected, ProtocolError, ShoalError
from ..net.address import Address
from ..net.converting import serving
from ..net.listener import Listener, addresses_of
from ..net.server_tls import server_context
from ..printable import logger
from .client_connection import Client, ClientGone, begin_tls
from .login import LoginFailed, look_at_login
from .message_memory import MessageMemory
from .nodes import Nodes
from .session import Session
from .settings import GatewaySettings
from .slots import NoRoom, Slot, Slots
from .translation.topic_limits import TopicLimits
from .upstream import TooLarge

__all__ = ["Gateway"]

_log = logger("shoal.gateway")

_LARGEST_PORT = 65535

#: The same trouble is told once in so many seconds, however many clients have it.
_TOLD_AGAIN_S = 60.0

#: For how long threads are waited for that were told to end.
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
            ConfigError: The address may not be listened on, or nobody could be told of it; a certificate
                or its key cannot be used.

        """
        _check_address(settings)
        self._settings = settings
        if settings.users is not None:
            settings.users.tell = self._tell
        self._tls = server_context(settings.tls, "--tls") if settings.tls else None
        self._nodes = Nodes(settings.upstream.bootstrap, self._listen_for)
        self._topic_limits = TopicLimits()
        self._memory = MessageMemory(settings.queued_request_bytes, self._tell)
        self._bootstrap = self._listener(None, settings.port)
        self._listeners = [self._bootstrap]
        self._sessions: set[Session] = set()
        self._slots = Slots(settings.most_connections, settings.most_connections_per_address)
        self._told_at: dict[str, float] = {}
        self._started = self._stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def listening(self) -> Address:
        """The address that is bound for clients to begin at."""
        return Address(self._settings.host, self._bootstrap.port)

    @property
    def bootstrap(self) -> Address:
        """Where clients begin, as it is advertised."""
        return Address(self._advertised_host, self._bootstrap.port)

    @property
    def brokers(self) -> Mapping[int, Address]:
        """Where clients find each broker, by node id."""
        return self._nodes.listeners

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._slots)

    def start(self) -> None:
        """
        Ask the cluster for its brokers, and listen for each of them.

        Raises:
            AccessRefused: The cluster does not let us in.
            Disconnected: It does not answer.
            ConfigError: A port is taken, or there is none for a broker.

        """
        brokers = self._ask_for_brokers() if self._settings.may_ask_cluster else {}
        node_ids = {*brokers, *self._settings.broker_ids}
        try:
            self._start_bootstrap()
            self._check_port(max(node_ids, default=0))
            told = {**self._nodes.listen(self._settings.broker_ids), **self._nodes.advertise(brokers)}
            missing = [node_id for node_id in node_ids if node_id not in told]
            if missing:
                raise ConfigError(self._port_taken(missing[0], self._port_of(missing[0])))
            self._started = True
        except BaseException:
            self.stop()
            raise

    def _ask_for_brokers(self) -> Mapping[int, Address]:
        with Cluster(self._settings.upstream) as cluster:
            return cluster.refresh([]).brokers

    def stop(self) -> None:
        """Stop listening, and hang up on every client."""
        with self._lock:
            self._stopped = True
            sessions, listeners = list(self._sessions), list(self._listeners)
        for session in sessions:
            session.abort()
        deadline = time.monotonic() + _STOP_PATIENCE_S
        for listener in listeners:
            listener.stop(max(deadline - time.monotonic(), 0.1))

    # Listeners

    @property
    def _advertised_host(self) -> str:
        return self._settings.advertised_host or self._settings.host

    def _listener(self, node_id: int | None, port: int) -> Listener:
        name = "shoal-gateway" if node_id is None else f"shoal-gateway-{node_id}"
        return Listener(self._settings.host, port, partial(self._serve, node_id), name)

    def _start_bootstrap(self) -> None:
        try:
            self._bootstrap.start()
        except OSError as error:
            where = Address(self._settings.host, self._bootstrap.port)
            raise ConfigError(
                f"cannot listen on {where}, where clients bootstrap from: {error.strerror or error}"
            ) from error

    def _port_of(self, node_id: int) -> int:
        return self._settings.port + 1 + node_id if self._settings.port else 0

    def _check_port(self, node_id: int) -> None:
        port = self._port_of(node_id)
        if not 0 <= port <= _LARGEST_PORT:
            raise ConfigError(
                f"broker {node_id} would be at port {port}: broker N is at the listener's port + 1 + N; "
                f"choose a port up to {_LARGEST_PORT - 1 - node_id}"
            )

    def _port_taken(self, node_id: int, port: int) -> str:
        where = Address(self._settings.host, port)
        return (
            f"cannot listen on {where}, where clients find broker {node_id}; free it, or choose another port"
        )

    def _listen_for(self, node_id: int) -> Address | None:
        """Begin to listen for a broker; while that fails, tell why and let clients do without it."""
        port = self._port_of(node_id)
        listener = self._listener(node_id, port)
        try:
            self._check_port(node_id)
            with self._lock:
                if self._stopped:
                    return None
                listener.start()
                self._listeners.append(listener)
        except ConfigError as error:
            self._tell(str(error))
            return None
        except OSError:
            self._tell(self._port_taken(node_id, port))
            return None
        told = Address(self._advertised_host, listener.port)
        if self._started:
            _log.info("broker %d is at %s", node_id, told)
        return told

    # Clients

    def _serve(self, node_id: int | None, connected: socket.socket) -> None:
        """Serve one client, in a thread of its own."""
        with self._lock:
            if self._stopped:
                return
        try:
            address = str(connected.getpeername()[0])
        except OSError:
            return  # it is gone already
        try:
            slot = self._slots.enter(address, partial(_hang_up, connected, threading.get_ident()))
        except NoRoom as refusal:
            self._tell(str(refusal))
            return
        try:
            with serving(slot.network):
                self._run(node_id, connected, slot)
        finally:
            self._slots.leave(slot)

    def _run(self, node_id: int | None, connected: socket.socket, slot: Slot) -> None:
        own = connected
        try:
            if self._tls is not None:
                own = begin_tls(connected, self._tls)
                if self._settings.tls is not None and self._settings.tls.client_authorities is not None:
                    slot.prove()
            client = Client(own, self._settings.idle_s)
            session = Session(
                self._settings,
                self._nodes,
                node_id,
                client,
                self._connect,
                self._tell,
                self._topic_limits,
                self._memory,
                slot.prove,
            )
            with self._lock:
                self._sessions.add(session)
            try:
                session.run()
            finally:
                with self._lock:
                    self._sessions.discard(session)
        except ClientGone as reason:
            _log.debug("a client's connection ends: %s", reason)
        except LoginFailed as error:
            self._tell(f"a login from {slot.address} failed: {error}")
        except TooLarge as error:
            self._tell(f"{error}; the client that asked is disconnected")
        except Disconnected as error:
            self._tell(f"no connection to {error.address}: {error.reason}")
        except ShoalError as error:
            self._tell(str(error))
        except OSError as error:
            _log.debug("a client's connection ends: %s", error)
        except Exception:
            _log.exception("a request failed")
        finally:
            if own is not connected:
                with contextlib.suppress(OSError):
                    own.close()

    def _connect(self, node_id: int | None, on_begun: Callable[[Connection], object]) -> Connection:
        errors: list[ShoalError] = []
        for address in self._nodes.addresses(node_id):
            security, upstream = self._settings.client_security, self._settings.upstream
            where = f"the upstream cluster's broker {address}"
            try:
                with logins.attempt(upstream.bootstrap, address, security, where):
                    connection = Connection(
                        address,
                        client_id=upstream.client_id,
                        timeout_s=upstream.request_timeout_s,
                        security=security,
                        on_begun=on_begun,
                        sizes=upstream.answer_sizes,
                    )
            except (Disconnected, ProtocolError) as error:
                self._nodes.remember(address, failed=True)
                errors.append(error)
                if self._stopped:
                    break
                continue
            self._nodes.remember(address, failed=False)
            return connection
        raise errors[0]

    def _tell(self, sentence: str) -> None:
        """Warn, but not again and again; what goes wrong at the start is raised there."""
        now = time.monotonic()
        with self._lock:
            last = self._told_at.get(sentence)
            if not self._started or self._stopped or (last is not None and now - last < _TOLD_AGAIN_S):
                return
            # What is not news any more is forgotten: sentences name addresses, and those may be many.
            self._told_at = {each: at for each, at in self._told_at.items() if now - at < _TOLD_AGAIN_S}
            self._told_at[sentence] = now
        _log.warning("%s", sentence)


def _hang_up(connected: socket.socket, thread: int) -> None:
    """End a connection that another thread serves; not TLS's own way, which says goodbye first."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    look_at_login(thread)


def _check_address(settings: GatewaySettings) -> None:
    host = settings.host
    addresses = addresses_of(host)
    if not settings.allow_any_address and not all(address.is_loopback for address in addresses):
        raise ConfigError(
            f"the gateway listens on loopback addresses only, not on {host!r}, where other "
            "machines could connect; --allow-any-address lets it"
        )
    if any(address.is_unspecified for address in addresses) and not settings.advertised_host:
        raise ConfigError(
            f"the gateway would advertise {host!r}, which clients cannot connect to. Set --advertise HOST"
        )
