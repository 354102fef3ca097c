"""How many records of each content there are, and the last one of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ....records import Record, read_key_value_headers
from .record_key import RecordKey
from .written import OutOfSight

__all__ = ["Contents"]

#: The most different records that are kept.
_MOST_DIFFERENT = 500_000


class _Last(NamedTuple):
    """The last record of a key; a tombstone has no value."""

    content: RecordKey
    is_tombstone: bool


class Contents:
    """
    Records without their bytes.

    Attributes:
        counts: The number of equal records.

    """

    def __init__(self) -> None:
        self.counts: Counter[RecordKey] = Counter()
        self._last_of_key: dict[bytes | None, _Last] = {}

    def add(self, records: Iterable[tuple[Record, RecordKey]], like: Contents | None = None) -> None:
        """
        Add records, or those that have a key or content of others.

        Raises:
            OutOfSight: There are too many different ones.

        """
        for record, content in records:
            key, value, _ = read_key_value_headers(record)
            if like is None or key in like._last_of_key:
                self._last_of_key[key] = _Last(content, key is not None and value is None)
            if like is None or content in like.counts:
                self.counts[content] += 1
        if len(self.counts) > _MOST_DIFFERENT:
            raise OutOfSight

    @property
    def all_have_keys(self) -> bool:
        """Whether no record is without a key."""
        return None not in self._last_of_key

    def ends_as(self, others: Contents, *, tombstones_may_be_gone: bool = False) -> bool:
        """Whether the last record of each key is the same in others, as far as there are keys."""
        return all(
            others._last_of_key[key].content.is_same(last.content)
            if key in others._last_of_key
            else tombstones_may_be_gone and last.is_tombstone
            for key, last in self._last_of_key.items()
            if key is not None
        )
