"""A request in translation, with the connections that it may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...client.config import IsolationLevel
from ...error_codes import ErrorCode
from ...errors import ProtocolError
from ...net.address import Address
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...protocol.codec import RequestHeader
from ...records.down_conversion import DownConversion
from ..client_connection import ClientGone
from ..upstream import Upstream

__all__ = ["Part", "TranslatedRequest", "old_code"]

T = TypeVar("T")

#: A part of an answer. A conversion stands for as many bytes as its length.
Part = bytes | memoryview | DownConversion


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """
    One request that is being translated.

    Attributes:
        header: The client's header, with the old version.
        frame: The whole request.
        upstream: The connection to the client's broker.
        isolation_level: The isolation level for old clients.
        connect: Returns a connection to another node, which ends with the client's; None if the gateway
            cannot log in there.

    """

    header: RequestHeader
    frame: memoryview
    upstream: Upstream
    isolation_level: IsolationLevel
    connect: Callable[[int, Address], Upstream | None]

    def decode(self, decode: Callable[[], T]) -> T:
        """
        Decode the request.

        Raises:
            ClientGone: The request is malformed; a broker closes the connection too.

        """
        try:
            with self.upstream.client.decoding(len(self.frame)):
                return decode()
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    @property
    def body(self) -> Any:
        """The request, decoded; see :meth:`decode`."""
        return self.decode(lambda: codec.decode_request(self.header, self.frame))

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask the broker; see :meth:`Upstream.ask`."""
        return self.upstream.ask(self.header, api_key, version, **fields)

    def ask_coordinator(self, group: str, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask a group's coordinator; None if there is none now, or the gateway cannot connect to it."""
        found = self.ask(
            ApiKey.FIND_COORDINATOR, self.upstream.oldest(ApiKey.FIND_COORDINATOR), key=group, key_type=0
        )
        if found.error_code != ErrorCode.NONE:
            return None
        coordinator = self.connect(found.node_id, Address(found.host, found.port))
        return None if coordinator is None else coordinator.ask(self.header, api_key, version, **fields)


#: Errors that are newer than the translated versions, and the errors that Kafka returned in their place.
#: Fetch before v6, ListOffsets and Produce before v4: KafkaApis, ``maybeDownConvertStorageError``.
_OLD_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.FENCED_INSTANCE_ID: ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
}


def old_code(code: int) -> int:
    """Return the error code for a client before Kafka 1.0: an older one if it does not know this one."""
    return int(_OLD_CODES.get(ErrorCode.of(code), code))
