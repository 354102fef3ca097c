"""
A destination partition with records, for which the mirror's group has no position.

The position may have expired, or was reset. Then the source has the last batch exactly once, and its earlier
records were mirrored, too: the mirror resumes behind that batch. Otherwise copying from the start offset
could double records. So the partition stops, with a description of the copy and the options that apply.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ....client.offsets import EARLIEST
from ....client.scan import read_batches
from ....errors import CorruptBatch, PartitionStopped, UnsupportedBatch
from ....records import Record
from ...model.copy_options import CopySettings
from ...model.incidents import Incident, IncidentKind
from .logs import DestinationLog, PartitionLogs
from .places import retention_is_faster
from .preceding import Preceding, compare_preceding
from .search import SearchResult, SourcePlace, find
from .tail import Tail, last_batch, last_data_batch

if TYPE_CHECKING:
    from ...other_groups import OtherGroups, OtherPosition

__all__ = ["Held", "behind_what_is_there"]

#: The most source batches that are decoded to find one record by its time. Records of the same millisecond
#: may come before it.
_MOST_DECODED_BATCHES = 64


class Held(enum.Enum):
    """The content of a destination partition for which the mirror's group has no position."""

    #: Another group has the position.
    OF_ANOTHER_GROUP = enum.auto()
    #: All records are deleted.
    NOTHING = enum.auto()
    #: The last batch is in the source, behind other records.
    BEHIND_OTHER_RECORDS = enum.auto()
    #: The last batch is in the source, and nothing shows that the records before it were mirrored.
    BEHIND_UNKNOWN_RECORDS = enum.auto()
    #: The last batch is in the source, several times.
    SEVERAL_TIMES = enum.auto()
    #: The last record is in the source, in another batch.
    IN_OTHER_BATCHES = enum.auto()
    #: The last batch and its last record are not in the source.
    NOT_IN_SOURCE = enum.auto()


class _HeldRecords(NamedTuple):
    """
    The content of a destination partition.

    Attributes:
        held: The case.
        what: A phrase about it.
        advice: The options that apply.

    """

    held: Held
    what: str
    advice: str

    @property
    def is_reset(self) -> bool:
        return self.held is Held.NOT_IN_SOURCE


def behind_what_is_there(
    logs: PartitionLogs, incidents: list[Incident], others: OtherGroups
) -> tuple[SourcePlace, int | None]:
    """
    Find the place in the source behind the destination's records.

    Returns:
        The place, and the CRC of the fingerprint of the destination's last batch if the source has it.

    Raises:
        PartitionStopped: Nothing shows the place, and no option allows to begin elsewhere.

    """
    clusters, copy = logs.clusters, logs.copy
    start = SourcePlace(copy.range.start_offset)
    tail = last_batch(logs)
    with retention_is_faster():  # the offsets may have been asked for a while ago
        found = find(logs, tail) if tail else None
    preceding: Preceding | None = None
    if tail and found and len(found.places) == 1:
        (place,) = found.places
        source_start = logs.source_offset_at(EARLIEST)
        preceding = compare_preceding(logs, tail, place, source_start, is_rest=found.is_rest)
        if preceding is Preceding.SHOWN:
            return place, tail.fingerprint.crc
    kind = IncidentKind.SOURCE_RESET
    continues = copy.continues_after(kind)
    begins_anyhow = clusters.settings.allow_nonempty and preceding is not Preceding.NOT_SHOWN
    if begins_anyhow and not continues:
        return start, None
    finding = _look_at(logs, tail, found, preceding, others)
    reason = (
        f"group {clusters.settings.group!r} has no committed position for it, and {copy.destination} on "
        f"{clusters.destination} {finding.what}"
    )
    if begins_anyhow:
        if finding.is_reset or preceding is Preceding.CONTRADICTED:
            incidents.append(Incident(kind, reason, lost=None, continued=True))
        return start, None
    if finding.is_reset:
        if continues:
            incidents.append(Incident(kind, reason, lost=None, continued=True))
            # All of the new topic, also with --start latest: Kafka deleted the first start's memory with it.
            return SourcePlace(logs.source_offset_at(EARLIEST)), None
        incidents.append(Incident(kind, reason))
    sentence = f"{reason}. {finding.advice}"
    raise PartitionStopped(*copy.source, start.source_offset, sentence, can_heal=False, cause=finding.held)


def _look_at(
    logs: PartitionLogs,
    tail: Tail | None,
    batch: SearchResult | None,
    preceding: Preceding | None,
    others: OtherGroups,
) -> _HeldRecords:
    """Describe the content of the destination, with advice."""
    log = logs.log
    other = others.position_of(logs.copy.source)
    if other:
        return _of_another_group(other, log, logs.settings, can_adopt=tail is not None)
    start = logs.copy.range.start_offset
    surface = logs.settings.surface
    allow, rename = surface.option("allow_nonempty"), surface.option("rename")
    adopt = (
        f"Use {surface.option('adopt')} to compare all of the copy with the source and continue behind it, "
        f"or mirror into an empty topic ({rename})"
    )
    if tail is None:
        what = f"held records before offset {log.end}, all deleted since"
        return _HeldRecords(
            Held.NOTHING,
            what,
            f"Nothing shows how far the source was mirrored. Mirror into an empty topic ({rename}), or "
            f"use {allow} to copy from source offset {start} on, also records that were here "
            "before",
        )
    holds = f"holds records before offset {log.end}"
    twice = (
        f"With {allow} all records from source offset {start} on follow: those that the copy "
        "holds already will be there twice"
    )
    if preceding is Preceding.CONTRADICTED:
        what = (
            f"{holds}, and its last batch is in the source, but behind other records than in the copy: the "
            "source topic was deleted and filled again, or another program wrote to the copy"
        )
        return _HeldRecords(
            Held.BEHIND_OTHER_RECORDS, what, f"Mirror into an empty topic ({rename}). {twice}"
        )
    if preceding is Preceding.NOT_SHOWN:
        what = (
            f"{holds}, and its last batch is in the source, but nothing shows that the records were mirrored "
            "which the source has before it: the source topic was deleted and filled again, or the copy "
            "began later than this mirror, or one side holds too little that can be compared"
        )
        advice = f"{adopt}. {allow} does not apply, since it would copy them twice"
        return _HeldRecords(Held.BEHIND_UNKNOWN_RECORDS, what, advice)
    if batch and batch.places:
        what = f"{holds}, and its last batch is {len(batch.places)} times in the source"
        return _HeldRecords(Held.SEVERAL_TIMES, what, f"{adopt}. {twice}")
    if (batch and batch.has_last_record) or _is_last_record_in_source(logs):
        what = (
            f"{holds}, and the source has its last record in another batch: it is another program's copy, or "
            "the source was compacted"
        )
        advice = f"Stop that program, such as MirrorMaker 2. {adopt}. {twice}"
        return _HeldRecords(Held.IN_OTHER_BATCHES, what, advice)
    what = (
        f"{holds}, and its last batch is not in the source: another program wrote it, or the source deleted "
        "or compacted it, or the source topic was deleted and created again"
    )
    kept = f"{surface.continuing(IncidentKind.SOURCE_RESET)} does the same"
    return _HeldRecords(Held.NOT_IN_SOURCE, what, f"Mirror into an empty topic ({rename}). {twice}. {kept}")


def _of_another_group(
    other: OtherPosition, log: DestinationLog, settings: CopySettings, *, can_adopt: bool
) -> _HeldRecords:
    what = (
        f"ends at offset {log.end}. Group {other.group!r} holds the position of this copy, before source "
        f"offset {other.position.source_offset}"
    )
    advice = f"Use group {other.group!r} to continue there"
    if can_adopt:
        adopt = settings.surface.option("adopt")
        advice += f", or {adopt} to let group {settings.group!r} take the copy over"
    return _HeldRecords(Held.OF_ANOTHER_GROUP, what, advice)


def _is_last_record_in_source(logs: PartitionLogs) -> bool:
    """Whether the source has the destination's last record where its time says, however it is batched."""
    tail = last_data_batch(logs)
    if tail is None or tail.header.is_log_append_time:
        return False
    records: list[Record] = []
    with suppress(CorruptBatch, UnsupportedBatch):
        records = list(tail.records)
    if not records or records[-1].timestamp < 0:
        return False
    offset = logs.source_offset_at(records[-1].timestamp)
    return offset >= 0 and _is_near(logs, offset, tail, records[-1])


def _is_near(logs: PartitionLogs, offset: int, tail: Tail, wanted: Record) -> bool:
    """Whether a record is among the first ones of the source from an offset on."""
    batches = read_batches(logs.clusters.source, logs.copy.source, offset)
    for batch in islice(batches, _MOST_DECODED_BATCHES):
        with suppress(CorruptBatch, UnsupportedBatch):
            records = logs.settings.decode(batch)
            if any(tail.is_same_record(wanted, each) for each in records):
                return True
    return False
