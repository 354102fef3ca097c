"""The part of each partition to compare: all of it, its records since a time, its last ones, or a sample."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..errors import ConfigError
from ..mirroring.model.window import Start, Until, parse_duration
from ..option_values import MOST_DIGITS
from .findings import OffsetRange

__all__ = ["LEAST_OFFSETS", "WHOLE", "Extent"]

#: A shorter range cannot be found again at the destination: its records must distinguish it from others.
LEAST_OFFSETS = 1024

#: The offsets of one range of a sample, and the most ranges of a partition. Each range costs a few fetches of
#: up to 4 MiB on both sides, so a sample has few and large ones.
_RANGE_OFFSETS = 16_384
_MOST_RANGES = 64


@dataclass(frozen=True, slots=True)
class Extent:
    """
    The part of each partition to compare.

    Attributes:
        since_ms: Only the records from the first one on that has this time or a later one (milliseconds since
            1970); None for no such limit.
        last_offsets: Only so many last offsets; None for no such limit.
        until: Only the records before it; None or now for no such limit.
        sample: The share of the offsets to compare, above 0 and below 1, in ranges that lie at random; None
            for all of them.

    """

    since_ms: int | None = None
    last_offsets: int | None = None
    sample: float | None = None
    until: Until | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Extent:
        """
        Read ``since``, ``until``, ``last`` and ``sample``, as the command line has them.

        Raises:
            ConfigError: A value cannot be used, or two of them contradict each other.

        """
        since, end, last, sample = (given.get(name) for name in ("since", "until", "last", "sample"))
        if since is not None and last is not None:
            raise ConfigError("--since and --last both set the beginning. Remove one of them")
        since_ms = None if since is None else _parse_since(since)
        last_offsets = None
        if last is not None:
            since_ms, last_offsets = _parse_last(last)
        until = None if end is None else Until.parse("--until", end)
        if until is not None and since_ms is not None:
            until.check_behind("--since", Start(since_ms))
        share = None if sample is None else _parse_sample(sample)
        return cls(since_ms, last_offsets, share, None if until == Until() else until)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self == WHOLE

    def __str__(self) -> str:
        """Return a phrase for reports, such as ``a sample of 5%, since 2026-01-31T12:00:00Z``."""
        parts = []
        if self.sample is not None:
            parts.append(f"a sample of {self.sample * 100:g}%")
        if self.since_ms is not None:
            at = datetime.fromtimestamp(self.since_ms / 1000, UTC)
            parts.append(f"the records since {at:%Y-%m-%dT%H:%M:%SZ}")
        if self.last_offsets is not None:
            parts.append(f"the last {self.last_offsets:,} offsets of each partition")
        if self.until is not None:
            parts.append(f"the records {self.until.phrase}")
        return " of ".join(parts) or "all records"

    def ranges(
        self, log: OffsetRange, since: int | None, until: int | None, draw: random.Random
    ) -> list[OffsetRange]:
        """
        Return the source's ranges to compare, by offset. The whole log is one range.

        Args:
            log: The source's offsets.
            since: The first offset at or after ``since_ms``; None without ``since_ms``.
            until: The first offset that is not wanted; None without ``until``.
            draw: Places the ranges of a sample.

        """
        end = log.end if until is None else max(log.start, min(until, log.end))
        start = log.start if since is None else max(log.start, min(since, end))
        if self.last_offsets is not None:
            start = max(log.start, end - self.last_offsets)
        if start == end:
            return []
        start = min(start, end - LEAST_OFFSETS)
        part = OffsetRange(log.start if start - log.start < LEAST_OFFSETS else start, end)
        return [part] if self.sample is None else _sampled(part, self.sample, draw)


#: Everything that both logs have.
WHOLE = Extent()


def _sampled(log: OffsetRange, share: float, draw: random.Random) -> list[OffsetRange]:
    """Return a range of equal size at a random place in each of some equal parts of a log."""
    size = log.end - log.start
    wanted = math.ceil(size * share)
    count = max(1, min(_MOST_RANGES, round(wanted / _RANGE_OFFSETS)))
    length = max(LEAST_OFFSETS, math.ceil(wanted / count))
    part = size // count
    if part < 3 * LEAST_OFFSETS or length + LEAST_OFFSETS >= part:
        # Too small to leave anything out between two ranges.
        return [log]
    ranges = []
    for number in range(count):
        start = log.start + number * part + draw.randrange(part - length + 1)
        ranges.append(OffsetRange(start, start + length))
    return ranges


def _parse_since(text: str) -> int:
    timestamp_ms = Start.parse("--since", text).timestamp_ms
    if timestamp_ms < 0:
        raise ConfigError(
            f"--since {text!r} is not a time. Use milliseconds since 1970, or ISO 8601, such as "
            "2026-01-31T12:00:00Z"
        )
    return timestamp_ms


def _parse_last(text: str) -> tuple[int | None, int | None]:
    """Return the time or the number of offsets that the last records have."""
    if re.fullmatch(r"\d+", text):
        count = int(text) if len(text) <= MOST_DIGITS else 0
        if not count:
            raise ConfigError(
                f"--last {text!r} is not a number of records. Use 100000, or a duration such as 24h"
            )
        return None, count
    return Start.before_now(parse_duration("--last", text)).timestamp_ms, None


def _parse_sample(text: str) -> float:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", text.strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise ConfigError(
            f"--sample {text!r} is not a share of the records. Use a percentage above 0% and below 100%, "
            "such as 5%"
        )
    return share
