"""
The part of each partition to mirror: where one without a position begins, and where a mirror ends.

A time stands for the first record that has it or a later one, as ListOffsets finds it. Timestamps need not be
in the order of the log: everything before that record belongs to what was before the time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ...client.offsets import EARLIEST, LATEST
from ...errors import ConfigError
from ...option_values import MOST_DIGITS

__all__ = ["Start", "Until", "parse_duration"]

#: 9999-12-31T23:59:59.999Z, the last time of ISO 8601.
_LAST_TIMESTAMP_MS = 253_402_300_799_999

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: A smaller whole number is an offset, or a year: as milliseconds, it would be a time before March 1973.
_LEAST_TIMESTAMP_MS = 100_000_000_000

_LARGEST_OFFSET = 2**63 - 2

_OFFSET = "offset:"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_LONGEST = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class Start:
    """
    The start position of partitions without a committed position.

    Attributes:
        timestamp_ms: Start at the first record at or after this time, or at ListOffsets' ``EARLIEST`` or
            ``LATEST``.

    """

    timestamp_ms: int = EARLIEST

    @classmethod
    def parse(cls, option: str, value: Start | str | int) -> Start:
        """
        Read ``earliest``, ``latest``, milliseconds since 1970, or an ISO 8601 time.

        A time without an offset is UTC, as in ``kafka-consumer-groups --to-datetime``.

        Raises:
            ConfigError: The text is none of these.

        """
        if isinstance(value, Start):
            return value
        text = str(value)
        if text.lower() in _NAMED_STARTS:
            return cls(_NAMED_STARTS[text.lower()])
        timestamp_ms = _milliseconds(text)
        if timestamp_ms is None:
            raise ConfigError(
                f"{option} {text!r} is neither earliest nor latest nor a time from 1970 to 9999. Use "
                f"milliseconds since 1970 ({_LEAST_TIMESTAMP_MS} or more), or ISO 8601, such as "
                "2026-01-31T12:00:00Z"
            )
        return cls(timestamp_ms)

    @classmethod
    def before_now(cls, duration: timedelta) -> Start:
        """Return the start so long before this moment."""
        return cls(max(0, int(time.time() * 1000) - duration // timedelta(milliseconds=1)))

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        names = {timestamp_ms: name for name, timestamp_ms in _NAMED_STARTS.items()}
        return names.get(self.timestamp_ms, str(self.timestamp_ms))


_NAMED_STARTS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class Until:
    """
    The end of a mirror: that of the logs at its start, unless a time or an offset is set.

    Attributes:
        timestamp_ms: End before the first record at or after this time.
        offset: End before this offset of the only partition.

    """

    timestamp_ms: int | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, option: str, value: Until | str | int) -> Until:
        """
        Read ``now``, an offset, milliseconds since 1970, or an ISO 8601 time.

        A whole number below 100,000,000,000 is an offset, and ``offset:N`` is any offset.

        Raises:
            ConfigError: The text is none of these.

        """
        if isinstance(value, Until):
            return value
        text = str(value).strip()
        if text.lower() == "now":
            return cls()
        number = text.removeprefix(_OFFSET)
        is_number = number.isdecimal() and len(number) <= MOST_DIGITS
        if is_number and (number != text or int(number) < _LEAST_TIMESTAMP_MS):
            return cls(offset=min(int(number), _LARGEST_OFFSET))
        timestamp_ms = _milliseconds(text)
        if timestamp_ms is None:
            raise ConfigError(
                f"{option} {text!r} is neither now nor an offset nor a time from 1970 to 9999. Use "
                "offset:5000, milliseconds since 1970, or ISO 8601, such as 2026-01-31T12:00:00Z"
            )
        return cls(timestamp_ms)

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        if self.offset is not None:
            return f"{_OFFSET}{self.offset}"
        return "now" if self.timestamp_ms is None else str(self.timestamp_ms)

    @property
    def phrase(self) -> str:
        """The end in words, such as ``before 2026-01-31T12:00:00.000Z``."""
        if self.offset is not None:
            return f"before offset {self.offset}"
        if self.timestamp_ms is None:
            return "at the current end offsets"
        return f"before {_iso(self.timestamp_ms)}"

    def is_known(self, asked_at_s: float, ends: Iterable[int]) -> bool:
        """
        Whether the logs had everything before it, so that the ends do not move on.

        Args:
            asked_at_s: The time before the ends were asked for, by this machine's clock, since 1970.
            ends: The ends.

        """
        if self.offset is not None:
            return all(end >= self.offset for end in ends)
        return self.timestamp_ms is None or asked_at_s * 1000 >= self.timestamp_ms

    def check_behind(self, option: str, start: Start) -> None:
        """
        Check that something can lie between the two.

        Args:
            option: The option of the start.
            start: Where a range begins.

        Raises:
            ConfigError: The end is not later than the start.

        """
        if self.timestamp_ms is not None and start.timestamp_ms >= self.timestamp_ms:
            raise ConfigError(
                f"--until ends {self.phrase}, and {option} begins at {_iso(start.timestamp_ms)}. Use a "
                "later end"
            )


def _iso(timestamp_ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return f"{at.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def parse_duration(option: str, value: object) -> timedelta:
    """
    Read ``90s``, ``30m``, ``24h`` or ``7d``.

    Raises:
        ConfigError: The text is no duration, or longer than a century.

    """
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"(\d{1,10})([smhd])", str(value).strip().lower())
    duration = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < duration <= _LONGEST:
        raise ConfigError(f"{option} {value!r} is not a duration. Use 90s, 30m, 24h or 7d")
    return duration


def _milliseconds(text: str) -> int | None:
    """Read a time from 1970 to 9999; None if the text is no such time, or a number that hardly means one."""
    if text.isdecimal():
        timestamp_ms = int(text) if len(text) <= MOST_DIGITS else -1
        if 0 < timestamp_ms < _LEAST_TIMESTAMP_MS:
            return None
    else:
        try:
            timestamp_ms = (_in_utc(datetime.fromisoformat(text)) - _EPOCH) // timedelta(milliseconds=1)
        except ValueError:
            return None
    return timestamp_ms if 0 <= timestamp_ms <= _LAST_TIMESTAMP_MS else None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
