"""The records of a batch that is decoded, and the timestamps of them that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..records import Record
from .digest import UNCOMPARED_TIME, Digest

__all__ = ["Decoded", "Decoder", "Times"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """
    A batch's records.

    Attributes:
        records: Those that count, with their create times.
        append_time: The batch's, if it is LogAppendTime; None otherwise.

    """

    records: list[Record]
    append_time: int | None


class Decoder(Protocol):
    """Reads a batch's bytes again."""

    def decode(self, batch: Digest) -> Decoded:
        """
        Return a batch's records.

        Raises:
            NotDecodable: The batch is too large, or damaged.
            ShoalError: The batch cannot be fetched any more.

        """
        ...


@dataclass(frozen=True, slots=True)
class Times:
    """
    The timestamps that count if entries are compared.

    Attributes:
        are_compared: False if the destination writes its own.
        of_append: The source's records have the append times of their
            batches at the destination (``--keep-append-time``).

    """

    are_compared: bool = True
    of_append: bool = False

    @classmethod
    def seen(cls, source: Decoded | None, destination: Decoded | None, of_append: bool = False) -> Times:
        """
        Infer them from the batches in which both sides begin to differ.

        Args:
            source, destination: These batches; None if one cannot be decoded.
            of_append: Whether records before them had append times at the destination.

        """
        if destination is None:
            return cls(of_append=of_append)
        append_time = source.append_time if source else None
        times = {record.timestamp for record in destination.records}
        is_appended = append_time is not None and append_time in times
        return cls(destination.append_time is None, of_append or is_appended)

    def of(self, record: Record, append_time: int | None) -> int:
        """Return the time of a record that counts; ``append_time`` is that of its batch."""
        if not self.are_compared:
            return UNCOMPARED_TIME
        return append_time if self.of_append and append_time is not None else record.timestamp
