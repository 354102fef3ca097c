"""
What can have happened to the clusters that a mirror cannot make good, and what the user wants done then.

Each kind is found by what it leaves behind, named, and met by a policy: the
partition stops (the default), or goes on from where the two sides can be
brought together again, and what that costs is counted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...error_codes import ErrorCode

__all__ = ["REFUSED_WRITERS", "Delivery", "Incident", "IncidentKind"]


class IncidentKind(enum.Enum):
    """The value is the kind's name in options, reports and summaries."""

    #: The destination partition holds records that are not the mirror's.
    FOREIGN_RECORDS = "foreign-records"
    #: Acknowledged records are gone from the destination: an unclean election, or a topic created anew.
    DESTINATION_LOSS = "destination-loss"
    #: What was mirrored is not the source's any more: an unclean election, or a topic created anew.
    SOURCE_RESET = "source-reset"
    #: The source deleted records before they were mirrored.
    SOURCE_RETENTION = "source-retention"
    #: The destination refused a batch that was sent to it (a mirror maker's --abort.on.send.failure).
    SEND_FAILURE = "send-failure"

    @property
    def option(self) -> str:
        """The command line's option for its policy."""
        return f"--on-{self.value}"


#: What a destination refuses of whoever writes, and not of what is written: to leave out a batch for that
#: would leave out all that follow. Java's producer can send nothing after most of them, and MirrorMaker ends.
REFUSED_WRITERS = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)


class Delivery(enum.Enum):
    """What is promised of a destination partition."""

    #: Every record once; for partitions that nobody else writes to.
    EXACTLY_ONCE = "exactly-once"
    #: Every record, some perhaps again after a failure; other writers are welcome.
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class Incident:
    """
    Something that happened to one partition.

    Attributes:
        kind: What it was.
        reason: What was found where, as a sentence.
        lost: Source offsets that were not mirrored and never will be, or
            records that the destination lost and the source has no more;
            None where nobody can tell.
        continued: Whether the mirror went on; else the partition stopped.

    """

    kind: IncidentKind
    reason: str
    lost: int | None = 0
    continued: bool = False
