"""
Hard cases, one sort of fault each, in logs that are made for it.

The trials have small logs and all sorts of faults at once. Faults that need two topics, a large log, or a
change while verify reads have cases of their own here. Each returns the error of the report; None if it is
right.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.verify import DifferenceKind, Extent, Outcome, PartitionReport, Side, verify
from shoal.verify.compare import MOST_AHEAD
from shoal.verify.slots import MOST_DIFFERENT
from shoal_broker import Broker
from tests.world import batches
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.history import NOW_MS
from tests.world.verifying import extra, missing, reordered

__all__ = ["CASES", "LARGE_CASES", "Case"]

#: Makes logs between two brokers, compares them, and judges the report.
Case: TypeAlias = Callable[[random.Random, TwoBrokers], str | None]

#: The records of a large log.
_MANY = 200_000


def _items(count: int, topic: str = "topic") -> list[Content]:
    """Return records of which no two are equal."""
    name = topic.encode()
    return [
        Content(NOW_MS + number, b"key %d" % number, b"%s %d" % (name, number)) for number in range(count)
    ]


def _fill(
    rng: random.Random, broker: Broker, items: Sequence[Content], most: int = 400, topic: str = "topic"
) -> None:
    """Give a topic these records, in batches of random sizes and one codec."""
    log, codec, at = broker.create_topic(topic, 1).logs[0], rng.choice(list(Codec)), 0
    while at < len(items):
        part = items[at : at + rng.randrange(1, most)]
        log.store(encode(part, codec, base_offset=log.log_end_offset))
        at += len(part)


def _compared(
    brokers: TwoBrokers, *topics: str, seed: int = 0, extent: Extent | None = None
) -> list[PartitionReport]:
    settings = brokers.settings
    names = {each: each for each in topics or ("topic",)}
    options = {"patience_s": 5.0, "draw": random.Random(seed)}
    if extent is not None:
        return [*verify(settings.source, settings.destination, names, extent=extent, **options).partitions]  # type: ignore[arg-type]
    return [*verify(settings.source, settings.destination, names, **options).partitions]  # type: ignore[arg-type]


def _wrong(report: PartitionReport, **expected: object) -> str | None:
    """Return what of a report is not as expected."""
    found = {name: getattr(report, name) for name in expected}
    if found == expected:
        return None
    differences = [str(each) for each in report.differences[:4]]
    return f"{found} instead of {expected}: {report.reason}, {report.alignment}, {differences}"


def open_transaction_at_the_end(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """The records behind an open transaction of the destination are neither missing nor equal."""
    items = _items(rng.randrange(50, 3_000))
    held = rng.randrange(40, len(items))
    is_altered = rng.random() < 0.5
    copied = list(items)
    at = rng.randrange(20, held - 10)
    if is_altered:
        copied[at] = copied[at]._replace(value=b"another")
    _fill(rng, brokers.source, items)
    _fill(rng, brokers.destination, copied[:held])
    log = brokers.destination.log("topic")
    batch = encode(copied[held : held + 5], base_offset=held, flags=batches.TRANSACTIONAL)
    log.store(batches.patched(batch, 43, struct.pack(">qhi", 9, 0, 0)))
    rest = copied[held + 5 : rng.randrange(held, len(items) + 1)]
    if rest:
        log.store(encode(rest, base_offset=log.log_end_offset))
    (report,) = _compared(brokers)
    outcome = Outcome.DIFFERENT if is_altered else Outcome.NOT_COMPARED
    wrong = _wrong(report, outcome=outcome, records=held - is_altered, is_held=True)
    return wrong or _wrong(report, counts={DifferenceKind.ALTERED: 1} if is_altered else {})


def misrouted_across_topics(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """A run of one topic that is in the copy of another names both."""
    count = rng.randrange(100, 3_000)
    orders, invoices = _items(count, "orders"), _items(count, "invoices")
    begin, at = rng.randrange(20, count - 40), rng.randrange(20, count)
    size, is_sent_to_both = rng.randrange(1, 20), rng.random() < 0.3
    run = orders[begin : begin + size]
    for topic, items in (("orders", orders), ("invoices", invoices)):
        _fill(rng, brokers.source, items, 30, topic)
    _fill(rng, brokers.destination, [*invoices[:at], *run, *invoices[at:]], 30, "invoices")
    copied = orders if is_sent_to_both else [*orders[:begin], *orders[begin + size :]]
    _fill(rng, brokers.destination, copied, 30, "orders")
    there, here = _compared(brokers, "orders", "invoices")
    (found,) = there.differences
    halves = [found.misrouted] if is_sent_to_both else [found.misrouted, here.differences[0].misrouted]
    if not all(halves) or found.misrouted is None:
        return f"not misrouted: {found}, {[str(each) for each in here.differences]}"
    wanted = ("orders-0", (begin, begin + size), size)
    named = (found.misrouted.partition, tuple(found.misrouted.offsets), found.misrouted.records)
    return None if named == wanted else f"{named} instead of {wanted}"


def many_lost_in_a_row(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """A loss that is longer than the look ahead is one range; the comparison ends in one too long."""
    items = _items(_MANY)
    begin = rng.randrange(1_000, 20_000)
    end = begin + rng.randrange(MOST_AHEAD + 1, _MANY - begin - 1_000)
    _fill(rng, brokers.source, items)
    _fill(rng, brokers.destination, [*items[:begin], *items[end:]])
    (report,) = _compared(brokers)
    is_too_long = end - begin >= MOST_DIFFERENT
    explained = begin + min(end - begin, MOST_DIFFERENT)
    records = begin if is_too_long else _MANY - end + begin
    return _wrong(report, outcome=Outcome.DIFFERENT, records=records) or (
        None
        if missing(report) == [(begin, explained)] and is_too_long is bool(report.reason)
        else f"missing {missing(report)}, not {(begin, explained)}; {report.reason}"
    )


def block_moved_or_doubled_in_a_large_log(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """A block of 20,000 records that is elsewhere, or there twice, is one range."""
    items, size = _items(_MANY), 20_000
    begin = rng.randrange(_MANY // 2 - size)
    to = rng.randrange(begin + size, _MANY)
    block, is_moved = items[begin : begin + size], rng.random() < 0.5
    before = [*items[:begin], *items[begin + size : to]] if is_moved else items[:to]
    _fill(rng, brokers.source, items)
    _fill(rng, brokers.destination, [*before, *block, *items[to:]])
    (report,) = _compared(brokers)
    found = (
        reordered(report) if is_moved else [(each.copy_of, each.destination) for each in report.differences]
    )
    # If the records between are fewer than those of the block, they are the ones that moved.
    moved, there = (begin, begin + size), (len(before), len(before) + size)
    if is_moved and to - begin - size < size:
        moved, there = (begin + size, to), (begin, to - size)
    return None if found == [(moved, there)] else f"{found} instead of {[(moved, there)]}, {extra(report)}"


def altered_between_right_ones_all_over_a_large_log(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """Each altered record is named if one right one stands behind one to four of them, and reading ends."""
    items, every, begin = _items(_MANY), rng.randrange(2, 6), rng.randrange(20, 1_000)
    copied = [
        item if number < begin or number % every == 0 else item._replace(value=b"another %d" % number)
        for number, item in enumerate(items)
    ]
    _fill(rng, brokers.source, items)
    _fill(rng, brokers.destination, copied)
    (report,) = _compared(brokers)
    altered = sum(item != copy for item, copy in zip(items, copied, strict=True))
    # Each has two sides.
    is_named = min(altered, MOST_DIFFERENT // 2) <= report.counts[DifferenceKind.ALTERED] <= altered
    logs = [each.log("topic") for each in (brokers.source, brokers.destination)]
    size = sum(len(batch.view) for log in logs for batch in batches_of(log))
    return _wrong(report, outcome=Outcome.DIFFERENT) or (
        None
        if is_named and len(report.counts) == 1 and report.bytes_read < 5 * size
        else f"{report.counts} of {altered} altered, {report.bytes_read} bytes read of {size}"
    )


def retention_that_moves_while_reading(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """Records that retention deletes during the comparison are no difference."""
    count = rng.randrange(60, 3_000)
    items = _items(count)
    _fill(rng, brokers.source, items, 50)
    _fill(rng, brokers.destination, items, 50)
    broker = rng.choice([brokers.source, brokers.destination])
    deleted = rng.randrange(1, count - 40)
    fetch = broker.faults.add(ApiKey.FETCH, times=rng.randrange(1, 3), delay_s=0.05, topic="topic")

    def delete() -> None:
        broker.faults.wait_for(fetch)
        broker.log("topic").delete_records(deleted)

    thread = threading.Thread(target=delete)
    thread.start()
    (report,) = _compared(brokers)
    thread.join()
    return (
        None
        if report.records in (count, count - deleted) and report.outcome is Outcome.EQUAL
        else _wrong(report, outcome=Outcome.EQUAL, records=count - deleted)
    )


def damaged_length(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """A length that leads nowhere ends the comparison, and names its cluster; all before it is compared."""
    items = _items(rng.randrange(200, 2_000))
    _fill(rng, brokers.source, items, 40)
    _fill(rng, brokers.destination, items, 40)
    side = rng.choice(list(Side))
    log = (brokers.source if side is Side.SOURCE else brokers.destination).log("topic")
    number = rng.randrange(3, 5)
    log.flip_bit(number, 8, 7)  # the length is negative
    (report,) = _compared(brokers)
    (found,) = report.differences
    offsets = found.source if side is Side.SOURCE else found.destination
    return _wrong(report, outcome=Outcome.DIFFERENT, records=offsets.start) or (
        None
        if (found.damaged, offsets.end) == ((side,), len(items)) and report.reason
        else f"{found}, reason {report.reason}"
    )


def sample_of_a_copy_with_a_fault(rng: random.Random, brokers: TwoBrokers) -> str | None:
    """A sample reports a fault if one of its ranges has it, and no other."""
    items = _items(rng.randrange(20_000, 80_000))
    at, copied = rng.randrange(len(items)), list(items)
    copied[at] = copied[at]._replace(value=b"another")
    _fill(rng, brokers.source, items)
    _fill(rng, brokers.destination, copied)
    (report,) = _compared(
        brokers, seed=rng.randrange(10_000), extent=Extent(sample=rng.choice([0.05, 0.2, 0.5]))
    )
    ranges = [each.source for each in report.ranges or ()]
    is_within = any(each.start <= at < each.end for each in ranges)
    records = sum(each.end - each.start for each in ranges) - is_within
    return _wrong(report, outcome=Outcome.DIFFERENT if is_within else Outcome.EQUAL, records=records) or (
        None if 0 < records < len(items) else f"{records} of {len(items)} records"
    )


#: The cases by name.
CASES: dict[str, Case] = {
    each.__name__: each
    for each in (
        open_transaction_at_the_end,
        misrouted_across_topics,
        many_lost_in_a_row,
        block_moved_or_doubled_in_a_large_log,
        altered_between_right_ones_all_over_a_large_log,
        retention_that_moves_while_reading,
        damaged_length,
        sample_of_a_copy_with_a_fault,
    )
}

#: Those with large logs, which take seconds.
LARGE_CASES = (
    many_lost_in_a_row.__name__,
    block_moved_or_doubled_in_a_large_log.__name__,
    altered_between_right_ones_all_over_a_large_log.__name__,
)
