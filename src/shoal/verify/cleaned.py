"""
Records that only one side has, beside a gap of the other: whether its log cleaner explains them.

The cleaner removes a record if its key occurs again behind it, and with it all earlier records of the key. It
removes the last record of a key only if that is an old tombstone. So a side that lacks a record has its key
only behind the gap. Or it has the key nowhere, and the key's last record on the other side is a tombstone.

The cleaner drops a record without a key, too, and all others before it. No key shows it, so such a record is
not compared.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from ..client.offsets import EARLIEST, LATEST, list_offsets
from ..errors import ShoalError
from ..records import read_key_value_headers
from .alignment import LogPair
from .errors import NotDecodable
from .finding import Finding, Gap, Part
from .reading import LogReader
from .report import OffsetRange, Side

__all__ = ["MOST_CANDIDATES", "Mirrored", "Verdict", "judge", "possible"]

#: The most records to judge: 100 MB. Further ones are not compared.
MOST_CANDIDATES = 262_144


class Verdict(enum.IntEnum):
    """Whether compaction explains a record: of several, the least counts."""

    DIFFERENT = 0
    #: The cleaner may have dropped it, but no key shows it.
    UNKNOWN = 1
    REMOVED = 2


class Mirrored(NamedTuple):
    """
    The records of a log that the other side has had.

    Attributes:
        end: The offset behind the last that is certain.
        log_end: The end of the log.
        gap: The number of offsets at the other side's end that no record is known to have had. As many of
            the next records may have been there, and removed since.

    """

    end: int
    log_end: int
    gap: int = 0


@dataclass(slots=True)
class _Key:
    """
    A key of records that only one side has.

    Attributes:
        is_buried: Whether its last record there is a tombstone, or may be.
        first: Its first record on the other side.

    """

    is_buried: bool = False
    first: int | None = None


@dataclass(slots=True)
class _Wanted:
    """
    Records that one side lacks.

    Attributes:
        lacking: The side that lacks them.
        keys: Their keys, by hash.
        of_record: The hash of each record's key by its offset on the other side; None if it has no key.
        contents: A hash of each record's content and time, by its offset; if it has a time of its own.
        kept: Those of these that the source still has: the destination has such a record twice, or elsewhere.
        first_keyless: The first record without a key on the side that lacks them.

    """

    lacking: Side
    keys: dict[int, _Key] = field(default_factory=dict)
    of_record: dict[int, int | None] = field(default_factory=dict)
    contents: dict[int, int] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    first_keyless: int | None = None

    def verdict(self, part: Part, gap: Gap) -> Verdict:
        """Judge the records of a batch, or one record."""
        offsets = range(part.base_offset, part.next_offset)
        if any(self.contents.get(offset) in self.kept for offset in offsets):
            return Verdict.DIFFERENT
        found = [self._verdict(self.of_record[offset], gap) for offset in offsets if offset in self.of_record]
        return min(found, default=Verdict.DIFFERENT)

    def _verdict(self, key: int | None, gap: Gap) -> Verdict:
        if key is None:
            is_kept = self.first_keyless is not None and self.first_keyless < gap.end
            return Verdict.DIFFERENT if is_kept else Verdict.UNKNOWN
        known = self.keys[key]
        if known.first is None:
            return Verdict.REMOVED if known.is_buried else Verdict.DIFFERENT
        return Verdict.REMOVED if known.first >= gap.end else Verdict.DIFFERENT


def judge(findings: Sequence[Finding], logs: LogPair, mirrored: Mirrored) -> list[Verdict]:
    """
    Find out which findings compaction explains; reads both logs once more.

    Args:
        findings: Records that one side lacks, with the gaps there.
        logs: Both logs. That which lacks records is read from its present start to its present end.
        mirrored: The source's records that the destination has had.

    Returns:
        The verdict of each finding.

    Raises:
        ShoalError: A cluster does not answer.

    """
    missing = _Wanted(Side.DESTINATION)
    extra = _Wanted(Side.SOURCE)
    _read_wanted(missing, [each.source for each in findings], logs.source, mirrored)
    _read_wanted(
        extra,
        [each.destination for each in findings],
        logs.destination,
        Mirrored(logs.end.destination, logs.end.destination),
    )
    _read_lacking(missing, logs.destination)
    _read_lacking(extra, logs.source)
    return _fitting(findings, [_verdict(each, missing, extra) for each in findings])


def possible(findings: Sequence[Finding]) -> list[Verdict]:
    """Judge findings by the sizes of the gaps alone: compaction may explain some, but nothing shows it."""
    is_on_both = [bool(each.source and each.destination) for each in findings]
    return _fitting(findings, [Verdict.DIFFERENT if each else Verdict.UNKNOWN for each in is_on_both])


def _verdict(finding: Finding, missing: _Wanted, extra: _Wanted) -> Verdict:
    in_destination, in_source = finding.gaps
    found = [missing.verdict(each, in_destination) for each in finding.source if in_destination]
    found += [extra.verdict(each, in_source) for each in finding.destination if in_source]
    return min(found)


def _fitting(findings: Sequence[Finding], verdicts: list[Verdict]) -> list[Verdict]:
    """Let a gap explain no more records than it has offsets."""
    counts = Counter[tuple[int, Gap]]()
    for each, verdict in zip(findings, verdicts, strict=True):
        if verdict is not Verdict.DIFFERENT:
            counts.update(dict(_sizes(each)))
    return [
        Verdict.DIFFERENT if any(counts[place] > place[1].size for place, _ in _sizes(each)) else verdict
        for each, verdict in zip(findings, verdicts, strict=True)
    ]


def _sizes(finding: Finding) -> Iterator[tuple[tuple[int, Gap], int]]:
    """Yield each gap of a finding, with its side as a number, and how many records it has to explain."""
    for side, (gap, parts) in enumerate(
        zip(finding.gaps, (finding.source, finding.destination), strict=True)
    ):
        if gap is not None:
            yield (side, gap), sum(each.records for each in parts)


def _read_wanted(
    wanted: _Wanted, findings: Sequence[Sequence[Part]], reader: LogReader, mirrored: Mirrored
) -> None:
    """Read the keys of records from the side that has them, and whether each key ends with a tombstone."""
    parts = sorted((part for parts in findings for part in parts), key=lambda part: part.base_offset)
    if not parts:
        return
    offsets = {offset for part in parts for offset in range(part.base_offset, part.next_offset)}
    further = 0
    for offset, key, is_tombstone, contents in _keys(
        reader, OffsetRange(parts[0].base_offset, mirrored.log_end)
    ):
        further += offset >= mirrored.end
        if further > mirrored.gap:
            break
        if offset in offsets:
            wanted.of_record[offset] = key
            if wanted.lacking is Side.SOURCE and len(contents) == 1:
                wanted.contents[offset] = contents[0]
            if key is not None:
                wanted.keys.setdefault(key, _Key())
        if key is not None and (known := wanted.keys.get(key)) is not None:
            # Of the records that may have been there, any may have been the last.
            known.is_buried = is_tombstone or (further > 0 and known.is_buried)


def _read_lacking(wanted: _Wanted, reader: LogReader) -> None:
    """Find the first record of each key in the log of the side that lacks some."""
    if not wanted.of_record:
        return
    looked_for = set(wanted.contents.values())
    for offset, key, _, contents in _keys(reader, _log_now(reader)):
        wanted.kept.update(looked_for.intersection(contents))
        if key is None:
            wanted.first_keyless = offset if wanted.first_keyless is None else wanted.first_keyless
        elif (known := wanted.keys.get(key)) is not None and known.first is None:
            known.first = offset


def _log_now(reader: LogReader) -> OffsetRange:
    """Ask for a log's present offsets: a record that explains a gap may be newer than the plan."""
    found: Mapping[int, int | ShoalError] = {
        timestamp: list_offsets(reader.cluster, {reader.partition: timestamp}, reader.isolation_level)[
            reader.partition
        ]
        for timestamp in (EARLIEST, LATEST)
    }
    start, end = found[EARLIEST], found[LATEST]
    if isinstance(start, ShoalError):
        raise start
    if isinstance(end, ShoalError):
        raise end
    return OffsetRange(start, max(start, end))


def _keys(reader: LogReader, log: OffsetRange) -> Iterator[tuple[int, int | None, bool, tuple[int, ...]]]:
    """
    Yield each record's offset, a hash of its key (None if it has none), and whether it is a tombstone.

    Also hashes of its content with each of its times, which are two in a LogAppendTime batch, and none in
    the oldest format.
    """
    reader.forget()
    with closing(reader.digests(*log, crop_at=log.start)) as batches:
        for batch in batches:
            if batch.damage:
                continue
            try:
                decoded = reader.decode(batch)
            except NotDecodable:
                continue
            for record in decoded.records:
                if record.offset < log.end:
                    key, value, _ = read_key_value_headers(record)
                    body, times = bytes(record.body), (record.timestamp, decoded.append_time)
                    contents = tuple(hash((body, time)) for time in times if time is not None and time >= 0)
                    yield record.offset, None if key is None else hash(key), value is None, contents
