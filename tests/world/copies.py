"""Copies, compared with what producers wrote, and with what the mirror says of itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.client.config import IsolationLevel
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from shoal.records import RecordBatch
from tests.world.control import Reporting, partitions_of

from .clusters import TOPIC
from .contents import batches_of, places_in
from .history import Written
from .judge import Loss, judge_of
from .maps import pieces_of, wrong_translations
from .reports import Outcome
from .source import SourcePartition

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["check_copies", "check_places"]


def check_copies(world: TaskWorld, outcome: Outcome | None = None, ends: Sequence[int] | None = None) -> None:
    """
    Compare the copies with what producers wrote, and with what the mirror says of itself.

    Args:
        outcome: The end of the last task.
        ends: The source offsets up to which it should have copied.

    """
    most = world.most_in_flight()
    settings = world.brokers.settings
    # Whether a leader takes several batches is asked by two requests together.
    if most > max(settings.max_in_flight, world.former_max_in_flight, 2 * settings.tries_multi_batch):
        world.problems.append(f"{most} requests were in flight on one connection")
    world.former_max_in_flight = 0
    for each in world.in_flight:
        if each.behind_old and not world.clock_is_wrong_by_s:
            world.problems.append("a request followed one whose producer the broker may have forgotten")
        each.behind_old = 0
    copies = [world.copied(each.number) for each in world.partitions]
    world.compared = max(world.compared, sum(map(len, copies)))
    is_complete = outcome is not None and outcome.is_complete and ends is not None
    for partition in world.partitions:
        number = partition.number
        bound = _promised(world, partition)
        if outcome is not None and bound:
            bound = max(bound, outcome.stopped_at.get(number, 0))
        is_copied = is_complete and not (number in world.blocked or number in outcome.stopped)  # type: ignore[union-attr]
        if is_copied and ends:
            bound = max(bound, ends[number])
        present = set(map(id, partition.of_this_topic))

        def is_due(each: Written, bound: int = bound, present: set[int] = present) -> bool:
            return id(each) in present and each.offset < bound

        losses = list(world.losses[number])
        if world.setup.lists_names and number in world.unaligned and not is_copied:
            # A request may have landed in a new copy: the next task counts what lay before it.
            losses.append(Loss(None, len(partition.records)))
        if world.setup.adopts and world.position(number) is None:
            losses.append(Loss(None, len(partition.records)))  # no copy was taken over yet
        found = judge_of(world).compare(copies[number], partition.records, due=is_due, losses=losses)
        world.problems += [f"partition {number}: {problem}" for problem in found.problems]
        if is_copied:
            _settle(world, number, found.missing)


def _settle(world: TaskWorld, number: int, missing: Sequence[Written]) -> None:
    """Accept what a partition lacks behind which all is copied: later reports of losses are of others."""
    for each in missing:
        each.may_lack = True
    world.losses[number].clear()
    world.unaligned.discard(number)
    world.lost_positions.discard(number)


def check_places(world: TaskWorld, control: Reporting) -> None:
    """
    Compare where the copy's records are with what the mirror says of it.

    Each record before a position is before its destination offset, and no other; each run of acknowledged
    offsets names the place of each record.
    """
    for partition in world.partitions:
        number = partition.number
        if world.are_same or number in world.unaligned or number in world.blocked:
            continue
        copy = places_in(world.copy_log(number))
        written = partition.of_this_topic
        if world.logs_were_lost:  # others have the offsets of records that are gone
            written = [each for each in written if each.is_there]
        places = judge_of(world).places(copy, written)
        _check_map(world, partition, places)
        if world.setup.delivery is Delivery.AT_LEAST_ONCE:
            continue
        _check_position(world, number, places)
        if world.logs_were_lost:
            continue
        runs: dict[int, list[Sequence[int]]] = {}
        newest: dict[int, Mapping[str, Any]] = {}
        for each in partitions_of(control):
            if each["partition"] == number:
                newest[each["since"]] = each
                runs.setdefault(each["since"], []).extend(each["runs"])
        batches = [] if _are_rewritten(world) else batches_of(world.copy_log(number))
        world.problems += [
            f"partition {number}: {problem}"
            for since, of_a_task in runs.items()
            for problem in (
                *_repeated(of_a_task),
                *(each for run in of_a_task for each in _misplaced(dict(places), *run)),
                *_not_as_landed(newest[since], of_a_task, batches),
            )
        ]


def _are_rewritten(world: TaskWorld) -> bool:
    """Whether the destination has other batches than were sent."""
    config = dict(world.setup.destination_config)
    return "compression.type" in config or "cleanup.policy" in config


def _check_position(world: TaskWorld, number: int, places: Sequence[tuple[int, int]]) -> None:
    position = world.position(number)
    if position is None:
        return
    # A request that lands behind the records of others is where no map leads.
    leads_to_all = not (world.logs_were_lost or IncidentKind.FOREIGN_RECORDS in world.expected)
    for source, copy in places:
        is_behind = copy >= position.destination_offset
        leads_to = position.run_at(copy).source_at(copy) if is_behind and leads_to_all else source
        if (source >= position.source_offset) != is_behind or leads_to != source:
            world.problems.append(
                f"partition {number}: source offset {source} is at {copy}, and the position says "
                f"{position.source_offset} is at {position.destination_offset}, and {leads_to} at {copy}"
            )
            return


def _check_map(world: TaskWorld, partition: SourcePartition, places: Sequence[tuple[int, int]]) -> None:
    position = world.position(partition.number)
    if position is None:
        return
    may_repeat = world.setup.delivery is Delivery.AT_LEAST_ONCE
    if may_repeat:  # a late request may repeat records behind the position
        places = [(source, copy) for source, copy in places if copy < position.destination_offset]
    if world.level_has_changed:  # a later copy may lack what only an earlier one has
        hidden = {each.offset for each in partition.of_this_topic if not each.is_shown}
        places = [each for each in places if each[0] not in hidden]
    # A mirror that began again may have copied before what the destination refuses now.
    refused = {each.offset for each in partition.of_this_topic if each.was_refused and may_repeat}
    are_all_there = not any(each.may_lack for each in partition.records)
    wrong = wrong_translations(
        position.offsets,
        # Counted as they were copied: the next task has not aligned by other rules yet.
        pieces_of(partition, reads_committed=_read_committed_by(world, position)),
        places,
        world.dice,
        log_start=partition.log.log_start_offset,
        is_exact=are_all_there and not (world.had_incidents or world.logs_were_lost or may_repeat),
        is_counted=not world.level_has_changed,
        certain_before=position.source_offset if may_repeat else math.inf,
        refused=refused,
    )
    world.problems += [f"partition {partition.number}: {each}" for each in wrong]


def _read_committed_by(world: TaskWorld, position: MirrorPosition) -> bool:
    """Whether a position's mirror left out records of aborted transactions."""
    levels = {level.name: level for level in IsolationLevel}
    level = levels.get(position.rules)
    return world.setup.reads_committed if level is None else level is IsolationLevel.READ_COMMITTED


def _promised(world: TaskWorld, partition: SourcePartition) -> int:
    """
    Return the source offset up to which a committed position promises that all is copied.

    A position is never ahead of the copy.
    """
    position = world.position(partition.number)
    if position is None:
        return 0
    topic_id = world.brokers.source.topics.topic(TOPIC).topic_id
    if position.source_topic_id not in (None, str(topic_id)):
        return 0
    if partition.number in world.unaligned:
        return 0
    end = world.copy_log(partition.number).log_end_offset
    if position.destination_offset > end:
        world.problems.append(
            f"partition {partition.number}: the position {position.destination_offset} is ahead of the "
            f"copy, which ends at {end}"
        )
    return position.source_offset


def _misplaced(places: Mapping[int, int], start: int, end: int, landed: int) -> Iterator[str]:
    """Yield what is wrong with a run of acknowledged source offsets."""
    for source in range(start, end):
        said = landed + source - start
        if places.get(source, said) != said:
            yield f"source offset {source} is at {places[source]}, and the mirror reported {said}"


def _not_as_landed(
    report: Mapping[str, Any], runs: Sequence[Sequence[int]], batches: Sequence[RecordBatch]
) -> Iterator[str]:
    """Yield what is wrong with the counts of batches that are all acknowledged, and all there."""
    landed = {offset for start, end, at in runs for offset in range(at, at + end - start)}
    there = [each for each in batches if each.header.base_offset in landed]
    # Of what an alignment has found, the records alone are counted.
    if report["records"] == len(landed) == sum(each.header.records_count for each in there):
        right = len(there), sum(len(each.view) for each in there)
        if (report["batches"], report["bytes_out"]) != right:
            yield f"{right[0]} batches of {right[1]} bytes landed, and a task counted {dict(report)}"


def _repeated(runs: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield each run of acknowledged offsets that begins before the end of an earlier one."""
    end = 0
    for source_start, source_end, landed in runs:
        if landed < end:
            yield f"the mirror reported again what landed from {landed} to before {end}"
        end = landed + source_end - source_start
