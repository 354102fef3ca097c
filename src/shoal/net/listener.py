"""
Accept connections in one thread, and serve each admitted one in a thread of its own.

A connection gets its place before its thread, so a server never has more of both than it has places.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import ConfigError
from ..printable import logger
from .budget import Budget, Refused, Share, network_of

__all__ = ["Admitted", "Listener", "addresses_of", "hang_up", "places", "take_place"]

_log = logger("shoal.net.listener")

#: The pause if accept fails: when the process has no descriptor left, another connection must end first.
_REFUSED_PAUSE_S = 0.1

_BACKLOG = 128

#: The error numbers of accept if descriptors, or memory for one, ran out.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def addresses_of(host: str) -> Sequence[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """
    Return the addresses behind a host name: they show which clients could connect to a listener there.

    Raises:
        ConfigError: The name has no address.

    """
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigError(f"cannot resolve host {host!r}: {error.strerror}") from error
    return [ipaddress.ip_address(str(address).partition("%")[0]) for address in found]


def hang_up(connection: socket.socket) -> None:
    """Shut a socket down, so that the thread that waits for it ends."""
    with contextlib.suppress(OSError):  # the peer has closed it already
        connection.shutdown(socket.SHUT_RDWR)


def places(most: int, leaving_s: float) -> Budget:
    """
    Return the places of a server, of which a connection that has not proven itself is ended for another.

    Args:
        most: The number of connections.
        leaving_s: The longest wait for the end of one.

    """
    return Budget(most, patience_s=0.0, again_s=leaving_s, refusal_s=leaving_s)


def take_place(free: Budget, connection: socket.socket) -> Share | None:
    """Give a connection one of a server's places; None if it has gone already, or there is no room."""
    try:
        peer = connection.getpeername()  # a unix socket's has no address
        return free.take(network_of(peer[0] if peer else ""), end=partial(hang_up, connection))
    except (OSError, Refused):
        return None


@dataclass(frozen=True, slots=True)
class Admitted:
    """
    A connection with a place on its server.

    Attributes:
        serve: Serves the connection. It must return soon after the socket is shut down.
        leave: Frees the place, after the socket is closed.

    """

    serve: Callable[[], object]
    leave: Callable[[], object] = lambda: None


class Listener:
    """
    Listens on one address from :meth:`start` to :meth:`stop`.

    Attributes:
        port: The port; if 0 was asked for, the free one from the first start on.

    """

    def __init__(
        self,
        host: str,
        port: int,
        admit: Callable[[socket.socket], Admitted | None],
        name: str,
        make_room: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Prepare a listener; :meth:`start` binds the address.

        Args:
            host: The address to bind.
            port: The port, or 0 for a free one, which is kept for every later start.
            admit: Gives a connection a place, or returns None to refuse it. The thread that accepts calls it,
                so other connections wait meanwhile.
            name: The name of the threads.
            make_room: Called if descriptors ran out.

        """
        self._make_room = make_room
        self.port = port
        self._host = host
        self._admit = admit
        self._name = name
        self._listener: socket.socket | None = None
        self._threads: set[threading.Thread] = set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def connections(self) -> int:
        """The number of connections whose sockets are open."""
        with self._lock:
            return len(self._sockets - {self._listener})

    def start(self) -> None:
        """
        Listen, and serve in threads.

        Raises:
            OSError: The port is taken.

        """
        family, _, _, _, address = socket.getaddrinfo(self._host, self.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self.accept_from(listener)

    def accept_from(self, listener: socket.socket) -> None:
        """Serve the connections to a socket that listens, as :meth:`start` does; it is closed at the end."""
        with self._lock:
            self._listener = listener
            self._run(listener, partial(self._accept, listener))

    def stop(self, patience_s: float | None = None) -> None:
        """
        Shut down every connection, and wait for the threads.

        Args:
            patience_s: The limit of the wait; None for no limit.

        """
        deadline = None if patience_s is None else time.monotonic() + patience_s
        with self._lock:
            self._listener = None
            sockets, threads = list(self._sockets), list(self._threads)
        for each in sockets:
            # Wakes the thread that waits in accept or recv, which then closes it.
            hang_up(each)
        for thread in threads:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))

    def _run(
        self, sock: socket.socket, serve: Callable[[], object], leave: Callable[[], object] = lambda: None
    ) -> None:
        """Start a thread that ends with its socket; under the lock, so that a stop sees both or neither."""

        def run() -> None:
            try:
                serve()
            finally:
                sock.close()
                leave()
                with self._lock:
                    self._sockets.discard(sock)
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=f"{self._name}-{self.port}", daemon=True)
        thread.start()
        self._threads.add(thread)
        self._sockets.add(sock)

    def _accept(self, listener: socket.socket) -> None:
        """Accept connections until :meth:`stop`, whatever fails meanwhile."""
        was_refused = False
        while self._listener is listener:
            try:
                client, _ = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._make_room()
                if self._listener is listener:
                    if not was_refused:
                        _log.warning("port %d: a connection could not be accepted: %s", self.port, error)
                    was_refused = True
                    time.sleep(_REFUSED_PAUSE_S)
                continue
            was_refused = False
            self._begin(client, listener)

    def _begin(self, client: socket.socket, listener: socket.socket) -> None:
        admitted = self._admit(client)
        if admitted is None:
            client.close()
            return
        with self._lock:
            if self._listener is listener:
                # If there is no thread for it, the client has to connect again.
                with contextlib.suppress(RuntimeError):
                    self._run(client, admitted.serve, admitted.leave)
                    return
        client.close()
        admitted.leave()
