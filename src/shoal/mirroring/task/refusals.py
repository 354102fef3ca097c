"""
Reactions to produce responses other than the predicted one: an error code, or another base offset.

The refused batches are the first ones in the partition's queue. Each reaction ends that: the partition loses
track of everything that it has queued, or stops.
"""

from __future__ import annotations

import enum

from ...broker_message import without_objects
from ...client.cluster import Cluster
from ...client.lot import Refused
from ...error_codes import ErrorCode, named_code
from ...records import Decision
from ..model.acls import THE_CLUSTER, Acl
from ..model.copy_options import CopySettings
from ..model.incidents import REFUSED_WRITERS, IncidentKind
from ..model.text import offsets
from .partition import PartitionCopy
from .progress import Head
from .trouble import Trouble

__all__ = ["Reaction", "land_elsewhere", "reaction_to", "refuse"]

#: About the leader or the replicas, and not about the batches. The broker may have written them.
_ABOUT_REPLICAS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
#: The bytes may have been damaged on their way: worth a second fetch.
_BYTES_REFUSED = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
#: The first may be the mirror's own doing (a lost acknowledgement), and the log end decides. The second is
#: another writer's.
_SEQUENCE_REFUSED = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
#: A broker that gives no reason is tried again for a while. The outcome is unknown each time; a batch that
#: the broker never takes must stop its partition in the end.
_UNEXPLAINED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

#: In a request with several batches, the code may be about any one of them.
_ABOUT_ONE_BATCH = (
    _BYTES_REFUSED
    | _UNEXPLAINED
    | {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)

_REMEDIES = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the destination topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the destination topic",
    ErrorCode.INVALID_TIMESTAMP: (
        "widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the destination topic"
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: "look for another mirror that writes to this partition",
}


def _missing_acl(code: ErrorCode, topic: str) -> Acl | None:
    """Return the ACL that a code of Produce reports as missing."""
    match code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return Acl("destination", "topic", topic, "WRITE")
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return Acl("destination", "cluster", THE_CLUSTER, "IDEMPOTENT_WRITE")
    return None


class Reaction(enum.Enum):
    """The reaction of a partition to a refused request."""

    #: Asks for the leader, then for the log end, and sends again.
    ALIGN = enum.auto()
    #: Sends at most half as much at once: fewer batches in a request, or smaller ones of shoal's own.
    SEND_LESS = enum.auto()
    #: Tries once more, or for a while, and then stops.
    TRY_AGAIN = enum.auto()
    #: Skips the batch, as an incident.
    SKIP = enum.auto()
    STOP = enum.auto()


def reaction_to(code: ErrorCode, *, can_be_less: bool, is_suspect: bool, skips: bool) -> Reaction:
    """
    Return the reaction to a code that a broker answered a request with.

    Args:
        code: The code.
        can_be_less: Whether the request had several batches, or one that shoal made and can make smaller, or
            leave as it came.
        is_suspect: Whether the same batch was refused before, with its cause.
        skips: Whether ``--abort.on.send.failure false`` is set.

    """
    if code in _ABOUT_REPLICAS:
        return Reaction.ALIGN
    if can_be_less and code in _ABOUT_ONE_BATCH | _TOO_LARGE:
        return Reaction.SEND_LESS  # before anything is decided about one of the batches; it costs no try
    if code in _BYTES_REFUSED and skips and is_suspect:
        return Reaction.SKIP
    if code in _BYTES_REFUSED | _SEQUENCE_REFUSED | _UNEXPLAINED:
        return Reaction.TRY_AGAIN  # the cause may be a damaged transfer or a lost acknowledgement
    # Codes about the writer refuse everything that follows, too: nothing is left out for them.
    return Reaction.SKIP if skips and code not in REFUSED_WRITERS else Reaction.STOP


def refuse(copy: PartitionCopy, answer: Refused, destination: Cluster, settings: CopySettings) -> Reaction:
    """Let a partition react to an error code; return the reaction."""
    head = copy.progress.head(answer.end - answer.first)
    code = ErrorCode.of(answer.error_code)
    message = without_objects(answer.message or "")
    named = named_code(answer.error_code) + (f" ({message})" if message else "")
    reaction = reaction_to(
        code,
        can_be_less=_can_be_less(head, settings),
        is_suspect=copy.troubles.at(head.source_start, Trouble.EXPLAINED) is not None,
        skips=settings.continues_after(IncidentKind.SEND_FAILURE),
    )
    match reaction:
        case Reaction.ALIGN:
            copy.wait(f"{copy.destination} on {destination}: {named}")
        case Reaction.SEND_LESS:
            # The topic has the same limit behind this batch. One record says nothing of others.
            is_one_batch = code in _TOO_LARGE and head.batches == 1 < head.records_count
            is_limit = code is ErrorCode.RECORD_LIST_TOO_LARGE or is_one_batch
            copy.progress.send_less(head, always=is_limit)
            copy.wait(f"{destination} refuses {head.size} bytes at once with {named}, so less follows", 0)
        case Reaction.TRY_AGAIN:
            copy.suspect(
                head.source_start,
                f"{destination} refuses the batch at source offset {head.source_start} with {named}",
                patience_s=settings.timing.unexplained_patience_s if code in _UNEXPLAINED else None,
            )
        case Reaction.SKIP:
            where = f"{offsets(head.source_start, head.source_end - 1)} of {copy.source}"
            copy.skip_refused(
                head, f"{destination} refuses {where} with {named}: skipped, and lost at the destination"
            )
        case Reaction.STOP:
            is_one = head.records_count == 1
            what = "record" if is_one else "batch"
            remedy = _REMEDIES.get(code, "read the broker's log")
            if (acl := _missing_acl(code, copy.destination.topic)) is not None:
                remedy = settings.remedy_by(acl)
            size = f"{head.size} bytes" + (" as a batch" if is_one else "")
            copy.stop(
                f"{destination} refuses the {what} at source offset {head.source_start} "
                f"({head.records_count} records, {size}) with {named}: {remedy}"
            )
    return reaction


def _can_be_less(head: Head, settings: CopySettings) -> bool:
    if head.batches > 1 or head.decision is Decision.COPY:
        return head.batches > 1
    # A batch that is joined with none can go as it came, unless everything is decoded.
    may_be_copied = head.decision is Decision.JOIN and not settings.joining.everything
    return head.records_count > 1 or may_be_copied


def land_elsewhere(copy: PartitionCopy, base_offset: int, destination: Cluster) -> None:
    """
    Let a partition react to a request that landed at another offset than the predicted one.

    The alignment meets the incident that explains it, if the end of the log shows one. Otherwise the broker
    may have taken the batch for an older one, and written nothing: it has one more try.
    """
    first, expected = copy.progress.head(1).source_start, copy.progress.here.destination_offset
    copy.suspect(
        first,
        f"the batch at source offset {first} landed at offset {base_offset} of {copy.destination} on "
        f"{destination} instead of {expected}",
        patience_s=0.0,
    )
