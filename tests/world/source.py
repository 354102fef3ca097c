"""
A partition of the source: producers that write batches of every kind, and what a mirror must make of them.

The bytes come from :mod:`tests.world.batches`, which shares no code with shoal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shoal.records import Codec
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content
from tests.world.contents import batches_of
from tests.world.history import ABORT, COMMIT, NOW_MS
from tests.world.verifying import Item, encode

__all__ = ["DAY_MS", "SourcePartition", "Written"]

DAY_MS = 86_400_000

#: The bytes of a batch's leader epoch, which are not under its CRC.
_LEADER_EPOCH = slice(12, 16)

#: The producer of the transaction that stays open for long.
_LONG_PRODUCER_ID = 4_711


@dataclass(slots=True, eq=False)
class Written:
    """
    A record that a producer wrote, and its fate.

    Attributes:
        offset: Its offset in the log that it was written to.
        is_shown: Whether readers of committed records see it: not while its transaction is open or aborted.
        is_there: Whether the source still has it.
        may_lack: Whether the copy need not have it: it was deleted before it was mirrored, or from the copy.

    """

    offset: int
    content: Content
    is_shown: bool = True
    is_there: bool = True
    may_lack: bool = False


class SourcePartition:
    """
    A partition's producers, through all logs that the partition ever had.

    Each record has a value of its own, unless all ``are_same``.

    Attributes:
        number: Its number.
        log: Its present log.
        records: All records that producers wrote, in their order.
        is_damaged: Whether a batch was damaged.

    """

    def __init__(
        self,
        number: int,
        log: Log,
        dice: random.Random,
        *,
        keeps_append_time: bool,
        has_keys: bool,
        are_same: bool = False,
    ) -> None:
        self.number = number
        self.records: list[Written] = []
        self.is_damaged = False
        self._dice = dice
        self._keeps_append_time, self._are_same = keeps_append_time, are_same
        self._keys: list[bytes | None] = [b""] if has_keys else [None, b""]
        self._base_timestamp = dice.choice([NOW_MS, NOW_MS, NOW_MS - DAY_MS, NOW_MS - 30 * DAY_MS])
        self._made = 0
        # The records of each producer's open transaction, and those of ended ones by their marker's offset.
        self._open: dict[int, list[Written]] = {}
        self._ended: list[tuple[int, int, list[Written]]] = []
        self._begins_at = 0
        self.log = log
        self._next_offset = log.log_end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next batch."""
        return max(self._next_offset, self.log.log_end_offset)

    @property
    def of_this_topic(self) -> list[Written]:
        """The records since the topic was created the last time."""
        return self.records[self._begins_at :]

    @property
    def is_of_former_days(self) -> bool:
        """Whether its records are so old that a broker may forget their producer at any time."""
        return self._base_timestamp < NOW_MS

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
            self.batch,
            self.batch,
            self.batch,
            self.holed_batch,
            self.batch_without_records,
            self.transaction,
            self.batch_behind_a_gap,
            self.batch_with_append_time,
        ]
        if self.log.leader_epoch == 0:  # formats without epochs are of the time before a log had any
            kinds += [self.messages, self.compressed_messages]
        kind = self._dice.choice(kinds)
        for _ in range(self._dice.randint(1, 4)):
            kind()

    def batch(self, codec: Codec | None = None) -> None:
        """Write a batch of magic 2."""
        self._encoded(range(self._dice.randint(1, 6)), codec=codec)

    def small_batches(self, count: int) -> None:
        """Write batches of one record each."""
        for _ in range(count):
            self._encoded([0], codec=Codec.NONE)

    def batches_of_many_times(self, count: int) -> None:
        """Write batches with records of today, and of a month ago, which a broker forgets at any time."""
        before = self._base_timestamp
        for _ in range(count):
            self._base_timestamp = self._dice.choice([NOW_MS, NOW_MS, NOW_MS - 30 * DAY_MS])
            self.batch()
        self._base_timestamp = before

    def holed_batch(self) -> None:
        """Write a batch from which the cleaner removed some records."""
        size = self._dice.randint(2, 8)
        kept = [delta for delta in range(size) if self._dice.random() < 0.6] or [size - 1]
        self._encoded(kept, size)

    def batch_without_records(self) -> None:
        """Write a batch from which the cleaner removed all records."""
        size = self._dice.randint(1, 3)
        self._store(batches.batch(size, base_offset=self.next_offset, holes=range(size)))

    def batch_behind_a_gap(self) -> None:
        """Write a batch behind offsets whose batches the cleaner removed."""
        self._next_offset = self.next_offset + self._dice.randint(1, 5)
        self.batch()

    def gap_at_the_end(self) -> None:
        """Let the log end behind offsets whose batches the cleaner removed."""
        self._next_offset = self.next_offset + self._dice.randint(1, 5)
        self.log.end_at(self._next_offset)

    def batch_with_append_time(self) -> None:
        """Write a batch to which the source's broker gave its own time."""
        deltas = range(self._dice.randint(1, 5))
        kept = deltas if self._dice.random() < 0.7 or len(deltas) == 1 else deltas[1:]
        self._encoded(kept, len(deltas), append_time=self._base_timestamp + 777)

    def messages(self) -> None:
        """Write messages of magic 0 or 1, each by itself."""
        magic = self._dice.randint(0, 1)
        for offset in self._ascending_offsets():
            item = self._item()._replace(headers=())
            self._store(
                batches.message(magic, item.value, offset=offset, key=item.key, timestamp=item.timestamp)
            )
            self._note(offset, item if magic else item._replace(timestamp=-1))

    def compressed_messages(self) -> None:
        """Write a compressed message of magic 0 or 1 with others in it."""
        magic = self._dice.randint(0, 1)
        offsets = self._ascending_offsets()
        is_relative = magic == 1 and self._dice.random() < 0.7
        inner = []
        newest = 0
        for offset in offsets:
            item = self._item()._replace(headers=())
            newest = max(newest, item.timestamp)
            inner_offset = offset - offsets[0] if is_relative else offset
            inner.append(
                batches.message(
                    magic, item.value, offset=inner_offset, key=item.key, timestamp=item.timestamp
                )
            )
            self._note(offset, item if magic else item._replace(timestamp=-1))
        codec = self._dice.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
        self._store(batches.wrapper(magic, codec, inner, offset=offsets[-1], timestamp=newest))

    def transaction(self) -> None:
        """Write a transaction, and its marker."""
        ends, producer_id = self._dice.choice([ABORT, COMMIT]), self._dice.randint(1, 3)
        for _ in range(self._dice.randint(1, 3)):
            self._transactional(producer_id)
        self._end(producer_id, ends)

    def begin_or_continue_transaction(self) -> None:
        """Write a batch of a transaction that stays open."""
        self._transactional(_LONG_PRODUCER_ID)

    def end_transactions(self) -> None:
        """Commit or abort each open transaction, also one whose marker an election took."""
        for producer_id in [each for each, records in self._open.items() if records]:
            self._end(producer_id, self._dice.choice([ABORT, COMMIT]))

    def update_keys(self) -> None:
        """Write updates of few keys, as for a compacted topic."""
        for _ in range(self._dice.randint(2, 8)):
            item = self._item()._replace(key=b"key %d" % self._dice.randrange(5), headers=())
            first = self.next_offset
            self._store(encode([item], base_offset=first))
            self._note(first, item)

    def damaged_batch(self) -> None:
        """Write a batch whose last byte was flipped on the way: no broker accepts it."""
        built = encode([self._item()], base_offset=self.next_offset)
        built[-1] ^= 1
        self.is_damaged = True
        self._store(built)

    # Changes of the log

    def deletes_before(self, offset: int) -> None:
        """Delete records, as DeleteRecords and retention do."""
        self.log.delete_records(offset)
        self._are_gone(each for each in self.of_this_topic if each.offset < offset)

    def lost_its_tail(self, after: Log) -> None:
        """Continue in the log of a replica that lacks the last batches."""
        self.log, self._next_offset = after, after.log_end_offset
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
        self.log, self._next_offset, self._open, self._ended = log, 0, {}, []

    def was_cleaned(self, after: Log, is_left: Callable[[int], bool]) -> None:
        """Continue in a compacted log, which has lost some offsets."""
        self.log = after
        self._are_gone(each for each in self.of_this_topic if not is_left(each.offset))

    @staticmethod
    def _are_gone(records: Iterable[Written]) -> None:
        for each in records:
            if each.is_there:
                each.is_there, each.may_lack = False, True

    # Bytes

    def _encoded(
        self,
        deltas: Sequence[int],
        size: int | None = None,
        *,
        codec: Codec | None = None,
        append_time: int | None = None,
    ) -> None:
        first = self.next_offset
        items = [self._item() for _ in deltas]
        codec = self._dice.choice(list(Codec)) if codec is None else codec
        self._store(
            encode(items, codec, base_offset=first, deltas=deltas, size=size, append_time=append_time)
        )
        for delta, item in zip(deltas, items, strict=True):
            if append_time is not None and self._keeps_append_time:
                item = item._replace(timestamp=append_time)
            self._note(first + delta, item)

    def _transactional(self, producer_id: int) -> None:
        first, count = self.next_offset, self._dice.randint(1, 4)
        values = [self._item().value or b"" for _ in range(count)]
        self._store(
            batches.batch(
                values,
                base_offset=first,
                flags=batches.TRANSACTIONAL,
                base_timestamp=self._base_timestamp,
                producer_id=producer_id,
                producer_epoch=0,
            )
        )
        self._open.setdefault(producer_id, []).extend(
            self._note(
                first + delta, Item(self._base_timestamp + delta, b"key %d" % delta, value), is_shown=False
            )
            for delta, value in enumerate(values)
        )

    def _end(self, producer_id: int, ends: int) -> None:
        """End a producer's open transaction, also one that has lost its first marker."""
        records = self._open.pop(producer_id, [])
        for each in records:
            each.is_shown = each.is_shown or ends == COMMIT
        self._ended.append((self.next_offset, producer_id, records))
        self._store(batches.marker(ends, producer_id, base_offset=self.next_offset))

    def _begin_again_before(self, end: int) -> None:
        """Let the transactions be open whose markers are lost: the producer's next marker ends them."""
        for _, producer_id, records in (each for each in self._ended if each[0] >= end):
            self._open.setdefault(producer_id, []).extend(records)
            for record in records:
                record.may_lack = True  # a mirror may have seen it, or not
        self._ended = [each for each in self._ended if each[0] < end]
        for producer_id, records in self._open.items():
            self._open[producer_id] = [each for each in records if each.offset < end]

    def _store(self, batch: bytes | bytearray) -> None:
        batch = bytearray(batch)
        if batch[16] == 2:  # messages of older formats have no epoch
            batch[_LEADER_EPOCH] = self.log.leader_epoch.to_bytes(4)
        self.log.store(memoryview(batch))
        self._next_offset = self.log.log_end_offset

    def _note(self, offset: int, item: Item, *, is_shown: bool = True) -> Written:
        self.records.append(Written(offset, Content(*item), is_shown))
        return self.records[-1]

    def _item(self) -> Item:
        self._made += 1
        if self._are_same:
            return Item(self._base_timestamp, b"key", b"value", ())
        padding = b"x" * self._dice.choice([0, 0, 0, 40, 300])
        value = b"%d/%d %b" % (self.number, self._made, padding)
        key = self._dice.choice([*self._keys, b"key %d" % self._made])
        headers = tuple(
            (f"header {number}", self._dice.choice([None, b"", b"z" * self._dice.randint(1, 60)]))
            for number in range(self._dice.choice([0, 0, 0, 2]))
        )
        return Item(self._base_timestamp + self._dice.randint(-50, 50), key, value, headers)

    def _ascending_offsets(self) -> list[int]:
        """Return offsets from the next one on, some of them left out."""
        offsets = [self.next_offset]
        for _ in range(self._dice.randint(0, 5)):
            offsets.append(offsets[-1] + self._dice.choice([1, 1, 1, 2]))
        return offsets
