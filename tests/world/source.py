"""A partition of the source whose producers write batches of every kind at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from shoal.records import Codec
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content
from tests.world.contents import batches_of
from tests.world.history import ABORT, COMMIT, NOW_MS, LedHistory, Written

__all__ = ["DAY_MS", "SourcePartition"]

DAY_MS = 86_400_000

#: The producer of the transaction that stays open for long.
_LONG_PRODUCER_ID = 4_711


class SourcePartition(LedHistory):
    """
    A partition's history at random, through all logs that the partition ever had.

    Each record has a value of its own, unless all ``are_same``.

    Attributes:
        number: Its number.
        log: Its present log.
        longest: Where the longest of its logs ended; its last offset may have been that of a marker.
        is_damaged: Whether a batch was damaged.
        is_filled_again: Whether it has got records again that it had before.

    """

    def __init__(
        self,
        log: Log,
        dice: random.Random,
        number: int = 0,
        *,
        keeps_append_time: bool = False,
        has_keys: bool = False,
        are_same: bool = False,
    ) -> None:
        super().__init__(log, dice.choice([NOW_MS, NOW_MS, NOW_MS - DAY_MS, NOW_MS - 30 * DAY_MS]))
        self.number = number
        self.longest = log.log_end_offset
        self.is_damaged = self.is_filled_again = False
        self._dice = dice
        self._keeps_append_time, self._are_same = keeps_append_time, are_same
        self._keys: list[bytes | None] = [b""] if has_keys else [None, b""]
        self._made = 0
        # The records of ended transactions, by the offset of their marker and their producer.
        self._ended: list[tuple[int, int, list[Written]]] = []
        self._begins_at = 0

    @property
    def of_this_topic(self) -> list[Written]:
        """The records since the topic was created the last time."""
        return self.records[self._begins_at :]

    @property
    def is_of_former_days(self) -> bool:
        """Whether its records are so old that a broker may forget their producer at any time."""
        return self.base_timestamp < NOW_MS

    @property
    def has_epochs(self) -> bool:
        """Whether each of its batches has a leader epoch."""
        return all(each.header.magic == 2 for each in batches_of(self.log))

    @property
    def last_batch_end(self) -> int:
        """The offset behind the last batch: a mirror may not pass a gap behind it."""
        return max(
            (each.header.next_offset for each in batches_of(self.log)), default=self.log.log_start_offset
        )

    # Producers

    def grow(self) -> None:
        """Write up to four batches, or groups of batches, of one kind."""
        kinds = [
            self.any_batch,
            self.any_batch,
            self.any_batch,
            self.any_holed_batch,
            self.any_empty_batch,
            self.any_transaction,
            self.any_batch_behind_a_gap,
            self.any_batch_with_append_time,
        ]
        if self.log.leader_epoch == 0:  # formats without epochs are of the time before a log had any
            kinds += [self.any_messages, self.any_compressed_messages]
        kind = self._dice.choice(kinds)
        for _ in range(self._dice.randint(1, 4)):
            kind()

    def any_batch(self, codec: Codec | None = None) -> None:
        """Write a batch of magic 2."""
        self._write(range(self._dice.randint(1, 6)), codec=codec)

    def small_batches(self, count: int) -> None:
        """Write batches of one record each."""
        for _ in range(count):
            self._write([0], codec=Codec.NONE)

    def batches_of_many_times(self, count: int) -> None:
        """Write batches with records of today, and of a month ago, which a broker forgets at any time."""
        before = self.base_timestamp
        for _ in range(count):
            self.base_timestamp = self._dice.choice([NOW_MS, NOW_MS, NOW_MS - 30 * DAY_MS])
            self.any_batch()
        self.base_timestamp = before

    def any_holed_batch(self) -> None:
        """Write a batch from which the cleaner removed some records."""
        size = self._dice.randint(2, 8)
        kept = [delta for delta in range(size) if self._dice.random() < 0.6] or [size - 1]
        self._write(kept, size)

    def any_empty_batch(self) -> None:
        """Write a batch from which the cleaner removed all records."""
        self.empty(self._dice.randint(1, 3))

    def any_batch_behind_a_gap(self) -> None:
        """Write a batch behind offsets whose batches the cleaner removed."""
        self.gap(self._dice.randint(1, 5))
        self.any_batch()

    def any_gap_at_the_end(self) -> None:
        """Let the log end behind offsets whose batches the cleaner removed."""
        self.gap_at_the_end(self._dice.randint(1, 5))
        self.longest = max(self.longest, self.next_offset)

    def any_batch_with_append_time(self) -> None:
        """Write a batch to which the source's broker gave its own time."""
        deltas = range(self._dice.randint(1, 5))
        kept = deltas if self._dice.random() < 0.7 or len(deltas) == 1 else deltas[1:]
        self._write(kept, len(deltas), append_time=self.base_timestamp + 777)

    def any_messages(self) -> None:
        """Write messages of magic 0 or 1, each by itself."""
        magic, offsets = self._dice.randint(0, 1), self._ascending_offsets()
        self.messages(self._plain_records(len(offsets)), magic, offsets=offsets)

    def any_compressed_messages(self) -> None:
        """Write a compressed message of magic 0 or 1 with others in it."""
        magic, offsets = self._dice.randint(0, 1), self._ascending_offsets()
        is_relative = magic == 1 and self._dice.random() < 0.7
        records = self._plain_records(len(offsets))
        codec = self._dice.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
        self.messages(records, magic, codec, offsets, is_relative=is_relative)

    def any_transaction(self) -> None:
        """Write a transaction, and its marker."""
        ends, producer_id = self._dice.choice([ABORT, COMMIT]), self._dice.randint(1, 3)
        for _ in range(self._dice.randint(1, 3)):
            self._continue(producer_id)
        self.marker(ends, producer_id)

    def begin_or_continue_transaction(self) -> None:
        """Write a batch of a transaction that stays open."""
        self._continue(_LONG_PRODUCER_ID)

    def _continue(self, producer_id: int) -> None:
        self.begin([self._record().value or b"" for _ in range(self._dice.randint(1, 4))], producer_id)

    def marker(self, kind: int = COMMIT, producer_id: int = 77) -> Self:
        """End a producer's open transaction, also one that has lost its first marker."""
        self._ended.append((self.next_offset, producer_id, self._open.get(producer_id, [])))
        return super().marker(kind, producer_id)

    def end_transactions(self) -> None:
        """Commit or abort each open transaction, also one whose marker an election took."""
        for producer_id in [each for each, records in self._open.items() if records]:
            self.marker(self._dice.choice([ABORT, COMMIT]), producer_id)

    def update_keys(self) -> None:
        """Write updates of few keys, as for a compacted topic."""
        for _ in range(self._dice.randint(2, 8)):
            self.write([self._record()._replace(key=b"key %d" % self._dice.randrange(5), headers=())])

    def damaged_batch(self) -> None:
        """Write a batch whose last byte was flipped on the way: no broker accepts it."""
        built = batches.encode([self._record()], base_offset=self.next_offset)
        built[-1] ^= 1
        self.is_damaged = True
        self.store(built)

    def fill_again(self, records: Sequence[Written]) -> None:
        """Write former records once more, as producers do that repeat what a log has lost."""
        left = [each.content for each in records]
        while left:
            size = self._dice.randint(1, 6)
            self.write(left[:size], self._dice.choice(list(Codec)))
            self.is_filled_again, left = True, left[size:]

    # Changes of the log

    def deletes_before(self, offset: int) -> None:
        """Delete records, as DeleteRecords and retention do."""
        self.log.delete_records(offset)
        self._are_gone(each for each in self.of_this_topic if each.offset < offset)

    def lost_its_tail(self, after: Log) -> None:
        """Continue in the log of a replica that lacks the last batches."""
        self.log, self.next_offset = after, after.log_end_offset
        self._begin_again_before(after.log_end_offset)
        self._are_gone(each for each in self.of_this_topic if each.offset >= after.log_end_offset)

    def hide_before(self, offset: int) -> None:
        """Let no reader that begins at an offset see the records before it."""
        for each in self.records:
            each.is_shown = each.is_shown and each.offset >= offset

    def was_created_again(self, log: Log) -> None:
        """Continue in a new topic."""
        self._are_gone(self.of_this_topic)
        self._begins_at = len(self.records)
        self.log, self.next_offset, self._open, self._ended = log, 0, {}, []

    def was_cleaned(self, after: Log, is_left: Callable[[int], bool]) -> None:
        """Continue in a compacted log, which has lost some offsets."""
        self.log = after
        self._are_gone(each for each in self.of_this_topic if not is_left(each.offset))

    @staticmethod
    def _are_gone(records: Iterable[Written]) -> None:
        for each in records:
            if each.is_there:
                each.is_there, each.may_lack = False, True

    def _begin_again_before(self, end: int) -> None:
        """Let the transactions be open whose markers are lost: the producer's next marker ends them."""
        for _, producer_id, records in (each for each in self._ended if each[0] >= end):
            self._open.setdefault(producer_id, []).extend(records)
            for record in records:
                record.may_lack = True  # a mirror may have seen it, or not
        self._ended = [each for each in self._ended if each[0] < end]
        for producer_id, records in self._open.items():
            self._open[producer_id] = [each for each in records if each.offset < end]

    # Records

    def _write(
        self,
        deltas: Sequence[int],
        size: int | None = None,
        *,
        codec: Codec | None = None,
        append_time: int | None = None,
    ) -> None:
        records = [self._record() for _ in deltas]
        codec = self._dice.choice(list(Codec)) if codec is None else codec
        for each in self.write(records, codec, deltas=deltas, size=size, append_time=append_time):
            if append_time is not None and self._keeps_append_time:
                each.content = each.content._replace(timestamp=append_time)

    def store(self, batch: bytes | bytearray, *, shown: bool = False) -> None:
        """Append a batch, and note how long the log is."""
        super().store(batch, shown=shown)
        self.longest = max(self.longest, self.next_offset)

    def _record(self) -> Content:
        self._made += 1
        if self._are_same:
            return Content(self.base_timestamp, b"key", b"value")
        padding = b"x" * self._dice.choice([0, 0, 0, 40, 300])
        value = b"%d/%d %b" % (self.number, self._made, padding)
        key = self._dice.choice([*self._keys, b"key %d" % self._made])
        headers = tuple(
            (f"header {number}", self._dice.choice([None, b"", b"z" * self._dice.randint(1, 60)]))
            for number in range(self._dice.choice([0, 0, 0, 2]))
        )
        return Content(self.base_timestamp + self._dice.randint(-50, 50), key, value, headers)

    def _plain_records(self, count: int) -> list[Content]:
        """Return records as messages of the old formats can hold them: without headers."""
        return [self._record()._replace(headers=()) for _ in range(count)]

    def _ascending_offsets(self) -> list[int]:
        """Return offsets from the next one on, some of them left out."""
        offsets = [self.next_offset]
        for _ in range(self._dice.randint(0, 5)):
            offsets.append(offsets[-1] + self._dice.choice([1, 1, 1, 2]))
        return offsets
