"""The client's side of GSSAPI (RFC 4752): Kerberos proves both sides, and there is no security layer."""

from __future__ import annotations

import enum

from .failures import no_ticket, shown
from .library import load_gssapi
from .login import KerberosLogin
from .service import service_host, service_name
from .tickets import HeldTickets, held_tickets

__all__ = ["TicketExchange"]

#: RFC 4752, 3.1: the security layers of a message, a bit for each, and the largest message (3 bytes).
_LAYERS_BYTES = 4
_NO_LAYER = 1


class _Leg(enum.Enum):
    """The broker's next message."""

    CONTEXT = enum.auto()
    LAYERS = enum.auto()
    OUTCOME = enum.auto()
    NONE = enum.auto()


class TicketExchange:
    """One login: the broker's proof, its security layers, and its outcome are the three legs."""

    def __init__(self, login: KerberosLogin, host: str, tickets: HeldTickets = held_tickets) -> None:
        """
        Get a ticket for the broker, which may take seconds.

        Args:
            login: The client's login.
            host: The broker's host, as the client connects to it.
            tickets: The tickets of this process.

        Raises:
            NoTicket: There is none.

        """
        self._gssapi = gssapi = load_gssapi()
        self._login = login
        self._tickets = tickets
        self._leg = _Leg.CONTEXT
        credentials = tickets.credentials(login)
        host = service_host(host)
        self._service = f"{login.service}/{host}"
        try:
            self._principal = str(credentials.name)
            self._context = gssapi.SecurityContext(
                name=service_name(login.service, host),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                flags=[gssapi.RequirementFlag.mutual_authentication],
                usage="initiate",
            )
            self._token = self._context.step() or b""
        except gssapi.exceptions.GSSError as error:
            raise no_ticket(error, f"the service {self._service}") from error

    @property
    def is_done(self) -> bool:
        """Whether the login is complete."""
        return self._leg is _Leg.NONE

    def next_token(self) -> bytes:
        """Return the client's next token."""
        return self._token

    def receive(self, token: bytes) -> None:
        """
        Process the broker's token.

        Raises:
            ValueError: The broker did not prove that it has the service's key, or requires a security layer.

        """
        if self._leg is _Leg.CONTEXT:
            self._token = self._proven(token)
        elif self._leg is _Leg.LAYERS:
            self._check_layers(self._opened(token))
            # Without an authorization id: it is that of the ticket.
            answer = bytes([_NO_LAYER, 0, 0, 0])
            self._token = bytes(self._context.wrap(answer, False).message)
            self._leg = _Leg.OUTCOME
        else:
            self._leg = _Leg.NONE

    @property
    def refusal(self) -> str:
        """The sentence about a refused ticket."""
        return (
            f"it does not accept the Kerberos ticket of {self._principal!r} for {self._service!r} by GSSAPI. "
            "Compare the key in the broker's keytab with the KDC's (kvno, klist -k), and the broker's clock. "
            "The broker's log has the reason"
        )

    def accepted(self, session_s: float) -> None:
        """Do nothing: the broker limits a session by its own settings, not by the ticket."""

    def refused(self) -> None:
        """Request new tickets for the next login: the broker may have a new key."""
        self._tickets.discard(self._login)

    def _proven(self, token: bytes) -> bytes:
        """Return the answer to the broker's proof: nothing if the proof is complete."""
        try:
            answer = self._context.step(token) or b""
        except self._gssapi.exceptions.GSSError as error:
            raise ValueError(
                f"it did not prove that it is {self._service!r} ({shown(error)}). Check that it is the right "
                "broker"
            ) from error
        if self._context.complete:
            self._leg = _Leg.LAYERS
        return bytes(answer)

    def _opened(self, token: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(token).message)
        except self._gssapi.exceptions.GSSError as error:
            raise ValueError(f"its message does not fit the mechanism ({shown(error)})") from error

    def _check_layers(self, message: bytes) -> None:
        if len(message) != _LAYERS_BYTES:
            raise ValueError("its message does not fit the mechanism")
        if not message[0] & _NO_LAYER:
            raise ValueError(
                "it requires a security layer of SASL, which Kafka's protocol does not have. Remove "
                "javax.security.sasl.qop from the broker's settings, and use SASL_SSL to encrypt"
            )
