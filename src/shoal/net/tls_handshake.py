"""TLS on a connected socket, of a client and of a server."""

from __future__ import annotations

import socket
import ssl

__all__ = ["begin_tls"]


def begin_tls(
    context: ssl.SSLContext,
    connected: socket.socket,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
) -> ssl.SSLSocket:
    """
    Take over a connected socket, as :meth:`ssl.SSLContext.wrap_socket` does, if its peer is still connected.

    If the peer has reset the connection, ``wrap_socket`` detaches the socket and raises without closing the
    new one (CPython 3.11, ``SSLSocket._create``). The descriptor would stay open until the next garbage
    collection.

    Raises:
        OSError: The peer is gone (ENOTCONN), and ``connected`` is still the caller's; or the handshake
            failed.

    """
    connected.getpeername()
    return context.wrap_socket(
        connected,
        server_side=server_side,
        server_hostname=server_hostname,
    )
