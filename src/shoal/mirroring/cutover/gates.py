"""
The six gates of a cut-over, and their demands on the observed values. The module sends no requests.

A gate's verdict is *passed*, *waiting* (an operator or time can bring it about), or *failed* (waiting is of
no use). The order matters:

1. The mirror runs and is near the ends, so that few records are left to copy once producers stop.
2. Everything else is in step, and the copied records are verified. Both may take long; producers still write.
3. Producers have stopped. From here on the downtime counts.
4. Each record before the ends is at the destination. Only the last few are left to verify.
5. Consumer groups are translated. Before the records are there, a translation could only be *ahead*.
6. The certificate is written, after a last look at the ends: a record that was written after the cut would
   stay behind at the source.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...topic_partition import TopicPartition
from ...verify import Outcome, VerifyReport
from ..model.offset_map import Exactness
from ..model.text import first_few
from ..sync.report import Action, GroupOffset, GroupReport, GroupsReport
from .certificate import CutLog
from .partition_seen import PartitionSeen

__all__ = [
    "GATES",
    "MOST_LAG",
    "PASSED",
    "Gate",
    "GateRule",
    "State",
    "Verdict",
    "complete_verdict",
    "copy_end_verdict",
    "groups_verdict",
    "in_step_verdict",
    "mirror_verdict",
    "quiet_verdict",
    "read_back_verdict",
    "staying_topics",
    "unmoved_verdict",
    "verified_verdict",
]


class Gate(enum.Enum):
    """The gates, in their order. The value is the word in progress lines and in the certificate."""

    MIRROR = "mirror"
    IN_STEP = "in step"
    QUIET = "quiet"
    COMPLETE = "complete"
    GROUPS = "groups"
    CERTIFICATE = "certificate"


class GateRule(NamedTuple):
    """
    The texts about a gate for an operator.

    Attributes:
        waits_for: A phrase behind "waits until".
        why: The reason, as a phrase behind "because".
        remedy: A sentence for an operator whose gate did not open.
        is_rehearsed: Whether a rehearsal goes through it.

    """

    waits_for: str
    why: str
    remedy: str
    is_rehearsed: bool = True


GATES: Mapping[Gate, GateRule] = {
    Gate.MIRROR: GateRule(
        "the mirror runs, its lag is small, and no partition stands still",
        "the lag has to be copied while no producer may write",
        "Start the mirror, or look at its page for the reason of a partition that stands still, and cut over "
        "again.",
    ),
    Gate.IN_STEP: GateRule(
        "configurations, ACLs and consumer groups are in step, and the copied records are verified",
        "clients continue at the destination with these, and the verification would be downtime later",
        "Mirror with --sync configs,acls and --groups. Leave a difference with --allow configs or acls, or a "
        "group by the expression of --groups. --allow at-least lets consumers read records again.",
    ),
    Gate.QUIET: GateRule(
        "producers have stopped: the ends of the source do not move, followers have each record, and no "
        "transaction is open",
        "a record that is written at the source from now on would stay there",
        "Stop the producers of the source. If they have to go on, let them: nothing has changed.",
        is_rehearsed=False,
    ),
    Gate.COMPLETE: GateRule(
        "each source offset before the ends is at the destination, and the records are verified",
        "producers and consumers continue at the destination behind these records",
        "Start the producers at the source again, and look for the reason with shoal verify.",
    ),
    Gate.GROUPS: GateRule(
        "consumers have stopped at both clusters, and the offsets of their groups are translated exactly, "
        "committed and read back",
        "a consumer that continues at the source would read records twice",
        "Stop these consumers and cut over again, or leave out the group by --groups. "
        "--allow at-least lets consumers read records again.",
    ),
    Gate.CERTIFICATE: GateRule(
        "the ends of the source are still the same, and the certificate is on disk",
        "the way back begins from the certificate",
        "Stop the producers of the source, and cut over again. The committed offsets follow with the next "
        "translation.",
    ),
}


class State(enum.Enum):
    """The state of a gate. The value is the word in reports."""

    PASSED = "passed"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    The answer of a gate to the observed values.

    Attributes:
        state: Passed, waiting, or failed.
        reasons: Phrases about everything that is in the way.
        remedy: A sentence for an operator, if that of the gate does not fit the reasons.
        is_timed_out: Whether the gate failed since it waited too long.

    """

    state: State
    reasons: Sequence[str] = ()
    remedy: str = ""
    is_timed_out: bool = False

    @property
    def sentence(self) -> str:
        """The first few reasons, as one phrase."""
        return first_few(self.reasons, most=3)


PASSED = Verdict(State.PASSED)

#: The most offsets that may be left to copy at the first gate.
MOST_LAG = 100_000

_STOP_PRODUCERS = "Stop the producers of the source, and cut over again."


def _waiting_if(reasons: Sequence[str]) -> Verdict:
    return Verdict(State.WAITING, reasons) if reasons else PASSED


def _failed_if(reasons: Sequence[str]) -> Verdict:
    return Verdict(State.FAILED, reasons) if reasons else PASSED


def mirror_verdict(
    group: str,
    holder: str | None,
    partitions: Sequence[PartitionSeen],
    begun: Mapping[TopicPartition, int],
) -> Verdict:
    """
    Demand a mirror that runs and has almost caught up.

    A partition that waits or is stopped does not say so to other processes: its position stands still.

    Args:
        holder: The member of the group; None if no mirror runs.
        begun: How far the partitions were copied at the first look of this gate.

    """
    recreated = [f"{each.source}: {each.problem}" for each in partitions if each.problem]
    if recreated:
        return Verdict(State.FAILED, recreated)
    if holder is None:
        return Verdict(State.WAITING, [f"no mirror runs: group {group!r} has no member"])
    reasons = []
    lag = sum(each.behind for each in partitions)
    if lag > MOST_LAG:
        reasons.append(f"{lag:,} offsets are not copied yet, more than {MOST_LAG:,}")
    reasons += [
        f"{each.source} is {each.behind:,} offsets behind and has not moved since this gate began"
        for each in partitions
        if each.behind and each.copied == begun.get(each.source, each.copied)
    ]
    return _waiting_if(reasons)


def in_step_verdict(
    drift: Sequence[str],
    groups: GroupsReport,
    partitions: Sequence[PartitionSeen],
    *,
    accepts_at_least: bool,
) -> Verdict:
    """
    Demand that nothing but the last records is left to bring to the destination.

    Later gates demand the same of the groups, while producers stand still.

    Args:
        drift: Phrases about configurations and ACLs that differ, or that cannot be compared.
        groups: A round over the groups that committed nothing. Offsets may still be *ahead*, and consumers
            still run.
        partitions: The partitions, as both clusters showed them after the round.
        accepts_at_least: As for :func:`groups_verdict`.

    """
    unready = _unready(
        groups,
        partitions,
        frozenset({Action.REFUSED, Action.FURTHER}),
        _allowed_exactness(accepts_at_least=accepts_at_least, is_rehearsal=True),
    )
    ends = {each.source: each.log_end for each in partitions}
    beyond = [
        f"group {each.group!r} at {each.partition} is at {each.committed}, beyond the end at the source "
        f"({ends[each.partition]})"
        for each in groups.offsets
        if each.partition in ends and each.committed > ends[each.partition]
    ]
    return _waiting_if([*drift, *_untranslated(groups), *unready, *beyond])


def quiet_verdict(
    partitions: Sequence[PartitionSeen],
    still_s: float,
    last_moved: Sequence[TopicPartition],
    quiet_s: float,
) -> Verdict:
    """
    Demand ends that have not moved for some time, that all replicas have, and no open transaction.

    A follower may lag for longer than the ends stand still (``replica.lag.time.max.ms``). Then the high
    watermark moves later, and shows records that the mirror has not copied.

    Args:
        still_s: The seconds since any end moved.
        last_moved: The partitions whose ends moved then.

    """
    reasons = []
    if is_open := [each.source for each in partitions if each.stable_end < each.end]:
        reasons.append(f"a transaction is open in {first_few(is_open)}")
    if unreplicated := [each.source for each in partitions if each.unreplicated]:
        reasons.append(f"followers lack the last records of {first_few(unreplicated)}")
    if still_s < quiet_s:
        moved = f" (the last one to move: {first_few(last_moved)})" if last_moved else ""
        reasons.append(f"the ends of the source have not moved for {still_s:.0f} of {quiet_s:.0f} s{moved}")
    return _waiting_if(reasons)


def unmoved_verdict(ends: Mapping[TopicPartition, int], partitions: Sequence[PartitionSeen]) -> Verdict:
    """Demand the ends of the cut, to the last offset: a producer that wrote since has not stopped."""
    found = {each.source: each.log_end for each in partitions}
    moved = [
        f"the end of {partition} at the source was {end:,} at the cut and is {found.get(partition, 0):,} now"
        for partition, end in sorted(ends.items())
        if found.get(partition) != end
    ]
    new = [f"{partition} was created at the source" for partition in sorted(found.keys() - ends.keys())]
    verdict = _failed_if([*moved, *new])
    return replace(verdict, remedy=_STOP_PRODUCERS) if moved else verdict


def complete_verdict(ends: Mapping[TopicPartition, int], partitions: Sequence[PartitionSeen]) -> Verdict:
    """
    Demand positions at the ends.

    Args:
        ends: The ends of the cut, or in a rehearsal those of a moment ago.
        partitions: The partitions as they are now.

    """
    reasons = [
        f"{each.source} is copied up to {each.copied:,} of {ends[each.source]:,}"
        for each in partitions
        if each.source in ends and each.copied < ends[each.source]
    ]
    return _waiting_if(reasons)


def copy_end_verdict(
    partitions: Sequence[PartitionSeen], logs: Mapping[TopicPartition, tuple[CutLog, CutLog]]
) -> Verdict:
    """
    Demand that the destination shows each copy up to its end.

    Args:
        partitions: The partitions; they are copied up to the cut.
        logs: Both sides by source partition: the cut, and the log of the copy as consumers see it.

    """
    ends = {each.source: each.copy_end for each in partitions}
    return _waiting_if(
        [
            f"{logs[partition][1].topic}-{partition.partition} ends at {logs[partition][1].end:,} for "
            f"consumers, and the copy at {end:,}"
            for partition, end in sorted(ends.items())
            if end is not None and logs[partition][1].end < end
        ]
    )


def verified_verdict(report: VerifyReport, *, is_whole: bool) -> Verdict:
    """
    Demand equal records.

    Args:
        report: The comparison.
        is_whole: Whether the destination must have all records, since nothing is written any more.

    """
    unequal = [each for each in report.partitions if each.outcome not in (Outcome.EQUAL, Outcome.NOTHING)]
    reasons = [
        f"{each.source} is {each.outcome.value}{f': {each.why}' if each.why else ''}" for each in unequal
    ]
    if unequal and all(each.may_pass for each in unequal):
        return _waiting_if(reasons)  # a broker starts again, for example
    if is_whole:
        reasons += [
            f"{each.source} has records from offset {each.not_mirrored.start:,} on that the destination lacks"
            for each in report.partitions
            if each.not_mirrored is not None
        ]
    return _failed_if(reasons)


def groups_verdict(
    report: GroupsReport,
    partitions: Sequence[PartitionSeen],
    *,
    accepts_at_least: bool,
    is_rehearsal: bool = False,
) -> Verdict:
    """
    Demand groups without members, and with an exact translation of each offset.

    Args:
        report: A round over the groups that committed nothing.
        partitions: The partitions. The mirror needs no position where the source has no record.
        accepts_at_least: Whether a translation may be one from which records are read again.
        is_rehearsal: Whether consumers and the mirror are still at work.

    """
    empty = {each.source for each in partitions if each.start == each.end}
    active = [
        f"group {group.name!r} has members at the source"
        for group in report.groups
        if group.is_active and not is_rehearsal and _may_read_what_moves(group)
    ]
    without = [
        _row(each)
        for each in report.offsets
        if each.action is Action.NO_POSITION and each.partition not in empty
    ]
    allowed = _allowed_exactness(accepts_at_least=accepts_at_least, is_rehearsal=is_rehearsal)
    unready = _unready(report, partitions, _IN_THE_WAY, allowed)
    return _waiting_if([*_untranslated(report), *active, *without, *unready])


def _unready(
    report: GroupsReport,
    partitions: Sequence[PartitionSeen],
    in_the_way: Collection[Action],
    allowed: Collection[Exactness],
) -> list[str]:
    """Return phrases about the offsets from which consumers cannot continue."""
    starts = {each.source: each.start for each in partitions}
    return [
        _row(each)
        for each in report.offsets
        if each.action in in_the_way
        or (each.exactness is not None and each.exactness not in allowed)
        # Consumers would read records at the source that the destination lacks.
        or (each.begins_late and each.committed >= starts.get(each.partition, 0))
    ]


def _may_read_what_moves(group: GroupReport) -> bool:
    """Whether consumers have an offset of a topic that moves, or none from which to tell."""
    if group.is_left_out:
        return False
    return not group.offsets or any(each.action is not Action.NOT_MIRRORED for each in group.offsets)


def staying_topics(report: GroupsReport) -> Iterator[str]:
    """Yield a sentence for each group that reads topics that move, and others."""
    for group in report.groups:
        others = sorted(
            {each.partition.topic for each in group.offsets if each.action is Action.NOT_MIRRORED}
        )
        if others and _may_read_what_moves(group):
            yield f"group {group.name!r} also has offsets of topics that do not move: {first_few(others)}"


#: These keep an offset from the destination. The other actions need nothing more, or only the commit.
_IN_THE_WAY = frozenset({Action.ACTIVE, Action.FURTHER, Action.REFUSED, Action.UNCONFIRMED})


def _allowed_exactness(*, accepts_at_least: bool, is_rehearsal: bool) -> frozenset[Exactness]:
    allowed = {Exactness.EXACT}
    if accepts_at_least:
        allowed.add(Exactness.AT_LEAST)
    if is_rehearsal:
        allowed.add(Exactness.AHEAD)  # consumers read as fast as the mirror
    return frozenset(allowed)


def read_back_verdict(report: GroupsReport) -> Verdict:
    """Demand that a round after the commits finds nothing left to commit."""
    return _waiting_if(
        [_row(each) for each in report.offsets if each.action in (_IN_THE_WAY | {Action.WRITE})]
    )


def _untranslated(report: GroupsReport) -> list[str]:
    """Return phrases about groups that a round did not see, or did not translate."""
    return [*report.warnings, *(each.sentence for each in report.untranslated)]


def _row(offset: GroupOffset) -> str:
    to = "without a translation" if offset.translated is None else f"-> {offset.translated}"
    exactness = f" {offset.exactness.value}," if offset.exactness is not None else ""
    there = f" at {offset.present}" if offset.action is Action.FURTHER else ""
    detail = f": {offset.detail}" if offset.detail else ""
    return (
        f"group {offset.group!r} at {offset.partition} ({offset.committed} {to},{exactness} "
        f"{offset.action.value}{there}{detail})"
    )
