"""The reports of tasks: their counts, incidents and stops are right, and an event explains each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.errors import PartitionStopped
from shoal.mirroring.model.incidents import IncidentKind
from shoal.records import Decision
from tests.world.control import Reporting, Watched, partitions_of
from tests.world.task import TaskResult

from .adoption import ADOPT, needless_refusal
from .judge import Loss

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["Outcome", "check_commits", "check_reports", "outcome_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    The end of a task.

    Attributes:
        is_complete: Whether all partitions are done or stopped.
        stopped: The sentence by which a partition stopped, by its number.
        stopped_at: The source offset at which it stopped, of each that was copied up to there.
        was_killed: Whether its process died.

    """

    is_complete: bool = False
    stopped: dict[int, str] = field(default_factory=dict)
    stopped_at: dict[int, int] = field(default_factory=dict)
    was_killed: bool = False


def check_reports(world: TaskWorld, control: Reporting) -> None:
    """Note what is wrong with the counts and incidents that tasks reported."""
    for each in partitions_of(control):
        number = each["partition"]
        world.problems += [f"partition {number}: {problem}" for problem in _miscounted(each)]
        skipped, longest = each["decisions"].get(Decision.SKIP_GAP.value, 0), world.partitions[number].longest
        if skipped > longest and IncidentKind.SOURCE_RESET not in world.expected:
            world.problems.append(f"partition {number}: {skipped} offsets skipped of {longest}")
        for kind, reason, lost, has_continued in each["incidents"]:
            world.had_incidents = True
            _note_loss(world, number, IncidentKind(kind), lost)
            if has_continued:
                _note_refused(world, number, reason)
                _check_incident(world, number, IncidentKind(kind), reason, lost)
            patience_s = world.brokers.settings.source.request_timeout_s
            if kind == IncidentKind.SOURCE_GAP.value and time.monotonic() < world.began_at + patience_s:
                world.problems.append(f"partition {number}: nobody waited for records: {reason}")
            if not world.explains(number, IncidentKind(kind), reason):
                world.problems.append(f"partition {number}: an incident out of nothing: {reason}")


def check_commits(world: TaskWorld, control: Watched) -> None:
    """Note what a task has left uncommitted that has copied all, but for stopped and deleted partitions."""
    for each in control.newest:
        number, reached, committed = each["partition"], each["source_offset"], each["committed_offset"]
        if not (reached in (None, committed) or each["stopped"] or number in world.unaligned):
            problem = f"a task ended at offset {reached}, and has committed {committed}"
            world.problems.append(f"partition {number}: {problem}")


def _check_incident(world: TaskWorld, number: int, kind: IncidentKind, reason: str, lost: int | None) -> None:
    """Compare what an incident says with its own offsets, and with how long the logs ever were."""
    where = f"partition {number}: {kind.value} lost {lost}"
    if not world.brokers.settings.continues_after(kind):
        world.problems.append(f"{where}, and no policy lets a partition continue behind it: {reason}")
    longest = max(world.longest[number], world.copy_log(number).log_end_offset)
    if kind is IncidentKind.DESTINATION_LOSS:
        ends = re.search(r" ends at offset (\d+)", reason)
        most = longest - (int(ends[1]) if ends else 0)
        again = re.search(r"copies source offsets? (\d+)(?: to (\d+))? again", reason)
        # And the offsets that the source has deleted, perhaps those of a topic that it had before.
        source_end = world.partitions[number].longest
        most += source_end
        if lost is not None and not 0 <= lost <= most:
            world.problems.append(f"{where}, and the copy lacks no more than {most}: {reason}")
        if again and again[2] and int(again[1]) > int(again[2]):
            world.problems.append(f"{where}, and copies nothing again: {reason}")
        if again and int(again[2] or again[1]) >= source_end:
            world.problems.append(f"{where}, and the source never had more than {source_end}: {reason}")
    elif "the mirror copies source" in reason:
        world.problems.append(f"{where}, and copies again: {reason}")
    foreign = re.search(r"foreign record at offset (\d+), .* ends behind offset (\d+)", reason)
    if foreign and not int(foreign[1]) <= int(foreign[2]) < longest:
        world.problems.append(f"{where}, and the copy is no longer than {longest}: {reason}")
    if "created again since" in reason and reason.endswith("ends at offset 0"):
        world.problems.append(f"{where}, and an empty copy is one that was deleted: {reason}")
    shorter = re.search(r"ends at offset (\d+), and it ended at (\d+) or later", reason)
    if shorter and lost not in range(int(shorter[2]) - int(shorter[1]) + 1):
        world.problems.append(f"{where}, and its offsets say otherwise: {reason}")
    gap = re.search(r"does not send offset (\d+): .* reaches to offset (\d+)", reason)
    if gap and not (lost is not None and 0 < lost <= int(gap[2]) - int(gap[1])):
        world.problems.append(f"{where}, and its offsets say otherwise: {reason}")
    places = re.search(r"does not have offset (\d+) any more, its log begins at (\d+)", reason)
    if places and lost not in (None, int(places[2]) - int(places[1])):
        world.problems.append(f"{where}, and its offsets say otherwise: {reason}")


def _note_loss(world: TaskWorld, number: int, kind: IncidentKind, lost: int | None) -> None:
    # A mirror copies all that a source has after its reset: an unknown number is of records that are gone
    # there, and no copy need have these.
    if lost is not None or kind is not IncidentKind.SOURCE_RESET:
        world.losses[number].append(Loss(lost, len(world.partitions[number].records)))


def _note_refused(world: TaskWorld, number: int, reason: str) -> None:
    if refused := re.search(r" refuses offsets? (\d+)(?: to (\d+))? of ", reason):
        first, last = int(refused[1]), int(refused[2] or refused[1])
        for each in world.partitions[number].of_this_topic:
            each.was_refused |= first <= each.offset <= last


def outcome_of(world: TaskWorld, result: TaskResult, control: Reporting) -> Outcome:
    """Note the stops that no event explains, and return the end of tasks."""
    stopped = {each.partition: each.reason for each in result.stopped}
    world.problems += [problem for each in result.stopped for problem in _lost_elsewhere(each)]
    for number, reason in stopped.items():
        incidents = [
            (IncidentKind(kind), text)
            for each in partitions_of(control)
            if each["partition"] == number
            for kind, text, _, has_continued in each["incidents"]
            if not has_continued
        ]
        kinds = {kind for kind, _ in incidents}
        if "AUTHORIZATION_FAILED" in reason and "--allow-principal" not in reason and "Grant" not in reason:
            world.problems.append(f"partition {number} stopped without a remedy: {reason}")
        grown = re.search(r"ended at offset (\d+) and ends at (\d+) now", reason)
        if grown and grown[1] == grown[2]:
            world.problems.append(f"partition {number} stopped, and its offsets say otherwise: {reason}")
        if wrong := needless_refusal(world, number, reason):
            world.problems.append(f"partition {number} stopped, though {wrong}: {reason}")
        elif any(part in reason for part in world.documented) or (
            ADOPT in reason and number in world.lost_positions
        ):
            world.blocked[number] = reason
        elif not kinds or not all(world.explains(number, *each) for each in incidents):
            world.problems.append(f"partition {number} stopped, and no event explains it: {reason}")
        elif all(map(world.brokers.settings.continues_after, kinds)) and "brought records" not in reason:
            world.problems.append(f"partition {number} stopped, though it may continue: {reason}")
    reached = {each.partition: each.offset for each in result.stopped if each.unmirrored_from is None}
    return Outcome(result.complete, stopped, reached)


def _miscounted(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the counts of a partition."""
    sent = {name: count for name, count in report["decisions"].items() if not Decision(name).is_drop}
    counts = {name: report[name] for name in ("records", "batches", "bytes_in", "bytes_out", "retries")}
    if min(*counts.values(), 0, *report["decisions"].values()) < 0:
        yield f"a count below 0: {counts}, {report['decisions']}"
    if sum(sent.values()) != counts["batches"]:
        yield f"{counts['batches']} batches, and decisions about {sent}"
    if not counts["batches"] <= counts["records"] <= counts["bytes_out"]:
        yield f"{counts['batches']} batches, {counts['records']} records, {counts['bytes_out']} bytes"


def _lost_elsewhere(stopped: PartitionStopped) -> Iterator[str]:
    """Yield how the first offset that a stopped partition lacks differs from the sentence of its stop."""
    found = re.search(r"ends at offset (\d+), .* before source offset (\d+), end at (\d+)", stopped.reason)
    if found and stopped.unmirrored_from is not None:
        end, source_end, acknowledged = map(int, found.groups())
        # A number of records had at least as many offsets.
        if end and stopped.unmirrored_from > source_end - (acknowledged - end):
            yield f"partition {stopped.partition} lacks {stopped.unmirrored_from} on: {stopped.reason}"
