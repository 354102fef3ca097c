"""
Incidents: changes of the clusters that a mirror cannot repair, and the user's policies for them.

A mirror recognizes each kind by its traces. By default the partition stops. If the user allows it, it
continues at the first offset at which both sides can be aligned again, and the mirror counts the losses.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...error_codes import ErrorCode

__all__ = ["POLICIES", "REFUSED_WRITERS", "Delivery", "Incident", "IncidentKind"]


class IncidentKind(enum.StrEnum):
    """The value is the kind's name in options, reports and summaries."""

    #: The destination partition holds records that are not the mirror's.
    FOREIGN_RECORDS = "foreign-records"
    #: The destination lost acknowledged records: an unclean election, or a recreated topic.
    DESTINATION_LOSS = "destination-loss"
    #: The source lost mirrored records: an unclean election, or a recreated topic.
    SOURCE_RESET = "source-reset"
    #: The source deleted records before they were mirrored.
    SOURCE_RETENTION = "source-retention"
    #: The destination refused a batch that was sent to it (see ``abort.on.send.failure`` of MirrorMaker).
    SEND_FAILURE = "send-failure"
    #: The source sends no records before its log's end, and nothing shows that compaction removed them.
    SOURCE_GAP = "source-gap"
    #: The source lists more new partitions than a running mirror may add. No partition stops.
    NEW_PARTITIONS = "new-partitions"
    #: An archive has a topic that cannot be read, or cannot have it. The topic is left out.
    UNREADABLE_TOPIC = "unreadable-topic"

    @property
    def policy(self) -> IncidentKind:
        """The kind whose policy is this kind's: offsets that the source does not have, or not send."""
        return IncidentKind.SOURCE_RETENTION if self is IncidentKind.SOURCE_GAP else self

    @property
    def continuing(self) -> str:
        """The option that lets a partition continue after an incident of this kind."""
        return f"--continue-after {self.policy.value}"


#: The kinds after which a partition may continue, by option or command. A gap at the source counts as deleted
#: records, and mirror makers have an option of their own for batches that cannot be sent.
POLICIES = (
    IncidentKind.FOREIGN_RECORDS,
    IncidentKind.DESTINATION_LOSS,
    IncidentKind.SOURCE_RESET,
    IncidentKind.SOURCE_RETENTION,
)

#: Errors about the writer, not about the batch. Skipping a batch for one would skip all later batches, too.
#: After most of them, Java's producer can send nothing, and MirrorMaker ends.
REFUSED_WRITERS = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)


class Delivery(enum.Enum):
    """The guarantee for a destination partition."""

    #: Every record once; for partitions without other writers.
    EXACTLY_ONCE = "exactly-once"
    #: Every record, with duplicates after a failure; other writers are allowed.
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class Incident:
    """
    An incident of one partition.

    Attributes:
        reason: The trace that the mirror found, as a sentence.
        lost: The number of source offsets that are never mirrored, or of records that the destination lost
            and the source no longer has; None if it is unknown.
        continued: Whether the partition continued; otherwise it stopped.
        partition: The source partition, as ``topic-number``; empty in a report, which has the partition.

    """

    kind: IncidentKind
    reason: str
    lost: int | None = 0
    continued: bool = False
    partition: str = ""

    @property
    def known_loss(self) -> int:
        """The known losses if the partition continued; 0 if it stopped."""
        return (self.lost or 0) if self.continued else 0
