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
    do_handshake_on_connect: bool = True,
) -> ssl.SSLSocket:
    """
    Take a connected socket over, as :meth:`ssl.SSLContext.wrap_socket`, but only if its peer is there.

    If the peer has reset the connection, ``wrap_socket`` detaches the socket and then raises without
    closing what it made of it (CPython 3.11, ``SSLSocket._create``): the descriptor stays open until
    somebody collects garbage.

    Raises:
        OSError: The peer is gone (ENOTCONN), and ``connected`` is still the caller's; or the handshake
            failed.

    """
    connected.getpeername()
    return context.wrap_socket(
        connected,
        server_side=server_side,
        server_hostname=server_hostname,
        do_handshake_on_connect=do_handshake_on_connect,
    )
