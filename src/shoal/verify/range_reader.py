"""A reader of one range of a log, whose last batch may go on behind the range."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from .decoded import Decoded
from .digest import Digest, Digests
from .reading import LogReader

__all__ = ["RangeReader"]


class RangeReader(LogReader):
    """
    Reads a range of a log. Records behind it do not count, though they may be in the same batch.

    A batch that is cut at its end is decoded, as one that is cut at its beginning.

    """

    _whole: Digest | None = None
    _cut: Digest | None = None

    def runs(self, start_offset: int, end_offset: int, *, crop_at: int = 0) -> Generator[Digests]:
        """Yield the digests as a :class:`LogReader` does, the last one without the records behind the end."""
        with closing(super().runs(start_offset, end_offset, crop_at=crop_at)) as runs:
            for found in runs:
                if found.next_offset <= end_offset:
                    yield found
                    continue
                for each in (found,) if isinstance(found, Digest) else found.digests():
                    if each.base_offset < end_offset:
                        yield self._ended(each, end_offset)

    def _ended(self, batch: Digest, end: int) -> Digest:
        if batch.next_offset <= end:
            return batch
        self._whole = batch
        self._cut = batch._replace(next_offset=end, records_count=None, fingerprint=None)
        return self._cut

    def decode(self, batch: Digest) -> Decoded:
        """
        Return the records of a batch that was yielded.

        Raises:
            NotDecodable, ShoalError: As a :class:`LogReader`.

        """
        if self._whole is None or batch != self._cut:
            return super().decode(batch)
        decoded = super().decode(self._whole)
        records = [record for record in decoded.records if record.offset < batch.next_offset]
        return Decoded(records, decoded.append_time)
