"""The reports of tasks: their counts, incidents and stops are right, and an event explains each."""

from __future__ import annotations

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
from .sentences import GROWN, read

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["Outcome", "check_commits", "check_reports", "outcome_of"]


#: Parts of the sentences of stops that no policy changes: docs/guarantees.md has both.
_STOPS_ANYWAY = ("brought records", "map is not exact so far back")


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
            said = read(IncidentKind(kind), reason)
            if said is None:
                world.problems.append(f"partition {number}: no form of {kind} reads: {reason}")
            elif has_continued:
                _note_refused(world, number, said)
                problems = _check_incident(world, number, IncidentKind(kind), said, lost)
                where = f"partition {number}: {kind} lost {lost}"
                world.problems += [f"{where}, and {problem}: {reason}" for problem in problems]
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


def _check_incident(
    world: TaskWorld, number: int, kind: IncidentKind, said: Mapping[str, int], lost: int | None
) -> Iterator[str]:
    """Yield what is wrong with the numbers of an incident, also compared with how long the logs ever were."""
    if not world.brokers.settings.continues_after(kind):
        yield "no policy lets a partition continue behind it"
    longest = max(world.longest[number], world.copy_log(number).log_end_offset)
    source_end = world.partitions[number].longest
    if kind is IncidentKind.DESTINATION_LOSS:
        # And the offsets that the source has deleted, perhaps those of a topic that it had before.
        most = longest - said.get("end", 0) + source_end
        if lost is not None and not 0 <= lost <= most:
            yield f"the copy lacks no more than {most}"
    if "again" in said:
        last = said.get("again_to", said["again"])
        if kind is not IncidentKind.DESTINATION_LOSS or said["again"] > last:
            yield "copies nothing again"
        if last != said.get("source", last + 1) - 1:
            yield "its offsets say otherwise"
        if last >= source_end:
            yield f"the source never had more than {source_end}"
    if "foreign" in said and not said["foreign"] <= said["last"] < longest:
        yield f"the copy is no longer than {longest}"
    if said.get("created_end") == 0 and "again" not in said:
        yield "an empty copy is one that was deleted"
    if "planned" in said and lost not in range(said["planned"] - said["end"] + 1):
        yield "its offsets say otherwise"
    if "silent" in said and not (lost is not None and 0 < lost <= said["reached"] - said["silent"]):
        yield "its offsets say otherwise"
    if "missing" in said and lost not in (None, said["begin"] - said["missing"]):
        yield "its offsets say otherwise"


def _note_loss(world: TaskWorld, number: int, kind: IncidentKind, lost: int | None) -> None:
    # A mirror copies all that a source has after its reset: an unknown number is of records that are gone
    # there, and no copy need have these.
    if lost is not None or kind is not IncidentKind.SOURCE_RESET:
        world.losses[number].append(Loss(lost, len(world.partitions[number].records)))


def _note_refused(world: TaskWorld, number: int, said: Mapping[str, int]) -> None:
    if "refused" in said:
        refused = range(said["refused"], said.get("refused_to", said["refused"]) + 1)
        for each in world.partitions[number].of_this_topic:
            each.was_refused |= each.offset in refused


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
        grown = GROWN.search(reason)
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
        elif all(map(world.brokers.settings.continues_after, kinds)) and not any(
            part in reason for part in _STOPS_ANYWAY
        ):
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
    said = read(stopped.cause, stopped.reason) if isinstance(stopped.cause, IncidentKind) else None
    if not said or "acknowledged" not in said or not said["end"] or stopped.unmirrored_from is None:
        return
    # A number of records had at least as many offsets.
    if stopped.unmirrored_from > said["source"] - (said["acknowledged"] - said["end"]):
        yield f"partition {stopped.partition} lacks {stopped.unmirrored_from} on: {stopped.reason}"
