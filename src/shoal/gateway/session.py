"""A client's session: the gateway serves its requests one after the other, as a broker does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..client.connection import Connection
from ..error_codes import ErrorCode
from ..errors import ProtocolError
from ..net.address import Address
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.produce import read_acks
from ..records.down_conversion import DownConversion
from .budget import Budget
from .client_connection import Client, ClientGone, ClientRequest
from .converting import chunks
from .nodes import Nodes
from .pass_through_login import PassThroughLogin
from .replica_ids import HEAD_BYTES, Impostor, check_replica_id, has_replica_id
from .rewriting import rewrite
from .settings import GatewaySettings
from .streamed_connection import StreamedConnection
from .translation import list_offsets, produce, renumbered
from .translation.fetch import FetchTranslation
from .translation.request import Part, TranslatedRequest
from .upstream import Upstream
from .versions import REWRITTEN, served_versions
from .work import Work

__all__ = ["Session"]

#: The head of a Produce request up to its acks, with the longest ids before them.
_PRODUCE_HEAD_BYTES = 72 * 1024

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


class Connect(Protocol):
    """Opens a connection to a node, or to any node."""

    def __call__(
        self, node_id: int | None, on_begun: Callable[[Connection], object]
    ) -> StreamedConnection: ...


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
        connect: Connect,
        warn: Callable[[str], object],
        memory: Budget,
        on_proof: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Begin with a connected client.

        Args:
            nodes: The addresses of brokers and of their listeners.
            node_id: The broker that the client connected to; None for the bootstrap listener.
            connect: Opens the connection to the broker.
            warn: Receives a sentence for the operator.
            memory: The bytes of large requests and answers of all clients.
            on_proof: Called when the client has logged in, or has sent a request if it need not log in.

        """
        self._settings = settings
        self._nodes = nodes
        self._node_id = node_id
        self._client = client
        self._connect = connect
        self._upstream: Upstream | None = None
        self._served: dict[int, tuple[int, int]] = {}
        self._others: dict[int, Upstream] = {}
        self._begun: list[Connection] = []
        self._warn = warn
        self._work = Work(client, memory, warn)
        self._on_proof = on_proof
        self._is_proven = False
        self._pass_through = PassThroughLogin(client, self._broker) if settings.pass_through else None
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
        try:
            while True:
                if self._upstream is not None:
                    self._upstream.wait_for_request(self._settings.idle_s)
                request = self._client.begin_request()
                if request is None:
                    return
                if self._pass_through is None:
                    self._on_proof()
                try:
                    self._serve(request)
                finally:
                    self._work.finish()
                del request  # else an idle client would hold the memory of its last request
        finally:
            self.close()

    def abort(self) -> None:
        """End the connections to brokers, so that the session's thread fails at once; for another thread."""
        for connection in list(self._begun):
            connection.abort()

    def close(self) -> None:
        """Close the connections to brokers."""
        for each in [self._upstream, *self._others.values()]:
            if each is not None:
                each.close()

    def _serve(self, request: ClientRequest) -> None:
        header = request.header
        match header.api_key:
            case ApiKey.SASL_HANDSHAKE | ApiKey.SASL_AUTHENTICATE:
                self._serve_login(request)
                return
            case ApiKey.API_VERSIONS:
                self._answer(request, self._versions(header))
                return
        if self._pass_through is not None and not self._is_proven:
            self._end_login(self._pass_through, request)
        upstream = self._broker()
        oldest, newest = self._served.get(header.api_key, (0, -1))
        if not oldest <= header.api_version <= newest:
            # Kafka does not answer either: clients of 0.9 detect supported versions by that.
            raise ClientGone(f"API {header.api_key} is not served in version {header.api_version}")
        is_translated = not upstream.speaks(header.api_key, header.api_version)
        if is_translated:
            request.check_size(self._largest_translated(header))
        self._refuse_impostor(request)
        if is_translated:
            self._translate(upstream, request)
        elif header.api_key in REWRITTEN:
            request.check_size(_LARGEST_REWRITTEN)
            self._relay_rewritten(upstream, request)
        elif header.api_key == ApiKey.PRODUCE and self._acks(request) == 0:
            upstream.forward(request, answered=False)
        else:
            upstream.forward(request)
            upstream.relay_answer()

    def _serve_login(self, request: ClientRequest) -> None:
        """Forward a login, or refuse one that the gateway does not expect."""
        if self._pass_through is None:
            self._answer(request, self._without_sasl(request.header))
        elif self._pass_through.serve(request) and not self._is_proven:
            self._end_login(self._pass_through, request)

    def _end_login(self, login: PassThroughLogin, request: ClientRequest) -> None:
        """
        Make sure that a client has logged in, and that the broker of its listener is behind its connection.

        A gateway without a login of its own does not know the brokers' addresses at first. It connects the
        first client of a node to any broker, and closes the connection after the login. The client connects
        again, now to the right broker.
        """
        brokers = login.brokers(request)
        self._is_proven = True
        self._on_proof()
        if self._node_id is None:
            return
        self._nodes.advertise(brokers)
        found = self._nodes.address(self._node_id)
        if found is None:
            self._warn(
                f"a client connected to the listener of broker {self._node_id}, which the cluster lacks. "
                "Start that broker, or remove its id from --broker-ids"
            )
        if found != self._broker().connection.address:
            raise ClientGone("another broker is behind its connection")

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
        served = {**self._announced(), ApiKey.API_VERSIONS: (0, _NEWEST_API_VERSIONS)}
        # Without the cluster's features: they would promise newer versions than the gateway serves.
        return _VERSIONS(
            version=header.api_version,
            api_keys=[
                _VERSIONS.ApiVersion(api_key=api_key, min_version=oldest, max_version=newest)
                for api_key, (oldest, newest) in sorted(served.items())
            ],
        )

    def _announced(self) -> dict[int, tuple[int, int]]:
        self._broker()
        return {**self._served, **(_SASL if self._pass_through is not None else {})}

    @staticmethod
    def _without_sasl(header: RequestHeader) -> Any:
        """Refuse a login as a listener without SASL does."""
        api_key = ApiKey(header.api_key)
        if header.api_version > codec.response_class(api_key).max_version or header.api_version < 0:
            raise ClientGone(f"{api_key.name} is not served in version {header.api_version}")
        code = ErrorCode.ILLEGAL_SASL_STATE
        if api_key == ApiKey.SASL_HANDSHAKE:
            return codec.response_class(api_key)(version=header.api_version, error_code=code, mechanisms=[])
        return codec.response_class(api_key)(
            version=header.api_version, error_code=code, error_message=None, auth_bytes=b""
        )

    # Asked of the broker

    def _broker(self) -> Upstream:
        if self._upstream is None:
            self._upstream = self._open(self._node_id)
            self._served = served_versions(self._upstream.connection.versions, self._settings.apis)
        return self._upstream

    def _other(self, node_id: int, address: Address) -> Upstream | None:
        if self._pass_through is not None:
            return None  # the client has not logged in there
        self._nodes.advertise({node_id: address})
        if node_id not in self._others:
            self._others[node_id] = self._open(node_id)
        return self._others[node_id]

    def _open(self, node_id: int | None) -> Upstream:
        return Upstream(self._connect(node_id, self._begun.append), self._client, self._work)

    @staticmethod
    def _acks(request: ClientRequest) -> int:
        try:
            return read_acks(memoryview(request.peek(_PRODUCE_HEAD_BYTES)), request.header.api_version)
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    def _refuse_impostor(self, request: ClientRequest) -> None:
        """Close the connection of a client that pretends to be a broker; Kafka has no error for it."""
        if not has_replica_id(request.header):
            return
        try:
            check_replica_id(request.header, memoryview(request.peek(HEAD_BYTES)))
        except Impostor as error:
            self._warn(f"a client sent {error}. The gateway closed its connection")
            raise ClientGone(str(error)) from error
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    def _relay_rewritten(self, upstream: Upstream, request: ClientRequest) -> None:
        """Send the answer to the client with the gateway's addresses."""
        upstream.forward(request)
        request.let_go()
        self._send([self._rewritten(upstream, request.header)])

    def _rewritten(self, upstream: Upstream, header: RequestHeader) -> bytes:
        frame = upstream.receive()
        with self._work.decoding(len(frame), is_answer=True):
            return rewrite(header, frame, upstream.connection.sizes.values, self._nodes)

    def _translate(self, upstream: Upstream, request: ClientRequest) -> None:
        """Translate a request, free its memory, and send the answer."""
        largest = self._largest_translated(request.header)
        with self._work.request(request.size):
            with self._work.awaiting_client():
                frame = request.whole(largest)
            parts = self._translated(upstream, request.header, frame)
            del frame
            request.let_go()
        self._send(parts)

    def _translated(self, upstream: Upstream, header: RequestHeader, frame: memoryview) -> Sequence[Part]:
        translated = TranslatedRequest(
            header, frame, upstream, self._settings.upstream.isolation_level, self._other
        )
        match header.api_key:
            case ApiKey.FETCH:
                return self._fetches.translate(translated)
            case ApiKey.PRODUCE:
                return produce.translate(translated, self._settings.largest_produced_bytes)
            case ApiKey.LIST_OFFSETS:
                return list_offsets.translate(translated)
            case _:
                return renumbered.translate(translated)

    def _largest_translated(self, header: RequestHeader) -> int:
        largest = self._settings.largest_request_bytes
        return largest if header.api_key == ApiKey.PRODUCE else min(largest, _LARGEST_WITHOUT_RECORDS)

    def _send(self, parts: Sequence[Part]) -> None:
        """Send an answer; at most one chunk is converted before the client's socket accepts it."""
        small = bytearray()
        for part in parts:
            if not isinstance(part, DownConversion):
                small += part
                continue
            self._send_bytes(small)
            small = bytearray()
            for chunk in chunks(self._work.network, part):
                self._send_bytes(chunk)
                del chunk
        self._send_bytes(small)

    def _send_bytes(self, data: bytearray) -> None:
        if data:
            with self._work.awaiting_client():
                self._client.send(data)
