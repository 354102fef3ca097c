"""
One side's batches in order, and the records in them as far as they are wanted. No I/O of its own.

A batch is decoded only if its records are asked for: :meth:`ComparedSide.decoded` returns the
bytes of the first batch's records, :meth:`ComparedSide.entries` a window of entries, which
may reach over several batches. Bytes are kept of one
batch, entries of the window. A record that is taken is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from ..errors import ShoalError
from .decoded import Decoded, Decoder, Times
from .digest import (
    Digest,
    DigestRun,
    Digests,
    Entry,
    count_of,
    entry,
    last_of,
    unreadable_entry,
)
from .errors import NotDecodable
from .finding import Gap, SameRun

__all__ = ["ComparedSide"]

#: The number of taken batches to remember.
_MOST_REMEMBERED = 64

#: Behind all offsets.
_NO_OFFSET = 2**63

#: A damaged header may claim any number of records.
_MOST_UNREADABLE = 1_000_000


class ComparedSide:
    """
    One side of a comparison.

    Attributes:
        position: The offset after the last record that was taken.
        index: How many records of the first batch are taken.
        failure: The error that broke the stream of batches off. It has no more
            batches then, but this is not the end of the log.
        times: The timestamps that count in entries that are made from now on.

    """

    def __init__(
        self, batches: Iterable[Digests], position: int, decoder: Decoder, end: int | None = None
    ) -> None:
        """
        Begin before the first batch.

        Args:
            batches: The batches, in order.
            position: The offset at which the comparison begins.
            decoder: Decodes them.
            end: The offset behind the last batch and any gap there; None if it is not known.

        """
        self.position = position
        self._end = end
        self._taken: deque[Digests] = deque()
        self._count_taken = 0
        self.index = 0
        self.failure: ShoalError | None = None
        self.times = Times()
        self._rest = iter(batches)
        self._has_ended = False
        self._decoder = decoder
        #: The next batches that were looked at, and those that were fetched with them.
        self._batches: deque[Digest] = deque()
        self._run: DigestRun | None = None
        #: Entries of the first batches that are not taken yet, and how many batches these are.
        self._entries: deque[Entry] = deque()
        self._entered = 0
        #: The last batch that was decoded.
        self._decoded: tuple[Digest, Decoded] | None = None
        #: Offsets without a record at the end of the last batch taken.
        self._holes = 0
        #: All records of the first batch that are taken were found on the other side.
        self._is_found = True
        #: How many batches there are before the end of a stretch; None for no stretch.
        self._left: int | None = None

    # Batches

    def first(self) -> Digest | None:
        """Return the batch of the next record; None at the end of the log, or of the stretch."""
        return None if self._left == 0 else self._at(0)

    def batch(self) -> Digest | None:
        """Return the next batch, unless some of its records are taken already."""
        return None if self.index else self.first()

    def batches(self, count: int) -> list[Digest]:
        """Return up to ``count`` of the next batches that are not begun."""
        begun = bool(self.index)
        self._fill(count + begun)
        return list(islice(self._batches, int(begun), count + begun))

    def _at(self, index: int) -> Digest | None:
        self._fill(index + 1)
        return self._batches[index] if index < len(self._batches) else None

    def _fill(self, count: int) -> None:
        while len(self._batches) < count:
            if self._run is not None:
                head, self._run = self._run.split(count - len(self._batches))
                self._batches.extend(head.digests())
            elif not self._pull():
                return

    def _pull(self) -> bool:
        """Take the next batches of the stream; return whether there are any."""
        if self._has_ended:
            return False
        found = None
        try:
            found = next(self._rest, None)
        except ShoalError as error:
            self.failure = error
        self._has_ended = found is None
        if isinstance(found, DigestRun):
            self._run = found
        elif found is not None:
            self._batches.append(found)
        return found is not None

    def batches_end_within(self, count: int) -> bool:
        """Whether no more than ``count`` batches are left that are not begun."""
        is_all = self._has_ended and self._run is None and not self.failure
        return is_all and len(self._batches) - bool(self.index) <= count

    def run(self) -> DigestRun | None:
        """Return the next plain batches; None if there are none, or some of them were looked at."""
        if self._batches or self._left is not None:
            return None
        if self._run is None:
            self._pull()
        return self._run

    def take_run(self, count: int) -> DigestRun:
        """Take some of the batches that :meth:`run` returned."""
        assert self._run is not None
        taken, self._run = self._run.split(count)
        self._remember(taken)
        self._holes = 0
        self.position = taken.next_offset
        return taken

    def _remember(self, taken: Digests) -> None:
        self._taken.append(taken)
        self._count_taken += count_of(taken)
        while self._count_taken - count_of(self._taken[0]) >= _MOST_REMEMBERED:
            self._count_taken -= count_of(self._taken.popleft())

    def pop_batch(self) -> Digest:
        """Take the next batch, which is not begun."""
        batch = self._batches[0]
        if self._entered:
            while not self._entries.popleft().is_last:
                pass
            self._entered -= 1
        self._finish_batch(batch.next_offset)
        self.position = batch.next_offset
        return batch

    def _finish_batch(self, end: int) -> None:
        batch = self._batches.popleft()
        self._remember(batch)
        self._holes = max(0, batch.next_offset - end)
        self.index = 0
        self._is_found = True
        if self._left is not None:
            self._left -= 1

    # A stretch, behind which both sides agree again

    def begin_stretch(self, batches: int) -> None:
        """Let so many batches that are not begun be all that there is, for now."""
        self._left = batches + bool(self.index)

    def end_stretch(self) -> None:
        """Let there be everything again."""
        self._left = None

    def _is_within(self, index: int) -> bool:
        return self._left is None or index < self._left

    # Records as they are

    def decoded(self) -> Decoded | None:
        """
        Return the records of the batch that :meth:`first` returns; None if entries have to do.

        That is so if it cannot be read, or if the window reaches further.
        """
        batch = self.first()
        if batch is None or self._entered > 1:
            return None
        if self._entered and (self._decoded is None or self._decoded[0] != batch):
            return None
        return self._decode(0)

    def _decode(self, index: int) -> Decoded | None:
        """Decode a batch; if that fails, its digest has the reason from now on."""
        batch = self._batches[index]
        if not batch.is_readable:
            return None
        if self._decoded is None or self._decoded[0] != batch:
            try:
                self._decoded = batch, self._decoder.decode(batch)
            except NotDecodable as error:
                self._batches[index] = batch._replace(undecoded=str(error))
                return None
        return self._decoded[1]

    def forget_entries(self) -> None:
        """Drop the window, of the batch that :meth:`decoded` returned."""
        self._entries.clear()
        self._entered = 0

    def advance(self, decoded: Decoded, count: int) -> SameRun:
        """Take some of the records that :meth:`decoded` returned: the other side has them too."""
        records = decoded.records
        begin = records[self.index].offset if count else self.position
        self.index += count
        if count:
            self.position = records[self.index - 1].offset + 1
        is_done = self.index == len(records)
        run = SameRun(begin, self.position, count, is_done and self._is_found)
        if is_done:
            self._finish_batch(self.position)
        return run

    # Records as entries

    @property
    def has_entries(self) -> bool:
        """Whether there is a window."""
        return self._entered > 0

    def entries(self, count: int) -> list[Entry]:
        """Return up to ``count`` of the next entries, within the stretch, and leave them there."""
        while len(self._entries) < count and self._is_within(self._entered) and self._enter():
            pass
        if self._left is None:
            return list(islice(self._entries, count))
        found: list[Entry] = []
        left = self._left
        for each in islice(self._entries, count):
            if not left:
                break
            found.append(each)
            left -= each.is_last
        return found

    def entries_end_within(self, count: int) -> bool:
        """Whether no more than ``count`` entries are left; :meth:`entries` was asked for so many."""
        if self._left is not None:
            return self._left <= self._entered and len(self.entries(count + 1)) <= count
        is_all = self._entered == len(self._batches) and self._run is None and self._has_ended
        return is_all and self.failure is None and len(self._entries) <= count

    def peek(self) -> Entry | None:
        """Return the next entry, even if the stretch ends before it."""
        while not self._entries and self._enter():
            pass
        return self._entries[0] if self._entries else None

    def gap_ahead(self) -> Gap:
        """Return the gap before the next record, or at the end of the log."""
        following = self.peek()
        if following is None:
            return self._gap_at_the_end()
        return Gap(following.base_offset, following.gap_before)

    def gap_ahead_of_batch(self) -> Gap:
        """Return the gap before the next batch, which is not begun, or at the end."""
        following = self._at(0)
        if following is None:
            return self._gap_at_the_end()
        return Gap(following.base_offset, self._holes + following.gap_before)

    def _gap_at_the_end(self) -> Gap:
        size = self._holes if self._end is None or self.failure else max(0, self._end - self.position)
        return Gap(_NO_OFFSET, size)

    def take(self, count: int, *, are_found: bool = False) -> list[Entry]:
        """Take entries; ``are_found`` if the other side has them in the same place."""
        taken = [self._entries.popleft() for _ in range(count)]
        for each in taken:
            self.position = each.next_offset
            self.index += 1
            self._is_found &= are_found
            if each.is_last:
                self._entered -= 1
                self._finish_batch(each.next_offset)
        return taken

    def take_found(self) -> SameRun:
        """Take the next entry, which the other side has too."""
        is_found = self._is_found
        (taken,) = self.take(1, are_found=True)
        return SameRun(taken.base_offset, taken.next_offset, 1, taken.is_last and is_found)

    def _enter(self) -> bool:
        """Make entries of one more batch; return whether there was one."""
        batch = self._at(self._entered)
        if batch is None:
            return False
        decoded = self._decode(self._entered)
        if decoded is None:
            self._entries.extend(self._unreadable(self._batches[self._entered]))
        elif decoded.records:
            self._entries.extend(self._entries_of(batch, decoded))
        else:
            self._skip_empty(batch)
            return True
        self._entered += 1
        return True

    def _skip_empty(self, batch: Digest) -> None:
        """Let a batch without records be a gap before the next one."""
        following = self._at(self._entered + 1)
        if following is not None:
            gap = batch.gap_before + batch.next_offset - batch.base_offset + following.gap_before
            self._batches[self._entered + 1] = following._replace(gap_before=gap)
        del self._batches[self._entered]
        if self._left is not None and self._is_within(self._entered):
            self._left -= 1

    def _before_entry(self, batch: Digest) -> tuple[int, int]:
        """Return the end of the last record before the next entry, and the gap up to that entry's batch."""
        if self._entries:
            last = self._entries[-1]
            return last.next_offset, max(0, last.batch.next_offset - last.next_offset) + batch.gap_before
        return self.position, 0 if self.index else self._holes + batch.gap_before

    def _entries_of(self, batch: Digest, decoded: Decoded) -> Iterator[Entry]:
        skip = 0 if self._entered else self.index
        end, gap = self._before_entry(batch)
        at = end if skip else batch.base_offset
        last = len(decoded.records) - 1
        for number in range(skip, last + 1):
            record = decoded.records[number]
            yield entry(
                record,
                self.times.of(record, decoded.append_time),
                batch,
                follows=end,
                gap_before=gap + record.offset - at,
                is_first=number == 0,
                is_last=number == last,
                append_time=decoded.append_time,
            )
            at = end = record.offset + 1
            gap = 0

    def _unreadable(self, batch: Digest) -> Iterator[Entry]:
        """Yield as many entries as a batch has records that cannot be read."""
        end, gap = self._before_entry(batch)
        count = max(1, min(batch.records, batch.next_offset - batch.base_offset, _MOST_UNREADABLE))
        for number in range(0 if self._entered else self.index, count):
            offset = batch.base_offset + number
            yield unreadable_entry(
                batch,
                offset,
                follows=end,
                gap_before=gap,
                is_first=number == 0,
                is_last=number + 1 == count,
            )
            end, gap = offset + 1, 0

    # Records that were taken

    def last_entries(self, since: int, most: int) -> list[Entry]:
        """Return the last entries taken from an offset on, about ``most`` of them, if they can be read."""
        begun = [self._batches[0]] if self.index else []
        taken = [batch for each in self._taken for batch in last_of(each, _MOST_REMEMBERED)]
        found: list[Entry] = []
        for batch in (*begun, *reversed(taken[-_MOST_REMEMBERED:])):
            if len(found) >= most or batch.next_offset <= since:
                break
            if batch.is_readable:
                found = self.entries_of(batch) + found
        return [each for each in found if since <= each.base_offset < self.position]

    @property
    def has_gap_behind(self) -> bool:
        """Whether one of the last batches taken has a gap in it, or before it."""
        begun = [self._batches[0]] if self.index else []
        return any(
            each.gap_before or each.records < each.next_offset - each.base_offset
            for each in (*self._taken, *begun)
        )

    def entries_of(self, batch: Digest) -> list[Entry]:
        """Return all records of a batch, taken or not; none if it cannot be read."""
        is_known = self._decoded is not None and self._decoded[0] == batch
        try:
            decoded = self._decoded[1] if self._decoded and is_known else self._decoder.decode(batch)
        except NotDecodable:
            return []
        last = len(decoded.records) - 1
        follows = batch.follows
        found = []
        for number, record in enumerate(decoded.records):
            time = self.times.of(record, decoded.append_time)
            found.append(
                entry(
                    record,
                    time,
                    batch,
                    follows=follows,
                    gap_before=0,
                    is_first=number == 0,
                    is_last=number == last,
                    append_time=decoded.append_time,
                )
            )
            follows = record.offset + 1
        return found
