"""A client's session: the gateway serves its requests one after the other, as a broker does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..client.refused_logins import logins
from ..error_codes import ErrorCode
from ..errors import Disconnected, ProtocolError, ShoalError
from ..net.address import Address
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.produce import read_acks
from ..records.down_conversion import DownConversion
from .client_connection import Client, ClientGone, ClientRequest
from .converting import chunks
from .nodes import Nodes
from .pass_through_login import PassThroughLogin
from .replica_ids import Impostor, check_replica_id
from .rewriting import rewrite
from .settings import GatewaySettings
from .translation import list_offsets, produce, renumbered
from .translation.fetch import FetchTranslation
from .translation.request import Part, TranslatedRequest
from .upstream import Upstream
from .versions import REWRITTEN

__all__ = ["Session"]

#: The head of a request up to its acks or its replica id, with the longest ids before them.
_HEAD_BYTES = 72 * 1024

#: The limit for requests that the gateway answers itself.
_LARGEST_SMALL_REQUEST = 64 * 1024

#: The limit for decoded requests without records: each of their bytes becomes many bytes of Python objects.
#: A Fetch or ListOffsets has 16 bytes for a partition. When these versions were new, Kafka's advice was 4,000
#: partitions per broker.
_LARGEST_WITHOUT_RECORDS = 512 * 1024

#: The limit for requests whose answers are rewritten, since these repeat the names in the request.
_LARGEST_REWRITTEN = 2 * 1024 * 1024

_NEWEST_API_VERSIONS = 4

#: The APIs of a login, announced if clients log in.
_SASL: Mapping[int, tuple[int, int]] = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
_VERSIONS = codec.response_class(ApiKey.API_VERSIONS)


class Session:
    """
    Serves one client until one end hangs up.

    Each client has its own connection to the broker of its listener, opened with the first request. So quotas
    and timeouts work as without the gateway, and a slow client does not delay the others.

    """

    def __init__(
        self,
        settings: GatewaySettings,
        nodes: Nodes,
        node_id: int | None,
        client: Client,
        warn: Callable[[str], object],
    ) -> None:
        """
        Begin with a connected client.

        Args:
            nodes: The addresses of brokers and of their listeners.
            node_id: The broker that the client connected to; None for the bootstrap listener.
            warn: Receives a sentence for the operator.

        """
        self._settings = settings
        self._nodes = nodes
        self._node_id = node_id
        self._client = client
        self._warn = warn
        self._opened: dict[int | None, Upstream] = {}
        self._login = PassThroughLogin(client, self._broker) if settings.pass_through else None
        self._has_logged_in = False
        self._fetches = FetchTranslation(settings, warn)

    def run(self) -> None:
        """
        Serve until the client hangs up.

        Raises:
            ClientGone: The client hung up within a request, or broke the protocol.
            LoginFailed: The client's login was refused.
            ShoalError: The connection to the broker failed, or its answer is malformed.
            TooLarge: The broker's answer is larger than its limit.

        """
        while True:
            if self._opened:
                self._client.wait_for_request(self._broker())
            request = self._client.begin_request()
            if request is None:
                return
            if self._login is None:
                self._client.prove()
            self._serve(request)
            self._client.free()
            del request  # else an idle client would hold the memory of its last request

    def _serve(self, request: ClientRequest) -> None:
        header = request.header
        match header.api_key:
            case ApiKey.SASL_HANDSHAKE | ApiKey.SASL_AUTHENTICATE:
                self._serve_login(request)
                return
            case ApiKey.API_VERSIONS:
                self._answer(request, self._versions(header))
                return
        if self._login is not None and not self._has_logged_in:
            self._end_login(self._login, request)
        upstream = self._broker()
        oldest, newest = upstream.served.get(header.api_key, (0, -1))
        if not oldest <= header.api_version <= newest:
            # Kafka does not answer either: clients of 0.9 detect supported versions by that.
            raise ClientGone(f"API {header.api_key} is not served in version {header.api_version}")
        is_translated = not upstream.supports(header.api_key, header.api_version)
        largest = self._settings.largest_request_bytes
        if header.api_key != ApiKey.PRODUCE:
            largest = min(largest, _LARGEST_WITHOUT_RECORDS)
        if is_translated:
            request.check_size(largest)
        self._refuse_impostor(request)
        if is_translated:
            parts = self._translated(upstream, header, request.whole(largest))
            request.let_go()
            self._send(parts)
        elif header.api_key in REWRITTEN:
            request.check_size(_LARGEST_REWRITTEN)
            self._relay_rewritten(upstream, request)
        elif header.api_key == ApiKey.PRODUCE and self._acks(request) == 0:
            upstream.forward(request, answered=False)
        else:
            upstream.forward(request)
            upstream.relay_answer()

    # Logins

    def _serve_login(self, request: ClientRequest) -> None:
        """Forward a login, or refuse one that the gateway does not expect."""
        if self._login is None:
            self._answer(request, self._without_sasl(request.header))
        elif self._login.serve(request) and not self._has_logged_in:
            self._end_login(self._login, request)

    def _end_login(self, login: PassThroughLogin, request: ClientRequest) -> None:
        """
        Make sure that a client has logged in, and that the broker of its listener is behind its connection.

        A gateway without a login of its own does not know the brokers' addresses at first. It connects the
        first client of a node to any broker, and closes the connection after the login. The client connects
        again, now to the right broker.
        """
        brokers = login.brokers(request)
        self._has_logged_in = True
        self._client.prove()
        if self._node_id is None:
            return
        self._nodes.advertise(brokers)
        found = self._nodes.address(self._node_id)
        if found is None:
            self._warn(
                f"a client connected to the listener of broker {self._node_id}, which the cluster lacks. "
                "Start that broker, or remove its id from --broker-ids"
            )
        if found != self._broker().address:
            raise ClientGone("another broker is behind its connection")

    @staticmethod
    def _without_sasl(header: RequestHeader) -> Any:
        """Refuse a login as a listener without SASL does."""
        response = codec.response_class(ApiKey(header.api_key))
        if not 0 <= header.api_version <= response.max_version:
            raise ClientGone(f"API {header.api_key} is not served in version {header.api_version}")
        rest: dict[str, Any] = {"error_message": None, "auth_bytes": b""}
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            rest = {"mechanisms": []}
        return response(version=header.api_version, error_code=ErrorCode.ILLEGAL_SASL_STATE, **rest)

    # Answered here

    def _answer(self, request: ClientRequest, answer: Any) -> None:
        request.whole(_LARGEST_SMALL_REQUEST)
        self._client.send(codec.encode_response(answer, request.header.correlation_id))

    def _versions(self, header: RequestHeader) -> Any:
        if not 0 <= header.api_version <= _NEWEST_API_VERSIONS:
            # KIP-511: an answer in v0 with this API alone.
            newest = _VERSIONS.ApiVersion(
                api_key=ApiKey.API_VERSIONS, min_version=0, max_version=_NEWEST_API_VERSIONS
            )
            return _VERSIONS(version=0, error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[newest])
        served = {
            **self._broker().served,
            **(_SASL if self._login is not None else {}),
            ApiKey.API_VERSIONS: (0, _NEWEST_API_VERSIONS),
        }
        # Without the cluster's features: they would promise newer versions than the gateway serves.
        return _VERSIONS(
            version=header.api_version,
            api_keys=[
                _VERSIONS.ApiVersion(api_key=api_key, min_version=oldest, max_version=newest)
                for api_key, (oldest, newest) in sorted(served.items())
            ],
        )

    # Asked of the broker

    def _broker(self) -> Upstream:
        return self._opened.get(self._node_id) or self._open(self._node_id)

    def _other(self, node_id: int, address: Address) -> Upstream | None:
        if self._login is not None:
            return None  # the client has not logged in there
        self._nodes.advertise({node_id: address})
        return self._opened.get(node_id) or self._open(node_id)

    def _open(self, node_id: int | None) -> Upstream:
        """Connect to a node, or to any node; of several addresses, one after the other."""
        settings, errors = self._settings, list[ShoalError]()
        for address in self._nodes.addresses(node_id):
            where = f"the upstream cluster's broker {address}"
            try:
                with logins.attempt(settings.upstream.bootstrap, address, settings.client_security, where):
                    opened = self._opened[node_id] = Upstream(address, self._client, settings)
            except (Disconnected, ProtocolError) as error:
                errors.append(error)
                if self._client.is_ended:
                    break
                self._nodes.remember(address, failed=True)
            else:
                self._nodes.remember(address, failed=False)
                return opened
        raise errors[0]

    @staticmethod
    def _acks(request: ClientRequest) -> int:
        try:
            return read_acks(request.peek(_HEAD_BYTES), request.header.api_version)
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    def _refuse_impostor(self, request: ClientRequest) -> None:
        """Close the connection of a client that pretends to be a broker; Kafka has no error for it."""
        try:
            check_replica_id(request.header, lambda: request.peek(_HEAD_BYTES))
        except ProtocolError as error:
            if isinstance(error, Impostor):
                self._warn(f"a client sent {error}. The gateway closed its connection")
            raise ClientGone(str(error)) from error

    def _relay_rewritten(self, upstream: Upstream, request: ClientRequest) -> None:
        """Send the answer to the client with the gateway's addresses."""
        upstream.forward(request)
        request.let_go()
        frame = upstream.receive_whole()
        with self._client.decoding(len(frame), is_answer=True):
            answer = rewrite(request.header, frame, upstream.sizes.values, self._nodes)
        del frame
        self._client.send(answer)

    def _translated(self, upstream: Upstream, header: RequestHeader, frame: memoryview) -> Sequence[Part]:
        """Send a request in another version, and return the answer in the client's."""
        level = self._settings.upstream.isolation_level
        translated = TranslatedRequest(header, frame, upstream, level, self._other)
        match header.api_key:
            case ApiKey.FETCH:
                return self._fetches.translate(translated)
            case ApiKey.PRODUCE:
                return produce.translate(translated, self._settings.largest_produced_bytes)
            case ApiKey.LIST_OFFSETS:
                return list_offsets.translate(translated)
            case _:
                return renumbered.translate(translated, self._nodes)

    def _send(self, parts: Sequence[Part]) -> None:
        """Send an answer; at most one chunk is converted before the client's socket accepts it."""
        small = bytearray()
        for part in parts:
            if not isinstance(part, DownConversion):
                small += part
                continue
            self._client.send(small)
            small = bytearray()
            for chunk in chunks(self._client.network, part):
                self._client.send(chunk)
                del chunk
        if small:
            self._client.send(small)
