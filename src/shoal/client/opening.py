"""
The steps from an address to a connection that accepts requests: TCP, TLS, and the SASL login.

Each step turns a failure into an error that names the listener's setting to check.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

from ..error_codes import ErrorCode
from ..errors import AccessRefused, Disconnected, Unreachable, raise_for
from ..net.address import Address
from ..protocol.apis import ApiKey
from .security import (
    TLS_ADVICE,
    LoginRefused,
    NoCredentials,
    Security,
    TlsSettings,
    begin_exchange,
    connect_tls,
    tls_refusal,
)

__all__ = [
    "CONNECT_S",
    "ask_versions",
    "broken",
    "hangup_reason",
    "log_in",
    "open_socket",
    "open_tls",
    "prepare_socket",
    "with_advertiser",
]

_CLOSED = "the broker closed the connection"

#: The limit of one connection attempt. Java's socket.connection.setup.timeout.ms is 10 s, but an operator
#: who starts a mirror waits for this. The kernel sends SYNs at 0, 1 and 3 s, and callers try again.
CONNECT_S = 4.0

#: Errors of a TLS handshake if the broker closes the connection: the versions of OpenSSL differ.
_CLOSED_BY_BROKER = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError)

_TIMEVAL = struct.Struct("@ll")
_LINGER = struct.Struct("@ii")


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    """
    Connect to an address.

    Raises:
        Unreachable: The name does not resolve, or nothing accepts the connection in time.
        Disconnected: The address is malformed.

    """
    try:
        return socket.create_connection(address, timeout_s)
    except (ValueError, OverflowError) as error:
        # Metadata may contain anything: labels too long for DNS, a NUL, ports above 65,535.
        raise Disconnected(
            str(address), "its host or port is not valid. Check advertised.listeners of the broker"
        ) from error
    except socket.gaierror as error:
        here = socket.gethostname()
        reason = f"the name {address.host!r} does not resolve on host {here} ({error.strerror})"
        raise Unreachable(str(address), reason, unresolved=True) from error
    except OSError as error:
        reason = (
            f"no answer in {timeout_s:g} s" if _is_timeout_of_python(error) else error.strerror or str(error)
        )
        raise Unreachable(str(address), reason) from error


def prepare_socket(connected: socket.socket, timeout_s: float, *, abort_on_close: bool) -> None:
    """Set the options of a broker's socket; see :class:`~.connection.Connection`."""
    # A blocking socket with the kernel's timeouts: MSG_WAITALL then receives a frame of
    # megabytes in one recv instead of one for each segment.
    connected.settimeout(None)
    timeval = _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1e6))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if abort_on_close:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(1, 0))


def open_tls(
    connected: socket.socket, address: Address, settings: TlsSettings, timeout_s: float
) -> ssl.SSLSocket:
    """
    Do the TLS handshake on a connected socket. If it fails, the socket is closed.

    Raises:
        AccessRefused: One side does not trust the other's certificate, or the listener has no TLS.
        Disconnected: The connection broke during the handshake.

    """
    try:
        return connect_tls(connected, address.host, settings, timeout_s)
    except _CLOSED_BY_BROKER as error:
        reason = f"the broker closed the connection instead of a TLS handshake. {TLS_ADVICE}"
        raise Disconnected(str(address), reason) from error
    except OSError as error:
        raise broken(address, error, is_tls_opening=True) from error
    except ValueError as error:
        # A name that no certificate can contain, such as one that begins with a dot.
        raise Disconnected(str(address), f"invalid host: {error}") from error


def ask_versions(request: Callable[..., Any], address: Address) -> dict[int, tuple[int, int]]:
    """
    Return the oldest and the newest version of each API that the broker supports.

    Args:
        request: Sends a request by its API key, version and fields, and returns the response.
        address: The broker's address, for errors.

    """
    # Version 0: any broker answers it.
    response = request(ApiKey.API_VERSIONS, 0)
    raise_for(response.error_code, f"ApiVersions at {address}")
    versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    # KAFKA-18659: brokers 4.x announce Produce from version 0, and refuse 0 to 2.
    oldest, newest = versions.get(ApiKey.PRODUCE, (0, 0))
    versions[ApiKey.PRODUCE] = (max(oldest, 3), newest)
    return versions


def log_in(request: Callable[..., Any], address: Address, security: Security) -> int:
    """
    Log in by SASL, with no other request in flight.

    Args:
        request: Sends a request by its API key and fields, and returns the response.
        address: The broker's address, for errors.
        security: The TLS of the connection, and the login.

    Returns:
        The milliseconds for which the broker accepts the login (KIP-368); 0 if there is no limit.

    Raises:
        AccessRefused: The broker refuses the mechanism or the login, or does not prove that it knows the
            password itself; or there is no access token or Kerberos ticket.
        Disconnected: The source of access tokens, or the KDC, does not answer.

    """
    where = str(address)
    assert security.login is not None
    try:
        exchange = begin_exchange(security.login, address.host)
        token = next(exchange)
    except NoCredentials as error:
        if error.may_pass:
            raise Disconnected(where, error.reason) from error
        raise AccessRefused(where, error.reason, is_login=True) from error
    handshake = request(ApiKey.SASL_HANDSHAKE, mechanism=security.mechanism)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AccessRefused(
            where, f"it does not offer {security.mechanism}, but {offered}. Set sasl.mechanism"
        )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        without = "SSL" if security.tls else "PLAINTEXT"
        raise AccessRefused(where, f"its listener has no SASL. Set security.protocol={without}")
    raise_for(handshake.error_code, f"SaslHandshake at {where}")
    while True:
        answer = request(ApiKey.SASL_AUTHENTICATE, auth_bytes=token)
        try:
            if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                exchange.throw(LoginRefused())
            raise_for(answer.error_code, f"SaslAuthenticate at {where}")
            token = exchange.send(answer.auth_bytes)
        except LoginRefused as error:
            raise AccessRefused(where, error.reason, is_login=True) from error
        except ValueError as error:
            raise AccessRefused(where, f"{security.mechanism}: {error}") from error
        except StopIteration:
            # SaslAuthenticate has the lifetime from v1 on.
            return getattr(answer, "session_lifetime_ms", 0) or 0


def hangup_reason(responses: int, *, is_tls: bool, logs_in: bool) -> str:
    """
    Return the reason why the broker closed the connection: in its opening, a setting may be wrong.

    Args:
        responses: The number of responses before.
        is_tls: Whether the connection has TLS.
        logs_in: Whether it has a login.

    """
    if responses == 0 and not is_tls:
        return f"{_CLOSED} at the first request. {TLS_ADVICE}"
    if responses == 1 and not logs_in:
        protocol = "SASL_SSL" if is_tls else "SASL_PLAINTEXT"
        return (
            f"{_CLOSED} at the first request. If its listener requires SASL, set security.protocol={protocol}"
        )
    return _CLOSED


def broken(address: Address, error: OSError, *, is_tls_opening: bool) -> Disconnected | AccessRefused:
    """
    Return the error for a failure of a broker's socket.

    Args:
        is_tls_opening: Whether nothing was received by TLS yet. Later, the same messages of OpenSSL mean
            bytes that were damaged on the way.

    """
    refusal = tls_refusal(error, address.host) if is_tls_opening else None
    if refusal:
        return AccessRefused(str(address), refusal)
    # BlockingIOError is the kernel's timeout (EAGAIN).
    timed_out = isinstance(error, BlockingIOError) or _is_timeout_of_python(error)
    return Disconnected(str(address), "no answer in time" if timed_out else str(error.strerror or error))


def _is_timeout_of_python(error: OSError) -> bool:
    """Return whether a timeout of Python's own passed: unlike the kernel's ETIMEDOUT it has no errno."""
    return isinstance(error, TimeoutError) and error.errno is None


def with_advertiser(error: Unreachable, cluster: str, server: str) -> Unreachable:
    """
    Return the error with the server that advertises the address, and the remedy.

    A client requests the brokers' addresses from the bootstrap servers, and connects to those. They come from
    ``advertised.listeners`` of each broker. A cluster in containers or behind NAT often advertises addresses
    that exist only inside. The operator set another address, so the error names the server that advertised
    this one.

    Args:
        error: The failure to connect to a broker.
        cluster: The cluster's name, such as ``source``.
        server: The server whose metadata names the address.

    """
    here = socket.gethostname()
    if error.unresolved:
        advice = (
            f"Server {server} of the {cluster} cluster advertises that name: set advertised.listeners of its "
            f"brokers to names that {here} can resolve, or add the name to /etc/hosts on {here}"
        )
    else:
        advice = (
            f"Server {server} of the {cluster} cluster advertises that address: if a broker runs there, set "
            f"its advertised.listeners to an address that {here} can reach, or open the firewall to it"
        )
    return Unreachable(error.address, f"{error.reason}. {advice}", unresolved=error.unresolved)
