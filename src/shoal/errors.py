"""What can go wrong, and Kafka's error codes.

::

    ShoalError                      everything that shoal raises on purpose
    ├── ConfigError                 an option or a topic's configuration that cannot work; exit code 2
    │   └── AccessRefused           a password or a certificate that a cluster, or we, do not accept
    ├── CorruptBatch                bytes that no broker should send
    ├── UnsupportedBatch            a batch that can be neither copied nor decoded
    │   └── UnsupportedCompression  a codec that an older format does not know
    ├── NotConvertible              a record set that cannot be had in another format
    ├── ProtocolError               a message that is not what the protocol allows here
    ├── Disconnected                a connection could not be made, or went away
    │   └── Unreachable             an address that does not resolve, refuses or does not answer
    ├── BrokerError                 an error code in a response
    ├── GroupHeld                   another mirror is at work in the same consumer group
    ├── NoPosition                  nothing says where a consumer is to begin
    ├── BufferFull                  a producer has as much in memory as it may
    ├── DeliveryTimedOut            a record was not acknowledged in time
    ├── Stopped                     somebody asked for an end, or the lease lapsed
    └── PartitionStopped            one partition cannot go on without a person

There is a class for each reaction that a caller can choose, not for each cause.
The errors carry objects; ``str()`` of one is a sentence: what, where, what to do.
"""

from __future__ import annotations

import enum
import traceback

from .printable import printable

__all__ = [
    "AccessRefused",
    "BrokerError",
    "BufferFull",
    "ConfigError",
    "CorruptBatch",
    "DeliveryTimedOut",
    "Disconnected",
    "ErrorCode",
    "GroupHeld",
    "NoPosition",
    "NotConvertible",
    "PartitionStopped",
    "ProtocolError",
    "ShoalError",
    "Stopped",
    "Unreachable",
    "UnsupportedBatch",
    "UnsupportedCompression",
    "named_code",
]


class ErrorCode(enum.IntEnum):
    """
    Kafka's error codes, and whether time can heal them.

    ``retriable`` says that the same request may succeed later: at this broker,
    or at another one after new metadata. The table is Kafka's own
    (``org.apache.kafka.common.protocol.Errors``, 4.1).

    A code that is not in the table becomes :attr:`UNKNOWN_SERVER_ERROR`
    by way of :meth:`of`: brokers get new codes without asking. :func:`named_code`
    keeps its number.

    """

    retriable: bool

    def __new__(cls, code: int, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for ``code``, whatever a broker made up."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    @property
    def may_pass(self) -> bool:
        """
        Whether a request that writes no records is worth a retry.

        Besides the retriable codes that is UNKNOWN_SERVER_ERROR, and with it each code that is not in the
        table: the code gives no reason, and brokers send it for passing failures, such as a failed read from
        tiered storage. Java's consumer retries Fetch, ListOffsets and OffsetForLeaderEpoch after it, too
        (FetchCollector, OffsetFetcherUtils, OffsetsForLeaderEpochUtils). For Produce the outcome is
        unknown: only ``retriable`` counts there.
        """
        return self.retriable or self is ErrorCode.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1, False
    NONE = 0, False
    OFFSET_OUT_OF_RANGE = 1, False
    CORRUPT_MESSAGE = 2, True
    UNKNOWN_TOPIC_OR_PARTITION = 3, True
    INVALID_FETCH_SIZE = 4, False
    LEADER_NOT_AVAILABLE = 5, True
    NOT_LEADER_OR_FOLLOWER = 6, True
    REQUEST_TIMED_OUT = 7, True
    BROKER_NOT_AVAILABLE = 8, False
    REPLICA_NOT_AVAILABLE = 9, True
    MESSAGE_TOO_LARGE = 10, False
    STALE_CONTROLLER_EPOCH = 11, False
    OFFSET_METADATA_TOO_LARGE = 12, False
    NETWORK_EXCEPTION = 13, True
    COORDINATOR_LOAD_IN_PROGRESS = 14, True
    COORDINATOR_NOT_AVAILABLE = 15, True
    NOT_COORDINATOR = 16, True
    INVALID_TOPIC_EXCEPTION = 17, False
    RECORD_LIST_TOO_LARGE = 18, False
    NOT_ENOUGH_REPLICAS = 19, True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True
    INVALID_REQUIRED_ACKS = 21, False
    ILLEGAL_GENERATION = 22, False
    INCONSISTENT_GROUP_PROTOCOL = 23, False
    INVALID_GROUP_ID = 24, False
    UNKNOWN_MEMBER_ID = 25, False
    INVALID_SESSION_TIMEOUT = 26, False
    REBALANCE_IN_PROGRESS = 27, False
    INVALID_COMMIT_OFFSET_SIZE = 28, False
    TOPIC_AUTHORIZATION_FAILED = 29, False
    GROUP_AUTHORIZATION_FAILED = 30, False
    CLUSTER_AUTHORIZATION_FAILED = 31, False
    INVALID_TIMESTAMP = 32, False
    UNSUPPORTED_SASL_MECHANISM = 33, False
    ILLEGAL_SASL_STATE = 34, False
    UNSUPPORTED_VERSION = 35, False
    TOPIC_ALREADY_EXISTS = 36, False
    INVALID_PARTITIONS = 37, False
    INVALID_REPLICATION_FACTOR = 38, False
    INVALID_REPLICA_ASSIGNMENT = 39, False
    INVALID_CONFIG = 40, False
    NOT_CONTROLLER = 41, True
    INVALID_REQUEST = 42, False
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False
    POLICY_VIOLATION = 44, False
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False
    DUPLICATE_SEQUENCE_NUMBER = 46, False
    INVALID_PRODUCER_EPOCH = 47, False
    INVALID_TXN_STATE = 48, False
    INVALID_PRODUCER_ID_MAPPING = 49, False
    INVALID_TRANSACTION_TIMEOUT = 50, False
    CONCURRENT_TRANSACTIONS = 51, True
    TRANSACTION_COORDINATOR_FENCED = 52, False
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False
    SECURITY_DISABLED = 54, False
    OPERATION_NOT_ATTEMPTED = 55, False
    KAFKA_STORAGE_ERROR = 56, True
    LOG_DIR_NOT_FOUND = 57, False
    SASL_AUTHENTICATION_FAILED = 58, False
    UNKNOWN_PRODUCER_ID = 59, False
    REASSIGNMENT_IN_PROGRESS = 60, False
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False
    DELEGATION_TOKEN_NOT_FOUND = 62, False
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False
    DELEGATION_TOKEN_EXPIRED = 66, False
    INVALID_PRINCIPAL_TYPE = 67, False
    NON_EMPTY_GROUP = 68, False
    GROUP_ID_NOT_FOUND = 69, False
    FETCH_SESSION_ID_NOT_FOUND = 70, True
    INVALID_FETCH_SESSION_EPOCH = 71, True
    LISTENER_NOT_FOUND = 72, True
    TOPIC_DELETION_DISABLED = 73, False
    FENCED_LEADER_EPOCH = 74, True
    UNKNOWN_LEADER_EPOCH = 75, True
    UNSUPPORTED_COMPRESSION_TYPE = 76, False
    STALE_BROKER_EPOCH = 77, False
    OFFSET_NOT_AVAILABLE = 78, True
    MEMBER_ID_REQUIRED = 79, False
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True
    GROUP_MAX_SIZE_REACHED = 81, False
    FENCED_INSTANCE_ID = 82, False
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True
    ELECTION_NOT_NEEDED = 84, True
    NO_REASSIGNMENT_IN_PROGRESS = 85, False
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False
    INVALID_RECORD = 87, False
    UNSTABLE_OFFSET_COMMIT = 88, True
    THROTTLING_QUOTA_EXCEEDED = 89, True
    PRODUCER_FENCED = 90, False
    RESOURCE_NOT_FOUND = 91, False
    DUPLICATE_RESOURCE = 92, False
    UNACCEPTABLE_CREDENTIAL = 93, False
    INCONSISTENT_VOTER_SET = 94, False
    INVALID_UPDATE_VERSION = 95, False
    FEATURE_UPDATE_FAILED = 96, False
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False
    SNAPSHOT_NOT_FOUND = 98, False
    POSITION_OUT_OF_RANGE = 99, False
    UNKNOWN_TOPIC_ID = 100, True
    DUPLICATE_BROKER_REGISTRATION = 101, False
    BROKER_ID_NOT_REGISTERED = 102, False
    INCONSISTENT_TOPIC_ID = 103, True
    INCONSISTENT_CLUSTER_ID = 104, False
    TRANSACTIONAL_ID_NOT_FOUND = 105, False
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True
    INELIGIBLE_REPLICA = 107, False
    NEW_LEADER_ELECTED = 108, False
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False
    FENCED_MEMBER_EPOCH = 110, False
    UNRELEASED_INSTANCE_ID = 111, False
    UNSUPPORTED_ASSIGNOR = 112, False
    STALE_MEMBER_EPOCH = 113, False
    MISMATCHED_ENDPOINT_TYPE = 114, False
    UNSUPPORTED_ENDPOINT_TYPE = 115, False
    UNKNOWN_CONTROLLER_ID = 116, False
    UNKNOWN_SUBSCRIPTION_ID = 117, False
    TELEMETRY_TOO_LARGE = 118, False
    INVALID_REGISTRATION = 119, False
    TRANSACTION_ABORTABLE = 120, False
    INVALID_RECORD_STATE = 121, False
    SHARE_SESSION_NOT_FOUND = 122, True
    INVALID_SHARE_SESSION_EPOCH = 123, True
    FENCED_STATE_EPOCH = 124, False
    INVALID_VOTER_KEY = 125, False
    DUPLICATE_VOTER = 126, False
    VOTER_NOT_FOUND = 127, False
    INVALID_REGULAR_EXPRESSION = 128, False
    REBOOTSTRAP_REQUIRED = 129, False
    STREAMS_INVALID_TOPOLOGY = 130, False
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False
    STREAMS_TOPOLOGY_FENCED = 132, False
    SHARE_SESSION_LIMIT_REACHED = 133, True


def named_code(code: int) -> str:
    """Return a code as a sentence has it: its number, and its name if this version of shoal has one."""
    known = ErrorCode.of(code)
    return f"error {int(code)} {known.name}" if known == code else f"error {int(code)}, unknown to shoal"


class ShoalError(Exception):
    """
    The base of everything that shoal raises on purpose.

    ``str()`` of each is one printable line, wherever it goes: errors quote names and messages of clusters,
    and reach terminals, logs (Spark's too), the page and the report.

    """

    def __str__(self) -> str:
        return printable(self._text())

    def _text(self) -> str:
        """Return what ``str()`` makes printable."""
        return super().__str__()

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows (IPython asks for it): the sentence, then the traceback."""
        return [f"{type(self).__name__}: {self}", "", *"".join(traceback.format_exception(self)).splitlines()]


class ConfigError(ShoalError):
    """An option, a properties file or a topic's configuration cannot work."""


class AccessRefused(ConfigError):
    """
    A broker does not let us in, or we do not trust it: to try again is no use.

    Attributes:
        where: The broker.
        reason: Why, and what to do.

    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def _text(self) -> str:
        return f"no access to {self.where}: {self.reason}"


class CorruptBatch(ShoalError):
    """
    Bytes that no broker should send.

    Attributes:
        reason: What is wrong with them.
        position: Where the batch begins in its record set, in bytes, or its
            base offset where that is known.

    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def _text(self) -> str:
        return f"corrupt batch at {self.position}: {self.reason}"


class UnsupportedBatch(ShoalError):
    """
    A batch that can be neither copied as it is nor decoded.

    Attributes:
        reason: Why.
        base_offset: The offset in its header.

    """

    def __init__(self, reason: str, base_offset: int) -> None:
        super().__init__(reason, base_offset)
        self.reason = reason
        self.base_offset = base_offset

    def _text(self) -> str:
        return f"the batch at offset {self.base_offset} cannot be mirrored: {self.reason}"


class UnsupportedCompression(UnsupportedBatch):
    """A batch with a codec that is unknown in the format it is wanted in."""

    def _text(self) -> str:
        return f"the batch at offset {self.base_offset} cannot be converted: {self.reason}"


class NotConvertible(ShoalError):
    """
    A record set begins with what a client of an older format cannot be given, or is none of one.

    Attributes:
        code: What the client is told.
        reason: Why, as a sentence.

    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def _text(self) -> str:
        return f"no conversion to another format: {self.reason}"


class ProtocolError(ShoalError):
    """A message that is cut short, malformed, or no answer to our request."""


class Disconnected(ShoalError):
    """
    A connection could not be made, timed out or went away.

    Whatever was in flight has an unknown outcome.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def _text(self) -> str:
        return f"no connection to {self.address}: {self.reason}"


class Unreachable(Disconnected):
    """
    No TCP connection to an address: its name does not resolve, it refuses, or it does not answer.

    Attributes:
        unresolved: Whether its name does not resolve.

    """

    def __init__(self, address: str, reason: str, unresolved: bool = False) -> None:
        super().__init__(address, reason)
        self.args = (address, reason, unresolved)
        self.unresolved = unresolved


#: What a principal that may not do something needs (Kafka's security documentation, "Operations").
_MISSING_ACL = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "the user has no ACL for that; grant READ and DESCRIBE on the topic at the source, "
        "CREATE, WRITE, READ and DESCRIBE at the destination"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "the user has no ACL for that; grant READ on the group at the source"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "the user has no ACL for that; grant IDEMPOTENT_WRITE on the cluster, or WRITE on a topic of it, "
        "and CREATE where topics are missing"
    ),
}


class BrokerError(ShoalError):
    """
    An error code in a response.

    Attributes:
        code: Kafka's code.
        raw_code: Its number, also where shoal does not know it.
        where: The API, and the topic, partition, group or broker concerned.
        detail: The broker's own words, where it sent any.

    """

    def __init__(self, code: ErrorCode | int, where: str, detail: str | None = None) -> None:
        super().__init__(code, where, detail)
        self.code = ErrorCode.of(code)
        self.raw_code = int(code)
        self.where = where
        self.detail = detail

    @property
    def retriable(self) -> bool:
        """Whether time may heal it; of an answer to Produce only ``code.retriable`` says so."""
        return self.code.may_pass

    def _text(self) -> str:
        words = f" ({self.detail})" if self.detail else ""
        advice = _MISSING_ACL.get(self.code)
        return f"{self.where}: {named_code(self.raw_code)}{words}" + (f": {advice}" if advice else "")


class GroupHeld(ShoalError):
    """
    Another mirror is at work in the same consumer group.

    Attributes:
        group: The group's name.
        holder: Who holds it, as DescribeGroups tells it.

    """

    def __init__(self, group: str, holder: str) -> None:
        super().__init__(group, holder)
        self.group = group
        self.holder = holder

    def _text(self) -> str:
        return (
            f"the consumer group {self.group!r} on the source cluster is held by {self.holder}; "
            "stop that mirror first. Another --group is only for other topics, or for other names at the "
            "destination: two mirrors of the same copies would write records twice"
        )


class NoPosition(ShoalError):
    """
    Nothing says where a consumer is to begin in a partition.

    Attributes:
        topic: Its topic.
        partition: Its number.

    """

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def _text(self) -> str:
        return (
            f"{self.topic}-{self.partition}: the group has committed nothing, and auto.offset.reset is none; "
            "seek, commit, or set it to earliest or latest"
        )


class BufferFull(ShoalError):
    """A producer had no room for a record in ``max.block.ms``: nothing was sent; it may be sent again."""


class DeliveryTimedOut(ShoalError):
    """
    A record was not acknowledged within ``delivery.timeout.ms``.

    Attributes:
        topic: Its topic.
        partition: Its number.
        is_in_doubt: Whether it was sent: then it may be written all the same.

    """

    def __init__(self, topic: str, partition: int, timeout_ms: int, is_in_doubt: bool) -> None:
        super().__init__(topic, partition, timeout_ms, is_in_doubt)
        self.topic = topic
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.is_in_doubt = is_in_doubt

    def _text(self) -> str:
        outcome = "it may be written all the same" if self.is_in_doubt else "it was not written"
        where = f"{self.topic}-{self.partition}"
        return f"{where}: no acknowledgement in delivery.timeout.ms={self.timeout_ms}; {outcome}"


class Stopped(ShoalError):
    """Somebody asked for an end: a signal, the driver, or a lease that lapsed."""


class PartitionStopped(ShoalError):
    """
    One partition cannot go on without a person; the others can.

    Attributes:
        topic: The source topic.
        partition: The partition's number.
        offset: The next source offset that is not mirrored, or -1.
        reason: What happened and what to do, as a sentence.
        unmirrored_from: The source offset from which on records are missing at the destination, if
            that is not ``offset``: the source's log is another one now, or the destination lost records.
        can_heal: Whether the partition may go on with the same options once the cause is gone.

    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        reason: str,
        unmirrored_from: int | None = None,
        can_heal: bool = True,
    ) -> None:
        super().__init__(topic, partition, offset, reason)
        self.unmirrored_from = unmirrored_from
        self.can_heal = can_heal
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def _text(self) -> str:
        return f"{self.topic}-{self.partition} stopped at source offset {self.offset}: {self.reason}"
