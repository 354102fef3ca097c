"""What can go wrong, and Kafka's error codes.

::

    ShoalError                      everything that shoal raises on purpose
    ├── ConfigError                 an option or a topic's configuration that cannot work; exit code 2
    │   ├── OptionError             an option that each surface spells its own way
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

import traceback
from collections.abc import Callable

from .error_codes import ErrorCode, named_code
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
    "OptionError",
    "PartitionStopped",
    "ProtocolError",
    "ShoalError",
    "Stopped",
    "Unreachable",
    "UnsupportedBatch",
    "UnsupportedCompression",
    "named_code",
    "raise_for",
]


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


class OptionError(ConfigError):
    """
    The value of an option cannot be used.

    The command line, Python and Spark spell one option differently. So a message names options by their
    fields, as ``{fetch_buffer_bytes}``, and :meth:`spelled` fills in the spelling of the user's own surface.

    Args:
        message: The message. ``{option}`` stands for ``option``, ``{value}`` and the like for ``values``, and
            each other name in braces for the option of that name.
        option: The field's name, if one message serves several options.
        values: Values that the message quotes.

    """

    def __init__(self, message: str, *, option: str = "", **values: object) -> None:
        self._message, self._option, self._values = message, option, values
        super().__init__(self.spelled(str))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the message with each option's name as ``spell`` returns it for a field's name."""
        return self._message.format_map(_Spelled(spell, {**self._values, "option": spell(self._option)}))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str]]:
        return ConfigError, (str(self),)


class _Spelled(dict[str, object]):
    """The values of a message, and for each other name the spelling of an option."""

    def __init__(self, spell: Callable[[str], str], values: dict[str, object]) -> None:
        super().__init__(values)
        self._spell = spell

    def __missing__(self, name: str) -> str:
        return self._spell(name)


class AccessRefused(ConfigError):
    """
    A broker does not let us in, or we do not trust it: to try again is no use.

    Attributes:
        where: The broker.
        reason: Why, and what to do.
        is_login: Whether it is the password that the broker refuses: all brokers of a cluster know the same.

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


def raise_for(code: int, where: str, detail: str | None = None) -> None:
    """Raise the :class:`BrokerError` of a response's error code, unless the code is 0."""
    if code != ErrorCode.NONE:
        raise BrokerError(code, where, detail)


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
