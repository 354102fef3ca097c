"""
Runs of a mirror while nothing goes wrong: each number is exact, and the mirror asks no more than it needs.

Each trial ends with some. A pause that does not end, or an alignment in each turn, loses no record: only
numbers show it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.mirroring.control.limit import Allowance
from shoal.mirroring.model.acknowledged import add_run
from shoal.mirroring.model.steering import TaskSteering
from shoal.protocol.apis import ApiKey
from shoal.records import BatchHeader, Decision, RecordBatch
from tests.world.batches import Content
from tests.world.clusters import QUICK
from tests.world.contents import batches_of, content_of_batch
from tests.world.control import Watched, partitions_of
from tests.world.copies import check_copies, check_places
from tests.world.driver import Driver
from tests.world.faults import answers
from tests.world.needless import Before, needless
from tests.world.task import RunningTask
from tests.world.waiting import wait_until

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["check_in_quiet"]

#: Room for all that producers write between two steps, and for a batch or two.
_LARGE_BUFFER_BYTES, _SMALL_BUFFER_BYTES = 65_536 + 100_000, 65_536 + 200

#: A number of small batches that one fetch does not bring.
_MANY_BATCHES = 60

#: So many checks of its lease show that a task without bytes fetches nothing.
_CHECKS = 30


def check_in_quiet(world: TaskWorld) -> None:
    """Copy some more without any fault, and compare all numbers; then copy nothing; then by two tasks."""
    world.end_faults()
    world.be_patient()
    world.let_late_requests_arrive()
    # Also where requests list topics by name, which no operator creates again now.
    world.brokers = world.brokers.with_timing(recreated_after_s=QUICK.recreated_after_s)
    checks = [_check_growth, _check_nothing, _check_turns, _check_limit]
    for check in checks:
        if not world.problems:
            check(world)


def _check_growth(world: TaskWorld) -> None:
    for each in world.partitions:
        each.grow()
        each.grow()
        if world.dice.random() < 0.3:
            each.begin_or_continue_transaction()
    control, before = Watched(), _before(world)
    world.count_requests()
    world.most_in_flight()
    outcome = world.run(control)
    most = world.most_in_flight()
    is_alone = len(world.partitions) == 1 and not world.brokers.settings.tries_multi_batch
    if most > 1 and is_alone and world.partitions[0].is_of_former_days:
        world.problems.append(f"{most} requests were in flight of a producer that may be forgotten")
    check_copies(world, outcome, [each.end for each in before])
    world.problems += [f"in quiet, {each}" for each in _wrong_numbers(world, control, before)]
    world.problems += [f"in quiet, {each}" for each in needless(world, before)]
    check_places(world, control)


def _check_nothing(world: TaskWorld) -> None:
    """A run that has nothing to copy aligns, and neither fetches nor sends."""
    control, before = Watched(), _before(world)
    world.count_requests()
    world.run(control)
    world.problems += [f"with nothing to copy, {each}" for each in _wrong_numbers(world, control, before)]
    world.problems += [f"with nothing to copy, {each}" for each in needless(world, before)]


def _check_turns(world: TaskWorld) -> None:
    """A second task continues where the first one has committed."""
    with world.driven() as driver:
        driver.want_ranges(world.open_ranges())
        task = driver.start()
        _reach_ends(world, _Since(driver))
        driver.end(task)
        check_copies(world)
        for partition, copied in zip(world.partitions, world.closed_ranges(), strict=True):
            position = world.position(partition.number)
            if position is None or position.source_offset != copied.end_offset:
                world.problems.append(f"partition {partition.number}: a task that ended left {position}")
            partition.grow()
        before, second = _before(world), _Since(driver)
        world.count_requests()
        task = driver.start()
        _reach_ends(world, second)
        driver.server.request_stop()
        world.finish_driven(task)
        check_copies(world)
    world.problems += [f"in a next task, {each}" for each in _wrong_numbers(world, second, before)]
    world.problems += [f"in a next task, {each}" for each in needless(world, before, is_open=True)]


class _Limited(Watched):
    """A task's control under which bytes come as the test lets time pass."""

    steering = TaskSteering(bytes_per_s=1)

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0
        self._now = 0.0
        self.allowance = Allowance(lambda: self._now)

    def check_lease(self) -> None:
        super().check_lease()
        self.checks += 1

    def let_come(self, size: int) -> None:
        """Let bytes come; a task saves those of four tenths of a second."""
        self.allowance.begin(-(-size * 5 // 2))
        self._now += 1

    def wait_for_checks(self, running: RunningTask) -> None:
        """Wait until the task has looked for bytes many times, or has ended."""
        until = self.checks + _CHECKS
        wait_until(lambda: self.checks > until or not running.is_running)


def _check_limit(world: TaskWorld) -> None:
    """A task that may fetch a byte fetches once, and not again until the bytes of the response have come."""
    world.set(fetch_buffer_bytes=_SMALL_BUFFER_BYTES)
    partition = world.partitions[0]
    partition.end_transactions()
    partition.small_batches(_MANY_BATCHES)
    world.let_late_requests_arrive()
    sizes: list[int] = []

    def seen(response: Any) -> Any:
        sizes.append(sum(len(each.record_set) for each in response.partitions))
        return response

    for node in world.source.nodes:
        answers(node, ApiKey.FETCH, seen, math.inf)
    control = _Limited()
    running = world.start(control)
    control.wait_for_checks(running)
    before = list(sizes)
    control.let_come(1)
    wait_until(lambda: any(sizes) or not running.is_running)
    control.wait_for_checks(running)
    fetched = [*filter(None, sizes)]
    control.let_come(sum(len(each.view) for each in batches_of(partition.log)))
    outcome = world.finish(running, control)
    check_copies(world, outcome)
    if before or len(fetched) != (not outcome.stopped):  # a stopped one fetches nothing
        world.problems.append(f"a task fetched {before} without an allowance, and {fetched} with one byte")
    world.end_faults()


class _Since:
    """The reports of a driver's tasks from now on."""

    waits: Sequence[float] = ()

    def __init__(self, driver: Driver) -> None:
        self._driver, self._begin = driver, len(driver.reports)

    @property
    def reports(self) -> list[dict[str, Any]]:
        return self._driver.reports[self._begin :]


def _reach_ends(world: TaskWorld, since: _Since) -> None:
    ends = [each.end_offset for each in world.closed_ranges()]
    wait_until(lambda: world.has_caught_up(since, ends))


def _before(world: TaskWorld) -> list[Before]:
    found = []
    for partition, copied in zip(world.partitions, world.closed_ranges(), strict=True):
        position = world.position(partition.number)
        start = copied.start_offset if position is None else position.source_offset
        end = max(start, copied.end_offset)
        found.append(Before(partition, world.copy_log(partition.number).log_end_offset, start, end))
    return found


# Numbers


def _wrong_numbers(world: TaskWorld, control: Watched | _Since, before: Sequence[Before]) -> Iterator[str]:
    """Yield each number of a task's reports that is not what happened."""
    if control.waits:
        yield f"a worker paused {control.waits}"
    for each in before:
        reports = [
            report for report in partitions_of(control) if report["partition"] == each.partition.number
        ]
        for what, (reported, right) in _compared(world, each, reports).items():
            if reported != right:
                yield f"partition {each.partition.number}: {what} is reported as {reported}, not as {right}"
    for each in before:
        yield from _wrong_codecs(world, each)


def _compared(
    world: TaskWorld, before: Before, reports: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Return each number of one partition as it was reported, and as it is."""
    number, end = before.partition.number, before.end
    sent = [each for each in batches_of(world.copy_log(number)) if each.header.base_offset >= before.copy_end]
    read = [
        each
        for each in batches_of(before.partition.log)
        if each.header.next_offset > before.source_offset and each.header.base_offset < end
    ]
    position = world.position(number)
    counts = list({each["since"]: each for each in reports}.values())
    decisions = sum((Counter(each["decisions"]) for each in counts), Counter[str]())
    runs: list[list[int]] = []
    for each in reports:
        for run in each["runs"]:
            add_run(runs, *run)
    found = {
        "pauses": (sum(each["retries"] for each in counts), 0),
        "why it waits": (
            [each["waiting_for"] or each["commit_waits_for"] for each in reports],
            [None] * len(reports),
        ),
        "incidents": ([each["incidents"] for each in reports if each["incidents"]], []),
        "records": (
            sum(each["records"] for each in counts),
            world.copy_log(number).log_end_offset - before.copy_end,
        ),
        "where it is": (_last(reports, "source_offset"), end),
        "what is committed": (_last(reports, "committed_offset"), end),
        "the position": (position and position.source_offset, end),
        "the place of the position": (
            position and position.destination_offset,
            world.copy_log(number).log_end_offset,
        ),
        "batches sent": (
            sum(count for name, count in decisions.items() if not Decision(name).is_drop),
            len(sent),
        ),
        "batches dropped": (
            {name: count for name, count in decisions.items() if Decision(name).is_drop},
            _dropped(world, before, read),
        ),
    }
    if world.brokers.settings.fetch_buffer_bytes >= _LARGE_BUFFER_BYTES:
        fetched = sum(each["bytes_in"] for each in counts)
        found["bytes fetched"] = fetched, sum(len(each.view) for each in read)
    config = dict(world.setup.destination_config)
    if "compression.type" not in config:
        found["bytes sent"] = sum(each["bytes_out"] for each in counts), sum(len(each.view) for each in sent)
    if sent and not (
        any(each.header.is_log_append_time for each in read) or "message.timestamp.type" in config
    ):
        newest_ms = sent[-1].header.max_timestamp
        if newest_ms >= 0:
            found["the newest time"] = _last(reports, "newest_ms"), newest_ms
    if end > before.source_offset:
        found["its end"] = _last(reports, "end_offset"), end
        open_offsets = before.partition.log.high_watermark - end if world.reads_committed else 0
        found["what transactions hold back"] = _last(reports, "held_back"), open_offsets
    if not world.are_same and "message.timestamp.type" not in config:
        found["where records landed"] = runs, _runs_of(before, sent)
    return found


def _wrong_codecs(world: TaskWorld, before: Before) -> Iterator[str]:
    """Yield each batch of small ones that has another codec than joined batches are to have."""
    rebatch = world.brokers.settings.rebatch
    if rebatch is None or rebatch.codec is None or "compression.type" in dict(world.setup.destination_config):
        return
    if world.are_same:
        return  # equal records may come from any batch
    small = {
        offset
        for batch in batches_of(before.partition.log)
        if batch.header.size < rebatch.below_bytes and _is_plain(batch.header)
        for offset, _ in content_of_batch(batch.view)
    }
    source = _source_offsets(before)
    for batch in batches_of(world.copy_log(before.partition.number)):
        header = batch.header
        if header.base_offset < before.copy_end or header.codec_id == rebatch.codec:
            continue
        if all(source[content] in small for _, content in content_of_batch(batch.view)):
            number = before.partition.number
            yield f"partition {number}: the batch at {header.base_offset} has the codec {header.codec_id}"


def _is_plain(header: BatchHeader) -> bool:
    is_whole = header.magic == 2 and header.records_count == header.last_offset_delta + 1
    return is_whole and not header.is_log_append_time and not header.is_transactional


def _last(reports: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((each[name] for each in reversed(reports) if each[name] is not None), None)


def _dropped(world: TaskWorld, before: Before, read: Sequence[RecordBatch]) -> dict[str, int]:
    """Return the number of batches of which a reader sees nothing, by the reason."""
    # Of a transaction that lost its first marker, the mirror may see other records than the judge.
    shown = {
        each.offset
        for each in before.partition.of_this_topic
        if each.is_shown and each.is_there and not each.may_lack
    }
    found: Counter[str] = Counter()
    for batch in read:
        header = batch.header
        if header.is_control:
            found[Decision.DROP_CONTROL.value] += 1
        elif header.magic == 2 and not header.records_count:
            found[Decision.DROP_EMPTY.value] += 1
        elif header.is_transactional and world.reads_committed:
            offsets = {offset for offset, _ in content_of_batch(batch.view)}
            found[Decision.DROP_ABORTED.value] += not offsets & shown
    return dict(+found)


def _source_offsets(before: Before) -> dict[Content, int]:
    """Return the source offset of each record that a run may copy."""
    return {
        each.content: each.offset
        for each in before.partition.of_this_topic
        if each.offset >= before.source_offset and each.is_there
    }


def _runs_of(before: Before, sent: Sequence[RecordBatch]) -> list[list[int]]:
    """Return the runs of the copy's new records, by what producers wrote to the source."""
    source = _source_offsets(before)
    found: list[list[int]] = []
    for batch in sent:
        for offset, content in content_of_batch(batch.view):
            add_run(found, source[content], source[content] + 1, offset)
    return found
