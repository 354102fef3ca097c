"""What a translation needs of a client's connection."""

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

#: Of an answer; a conversion stands for the bytes that it will give, which are as many as its length.
Part = bytes | memoryview | DownConversion


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """
    One request that is being translated.

    Attributes:
        header: The client's, old version and all.
        frame: All of it.
        upstream: The broker that the client is connected to.
        isolation_level: What old clients see of transactions.
        connect: Gives a connection to another node, which ends with the client's; None if the gateway
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
            ClientGone: It is malformed: a broker hangs up then, too.

        """
        try:
            return decode()
        except ProtocolError as error:
            raise ClientGone(str(error)) from error

    @property
    def request(self) -> Any:
        """The request, decoded; see :meth:`decode`."""
        return self.decode(lambda: codec.decode_request(self.header, self.frame))

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask the broker; see :meth:`Upstream.ask`."""
        return self.upstream.ask(self.header, api_key, version, **fields)

    def ask_coordinator(self, group: str, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask a group's coordinator; None if there is none now, or it cannot be asked."""
        found = self.ask(
            ApiKey.FIND_COORDINATOR, self.upstream.oldest(ApiKey.FIND_COORDINATOR, 0), key=group, key_type=0
        )
        if found.error_code != ErrorCode.NONE:
            return None
        coordinator = self.connect(found.node_id, Address(found.host, found.port))
        return None if coordinator is None else coordinator.ask(self.header, api_key, version, **fields)


#: Errors that are younger than the versions that are translated, and what Kafka said in their place.
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
    """Return an error code that a client of before Kafka 1.0 knows what to do with, where there is one."""
    return int(_OLD_CODES.get(ErrorCode.of(code), code))
