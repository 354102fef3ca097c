"""
The errors that shoal raises.

::

    ShoalError                      the base of all errors of shoal
    ├── ConfigError                 an option or configuration that cannot work; exit code 2
    │   └── AccessRefused           a login or a certificate that one side does not accept
    ├── CorruptBatch                bytes that are not a valid batch
    ├── UnsupportedBatch            a batch that can be neither copied nor decoded
    │   ├── ExpandsTooFar           a batch above the maximum size of a decompressed batch
    │   └── UnsupportedCompression  a codec that an older message format lacks
    ├── NotConvertible              a record set that no other message format can hold
    ├── ProtocolError               a message that the protocol does not allow
    ├── Disconnected                a connection that could not be opened, or was lost
    │   ├── StorageFailed           a file of an archive that cannot be read or written for now
    │   │   └── BeingDownloaded     an object of an archive that a store has not sent yet
    │   └── Unreachable             an address without a TCP connection
    ├── BrokerError                 an error code in a response
    ├── GroupHeld                   another mirror holds the same consumer group
    ├── NoPosition                  a consumer without a start position
    ├── BufferFull                  a producer without free memory
    │   └── LargerThanBuffer        a record for which a producer will never have the memory
    ├── DeliveryTimedOut            a record without an acknowledgement in time
    ├── Stopped                     a signal, the driver or a lapsed lease ended the work
    └── PartitionStopped            one partition that needs a person

There is one class for each reaction of a caller, not for each cause. Errors have their values as attributes,
and ``str()`` returns a sentence: the object, the problem and the remedy.
"""

from __future__ import annotations

import enum
import traceback

from .broker_message import without_objects
from .error_codes import ErrorCode, named_code
from .printable import printable

__all__ = [
    "AccessRefused",
    "BeingDownloaded",
    "BrokerError",
    "BufferFull",
    "ConfigError",
    "CorruptBatch",
    "DeliveryTimedOut",
    "Disconnected",
    "ErrorCode",
    "ExpandsTooFar",
    "GroupHeld",
    "LargerThanBuffer",
    "NoPosition",
    "NotConvertible",
    "PartitionStopped",
    "ProtocolError",
    "ShoalError",
    "Stopped",
    "StorageFailed",
    "Unreachable",
    "UnsupportedBatch",
    "UnsupportedCompression",
    "named_code",
    "raise_for",
]


class ShoalError(Exception):
    """
    Base of all errors of shoal.

    ``str()`` returns one printable line: errors quote names and messages of clusters, and reach terminals,
    logs (also Spark's), the page and the report.

    """

    def __str__(self) -> str:
        return printable(self._text())

    def _text(self) -> str:
        """Return the message; ``str()`` makes it printable."""
        return super().__str__()

    def _render_traceback_(self) -> list[str]:
        """Return the sentence, then the traceback, as a notebook shows them (a hook of IPython)."""
        return [f"{type(self).__name__}: {self}", "", *"".join(traceback.format_exception(self)).splitlines()]


class ConfigError(ShoalError):
    """An option, a properties file or a topic's configuration cannot work."""


class AccessRefused(ConfigError):
    """
    A broker refused our login, or we do not trust its certificate. A retry is of no use.

    Attributes:
        where: The broker.
        reason: The problem, and the remedy.
        is_login: Whether the broker refused the login, as all brokers of the cluster will.

    """

    def __init__(self, where: str, reason: str, is_login: bool = False) -> None:
        super().__init__(where, reason, is_login)
        self.where = where
        self.reason = reason
        self.is_login = is_login

    def _text(self) -> str:
        return f"no access to {self.where}: {self.reason}"


class CorruptBatch(ShoalError):
    """
    Bytes of a record set that are not a valid batch.

    Attributes:
        position: The batch's position in its record set in bytes, or its base offset if that is known.

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
        base_offset: The offset in its header.

    """

    def __init__(self, reason: str, base_offset: int) -> None:
        super().__init__(reason, base_offset)
        self.reason = reason
        self.base_offset = base_offset

    def _text(self) -> str:
        return f"the batch at offset {self.base_offset} cannot be mirrored: {self.reason}"


class ExpandsTooFar(UnsupportedBatch):
    """A batch above the maximum size of a decompressed batch."""


class UnsupportedCompression(UnsupportedBatch):
    """A batch whose codec the wanted message format does not support."""

    def _text(self) -> str:
        return f"the batch at offset {self.base_offset} cannot be converted: {self.reason}"


class NotConvertible(ShoalError):
    """
    The record set cannot be converted to the client's older message format, or is not a valid record set.

    Attributes:
        code: The error code for the client.
        reason: The problem, as a sentence.

    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def _text(self) -> str:
        return f"no conversion to another format: {self.reason}"


class ProtocolError(ShoalError):
    """A message that is truncated, malformed, or not the response to our request."""


class Disconnected(ShoalError):
    """
    A connection could not be opened, timed out or was lost.

    The outcome of requests in flight is unknown.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def _text(self) -> str:
        return f"no connection to {self.address}: {self.reason}"


class StorageFailed(Disconnected):
    """A file of an archive could not be read or written; its disk or mount may recover."""

    def _text(self) -> str:
        return f"{self.address}: {self.reason}"


class BeingDownloaded(StorageFailed):
    """
    An object of an archive is on its way into this process. A client that asks again gets it in the end.

    Attributes:
        for_s: How long it has been, in seconds.

    """

    def __init__(self, address: str, reason: str, for_s: float = 0.0) -> None:
        super().__init__(address, reason)
        self.args = (address, reason, for_s)
        self.for_s = for_s


class Unreachable(Disconnected):
    """
    No TCP connection: the name does not resolve, or the address refuses or does not respond.

    Attributes:
        unresolved: Whether the name does not resolve.

    """

    def __init__(self, address: str, reason: str, unresolved: bool = False) -> None:
        super().__init__(address, reason)
        self.args = (address, reason, unresolved)
        self.unresolved = unresolved


#: The ACLs that a principal lacks (Kafka's security documentation, "Operations").
_MISSING_ACL = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "the user has no ACL for that. Grant READ and DESCRIBE on the topic at the source, "
        "CREATE, WRITE, READ and DESCRIBE at the destination"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "the user has no ACL for that. Grant READ on the group at the source"
    ),
}


class BrokerError(ShoalError):
    """
    An error code in a response.

    Attributes:
        raw_code: The code's number, also if shoal does not know it.
        where: The API, and the topic, partition, group or broker concerned.
        detail: The broker's own message, if any.
        right: The right that the request needs, as ``DESCRIBE on the cluster``, if it may need one on the
            cluster. CLUSTER_AUTHORIZATION_FAILED does not name it.

    """

    def __init__(
        self, code: ErrorCode | int, where: str, detail: str | None = None, right: str | None = None
    ) -> None:
        super().__init__(code, where, detail, right)
        self.code = ErrorCode.of(code)
        self.raw_code = int(code)
        self.where = where
        self.detail = detail
        self.right = right

    @property
    def retriable(self) -> bool:
        """Whether a retry may succeed. For a response to Produce, use ``code.retriable``."""
        return self.code.may_pass

    def _text(self) -> str:
        detail = without_objects(self.detail or "")
        words = f" ({detail})" if detail else ""
        advice = _MISSING_ACL.get(self.code)
        if self.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED and self.right:
            advice = f"the user has no ACL for that. Grant {self.right}"
        return f"{self.where}: {named_code(self.raw_code)}{words}" + (f": {advice}" if advice else "")


_LACKS_ACL = frozenset({*_MISSING_ACL, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


def lacks_acl(error: ShoalError) -> bool:
    """Return whether an error is a broker's refusal because of a missing ACL, or has one as its cause."""
    return any(isinstance(each, BrokerError) and each.code in _LACKS_ACL for each in (error, error.__cause__))


def raise_for(code: int, where: str, detail: str | None = None, right: str | None = None) -> None:
    """Raise the :class:`BrokerError` of a response's error code, unless the code is 0."""
    if code != ErrorCode.NONE:
        raise BrokerError(code, where, detail, right)


class GroupHeld(ShoalError):
    """
    Another mirror holds the same consumer group.

    Attributes:
        holder: The member that holds it, from DescribeGroups.

    """

    def __init__(self, group: str, holder: str) -> None:
        super().__init__(group, holder)
        self.group = group
        self.holder = holder

    def _text(self) -> str:
        return (
            f"the consumer group {self.group!r} is held by {self.holder}. Stop that mirror first. Use "
            "another group only for other topics, or for other names at the destination: two mirrors of the "
            "same copies would write records twice. An archive has one mirror for all its topics"
        )


class NoPosition(ShoalError):
    """A consumer has no start position in a partition."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def _text(self) -> str:
        return (
            f"{self.topic}-{self.partition}: the group has no committed offset, and auto.offset.reset is "
            "'none'. Seek, commit, or set it to earliest or latest"
        )


class BufferFull(ShoalError):
    """A producer had no memory for a record within ``max.block.ms``. The record was not sent."""


class LargerThanBuffer(BufferFull):
    """A record or a batch takes more than ``buffer.memory`` as a whole, so it will never be sent."""


class DeliveryTimedOut(ShoalError):
    """
    A record was not acknowledged within ``delivery.timeout.ms``.

    Attributes:
        is_in_doubt: Whether the record was sent, so that it may be in the log.
        reason: Why nothing could show that it is, so that it was given up before that time; None after it.

    """

    def __init__(
        self, topic: str, partition: int, timeout_ms: int, is_in_doubt: bool, reason: str | None = None
    ) -> None:
        super().__init__(topic, partition, timeout_ms, is_in_doubt, reason)
        self.topic = topic
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.is_in_doubt = is_in_doubt
        self.reason = reason

    def _text(self) -> str:
        outcome = "It may be written nevertheless" if self.is_in_doubt else "It was not written"
        where = f"{self.topic}-{self.partition}"
        limit = f" in delivery.timeout.ms={self.timeout_ms}"
        if self.reason is not None:
            limit = f", and its log cannot show whether it is written ({self.reason})"
        return f"{where}: no acknowledgement{limit}. {outcome}"


class Stopped(ShoalError):
    """A signal, the driver, or a lapsed lease ended the work."""


class PartitionStopped(ShoalError):
    """
    One partition stopped until a person removes the cause. The others continue.

    Attributes:
        topic: The source topic.
        offset: The next source offset that is not mirrored, or -1.
        reason: The problem and the remedy, as a sentence.
        unmirrored_from: The first source offset whose record is missing at the destination, if that is not
            ``offset``: the source's topic was recreated, or the destination lost records.
        can_heal: Whether the partition may continue with the same options once the cause is gone.
        cause: The kind of the incident, or a case of the module that stops the partition; None if there is
            neither. Reports do not have it.

    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        reason: str,
        unmirrored_from: int | None = None,
        can_heal: bool = True,
        cause: enum.Enum | None = None,
    ) -> None:
        super().__init__(topic, partition, offset, reason)
        self.cause = cause
        self.unmirrored_from = unmirrored_from
        self.can_heal = can_heal
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def _text(self) -> str:
        return f"{self.topic}-{self.partition} stopped at source offset {self.offset}: {self.reason}"
