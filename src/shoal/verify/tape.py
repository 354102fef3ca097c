"""
The digests of a reading, so that a later one begins with them and continues behind them. No I/O of its own.

The beginning of both sides is found by reading their first records. The comparison
then begins there, or a little later, and takes the digests of those batches from
here. Their number is bounded: a long reading costs no memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace

from .digest import Digest, DigestRun, Digests, count_of
from .errors import DamagedLog

__all__ = ["Tape"]

#: The number of batches to keep: 1.5 MB as rows of runs, 512 MB of a log with batches of 8 KB.
MOST_BATCHES = 65_536

#: A batch that is not in a run takes as much memory as so many rows.
_ROWS_OF_DIGEST = 20


class Tape:
    """
    A reading of a log from one offset on, and the digests that it has yielded so far.

    Several may play it one after the other, or by turns: each begins with the
    digests that are kept.

    """

    def __init__(self, start_offset: int, end_offset: int, reading: Generator[Digests]) -> None:
        """
        Prepare to keep the digests of a reading.

        Args:
            start_offset: The first offset; records before it do not count.
            end_offset: The offset at which the reading ends.
            reading: Yields the digests. It is closed with the tape.

        """
        self._start = self._end = start_offset
        self._end_offset = end_offset
        self._reading: Generator[Digests] | None = reading
        self._is_whole = False
        #: The log cannot be read any further than the kept digests.
        self._damage: DamagedLog | None = None
        self._kept: list[Digests] = []
        self._rows = 0

    def has(self, start_offset: int, end_offset: int) -> bool:
        """Whether a reading of some offsets can begin here."""
        return self._end_offset == end_offset and self._start <= start_offset <= self._end

    def close(self) -> None:
        """End the reading; the digests that are kept can be played all the same."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def play(self, start_offset: int) -> Generator[Digests, None, int]:
        """
        Yield the digests from an offset on: those that are kept, and those that are read on.

        Returns:
            The offset from which on another reading has to go on; the end offset if there is nothing more.

        Raises:
            DamagedLog: The log cannot be read any further.
            ShoalError: As the reading.

        """
        number = 0
        offset = start_offset
        while True:
            if number == len(self._kept):
                if self._rows > MOST_BATCHES and self._reading is not None:
                    # There is no room for more: this reading continues by itself.
                    reading, self._reading = self._reading, None
                    with closing(reading):
                        yield from reading
                    return self._end_offset
                if self._damage is not None:
                    raise self._damage
                if self._reading is None or not self._read_on():
                    return self._end_offset if self._is_whole else max(offset, self._end)
                continue
            found = self._kept[number]
            number += 1
            if found.next_offset <= start_offset:
                continue
            offset = found.next_offset
            yield from _from(found, start_offset) if found.follows < start_offset else (found,)

    def _read_on(self) -> bool:
        """Keep one more; return whether there was one."""
        reading, self._reading = self._reading, None
        assert reading is not None
        # An error ends the reading: it is not whole then, and does not continue.
        try:
            found = next(reading, None)
        except DamagedLog as error:
            self._damage = error
            raise
        self._is_whole = found is None
        if found is None:
            return False
        self._reading = reading
        self._kept.append(found)
        self._rows += count_of(found) if isinstance(found, DigestRun) else _ROWS_OF_DIGEST
        self._end = found.next_offset
        return True


def _from(found: Digests, start_offset: int) -> Iterator[Digests]:
    """Yield the digests of a reading that begins at an offset: records before it do not count."""
    if isinstance(found, Digest):
        yield _begin(found, start_offset)
        return
    rest: DigestRun | None = found
    for number, batch in enumerate(found.digests()):
        if batch.next_offset > start_offset:
            _, rest = found.split(number) if number else (None, found)
            if batch.base_offset < start_offset:
                yield _begin(batch, start_offset)
                _, rest = found.split(number + 1)
            break
    if rest is not None:
        if rest.base_offset >= start_offset >= rest.follows:
            gap = min(rest.gap_before, rest.base_offset - start_offset)
            rest = replace(rest, follows=start_offset, gap_before=gap)
        yield rest


def _begin(batch: Digest, start_offset: int) -> Digest:
    """Return a batch as the first of a reading."""
    if batch.base_offset >= start_offset:
        gap = min(batch.gap_before, batch.base_offset - start_offset)
        return batch._replace(follows=start_offset, gap_before=gap)
    return batch._replace(
        base_offset=start_offset,
        follows=start_offset,
        gap_before=0,
        records_count=None,
        fingerprint=None,
        first_timestamp=None,
    )
