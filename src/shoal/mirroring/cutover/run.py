"""
A cut-over from its first gate to its last.

Each gate is a few looks, one after the other. A look is repeated until it passes, fails or times out. Only
the gate of the groups writes to a cluster, and only once all of its looks agree; what it commits carries
shoal's mark, and so follows the source again if the cut-over ends later. A transient error of a cluster is
one more reason to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ...verify import PartitionReport, VerifyProgress, VerifyReport
from ..sync.report import Commits, GroupsReport
from .certificate import Certificate
from .files import check_writable, write_certificate, write_page
from .gates import (
    GATES,
    PASSED,
    Gate,
    State,
    Verdict,
    complete_verdict,
    copy_end_verdict,
    groups_verdict,
    in_step_verdict,
    mirror_verdict,
    quiet_verdict,
    read_back_verdict,
    staying_topics,
    unmoved_verdict,
    verified_verdict,
)
from .observing import Observer, certificate_of
from .options import Allowed, CutoverOptions
from .outcome import CutoverReport, GateEvent
from .partition_seen import PartitionSeen

__all__ = ["CutoverRun", "cut_over"]

_UNWRITTEN = "Cut over again with a new file for --certificate. The next translation replaces the offsets."

_REMOVE_CAUSE = "Remove the cause, and cut over again."

_UNVERIFIED = "See the ranges with shoal verify, and let the producers and consumers stay at the source."


class _TooLong(Exception):
    """A verification has taken too long: this ends it."""


class _Look(NamedTuple):
    """
    A look that a gate waits for.

    Attributes:
        verdict: Looks once.
        counts_first: Whether the timeout counts from the gate's begin; otherwise from the end of the first
            look.

    """

    verdict: Callable[[], Verdict]
    counts_first: bool = True


class CutoverRun:
    """One cut-over. :meth:`run` once."""

    def __init__(
        self,
        observer: Observer,
        options: CutoverOptions,
        *,
        on_event: Callable[[GateEvent], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """
        Prepare; nothing is asked yet.

        Args:
            observer: Asks both clusters.
            on_event: Receives the news of the gates.
            clock: The monotonic clock.
            pause: Waits for a number of seconds.

        """
        self._observer = observer
        self._options = options
        self._on_event = on_event
        self._clock = clock
        self._pause = pause
        self._events: dict[Gate, GateEvent] = {}
        self._began_at = 0.0
        self._ends: dict[TopicPartition, int] = {}
        self._verified: VerifyReport | None = None
        self._compared: dict[TopicPartition, PartitionReport] = {}
        self._groups: GroupsReport | None = None
        self._commits = Commits()
        self._certificate: Certificate | None = None
        self._warnings: list[str] = []
        self._copied_at_first: dict[TopicPartition, int] = {}
        self._log_ends: dict[TopicPartition, int] = {}
        self._moved_at = 0.0
        self._last_moved: list[TopicPartition] = []

    def run(self) -> CutoverReport:
        """Lead through the gates, up to the first that does not open."""
        looks: Mapping[Gate, Sequence[_Look]] = {
            Gate.MIRROR: [_Look(self._mirror)],
            Gate.IN_STEP: [_Look(self._in_step), _Look(self._verify_before_cut, counts_first=False)],
            Gate.QUIET: [_Look(self._is_quiet)],
            Gate.COMPLETE: [
                self._behind_cut(self._complete),
                _Look(self._verify_rest, counts_first=self._is_cut),
            ],
            Gate.GROUPS: [self._behind_cut(self._move_groups)],
            Gate.CERTIFICATE: [self._behind_cut(self._certify)],
        }
        gates = [each for each, rule in GATES.items() if rule.is_rehearsed or self._is_cut]
        for gate in gates:
            if not self._passes(gate, looks[gate]):
                break
        return CutoverReport(
            self._options.rehearse,
            tuple(self._events.values()),
            len(self._commits.done),
            self._certificate,
            (*self._warnings, *self._group_warnings()),
            tuple(self._commits.unconfirmed.values()),
        )

    @property
    def _is_cut(self) -> bool:
        return not self._options.rehearse

    @property
    def _accepts_at_least(self) -> bool:
        return Allowed.AT_LEAST in self._options.allow

    def _passes(self, gate: Gate, looks: Sequence[_Look]) -> bool:
        self._began_at = self._clock()
        self._tell(gate, Verdict(State.WAITING))
        verdict = PASSED
        try:
            for look in looks:
                verdict = self._await(gate, look)
                if verdict.state is not State.PASSED:
                    break
        except KeyboardInterrupt:
            # An operator has to know whether anything was changed.
            verdict = Verdict(State.FAILED, ["interrupted"], "Cut over again when you are ready.")
        self._tell(gate, verdict)
        return verdict.state is State.PASSED

    def _await(self, gate: Gate, look: _Look) -> Verdict:
        """Look until the gate opens, fails or times out."""
        since = self._began_at if look.counts_first else None
        while True:
            try:
                verdict = look.verdict()
            except ShoalError as error:
                state = State.WAITING if is_transient(error) else State.FAILED
                remedy = self._observer.remedy_of(error) or (_REMOVE_CAUSE if gate is Gate.IN_STEP else "")
                verdict = Verdict(state, [str(error)], remedy)
            if verdict.state is not State.WAITING:
                return verdict
            since = self._clock() if since is None else since
            if self._clock() - since >= self._options.timeout_s:
                return Verdict(State.FAILED, verdict.reasons, is_timed_out=True)
            self._tell(gate, verdict)
            self._pause(self._options.mirror.timing.gate_look_s)

    def _tell(self, gate: Gate, verdict: Verdict) -> None:
        before = self._events.get(gate)
        remedy = verdict.remedy or GATES[gate].remedy if verdict.state is State.FAILED else ""
        elapsed_s = self._clock() - self._began_at
        event = GateEvent(
            verdict.state, verdict.reasons, remedy, verdict.is_timed_out, gate=gate, elapsed_s=elapsed_s
        )
        self._events[gate] = event
        if before is None or (before.state, before.reasons) != (event.state, event.reasons):
            self._on_event(event)

    # The looks

    def _mirror(self) -> Verdict:
        seen = self._observer.partitions()
        begun = self._copied_at_first = self._copied_at_first or {each.source: each.copied for each in seen}
        holder = self._observer.holder()
        return mirror_verdict(self._observer.group, holder, seen, begun)

    def _in_step(self) -> Verdict:
        groups = self._observer.groups()
        seen = self._observer.partitions()  # later: retention may overtake a group
        return in_step_verdict(self._observer.drift(), groups, seen, accepts_at_least=self._accepts_at_least)

    def _is_quiet(self) -> Verdict:
        asked_at = self._clock()
        seen = self._observer.partitions()
        self._ends = {each.source: each.end for each in seen}
        before, self._log_ends = self._log_ends, {each.source: each.log_end for each in seen}
        if moved := [each for each, end in sorted(self._log_ends.items()) if before.get(each) != end]:
            self._moved_at, self._last_moved = asked_at, moved if before else []
        return quiet_verdict(seen, asked_at - self._moved_at, self._last_moved, self._options.quiet_s)

    def _behind_cut(self, look: Callable[[Sequence[PartitionSeen]], Verdict]) -> _Look:
        """Return a look that fails if an end of the source is not that of the cut any more."""

        def verdict() -> Verdict:
            seen = self._observer.partitions()
            moved = unmoved_verdict(self._ends, seen) if self._is_cut else PASSED
            return look(seen) if moved.state is State.PASSED else moved

        return _Look(verdict)

    def _complete(self, seen: Sequence[PartitionSeen]) -> Verdict:
        self._ends = self._ends or {each.source: each.copyable_end for each in seen}
        return complete_verdict(self._ends, seen)

    def _move_groups(self, seen: Sequence[PartitionSeen]) -> Verdict:
        preview = self._observer.groups()
        self._commits.see(preview)
        verdict = self._groups_verdict(preview, seen)
        if verdict.state is not State.PASSED or not self._is_cut:
            return verdict
        # Without an outcome, as after an interruption, these may be there.
        before = self._commits.unconfirmed
        self._commits.unconfirmed = before | preview.to_commit
        written = self._observer.commit_groups()
        self._commits.unconfirmed = before
        self._commits.see(written)
        verdict = self._groups_verdict(written, seen)
        if verdict.state is not State.PASSED:
            return verdict
        # A consumer may have joined meanwhile, or committed: the next look begins again.
        after = self._observer.groups()
        verdict = self._groups_verdict(after, seen)
        return verdict if verdict.state is not State.PASSED else read_back_verdict(after)

    def _groups_verdict(self, report: GroupsReport, seen: Sequence[PartitionSeen]) -> Verdict:
        self._groups = report
        return groups_verdict(
            report, seen, accepts_at_least=self._accepts_at_least, is_rehearsal=not self._is_cut
        )

    def _certify(self, seen: Sequence[PartitionSeen]) -> Verdict:
        file = self._options.certificate
        if file is None:
            return PASSED  # a rehearsal
        if not self._is_cut:
            check_writable(file)
            return PASSED
        logs = self._observer.logs(seen)
        verdict = copy_end_verdict(seen, logs)
        if verdict.state is not State.PASSED:
            return verdict
        elapsed = {gate.value: round(event.elapsed_s, 3) for gate, event in self._events.items()}
        offsets = () if self._groups is None else self._groups.offsets
        certificate = certificate_of(self._observer, seen, logs, self._compared, offsets, elapsed)
        try:
            write_certificate(file, certificate)
        except ShoalError as error:
            return Verdict(State.FAILED, [str(error)], _UNWRITTEN)
        self._certificate = certificate
        try:
            write_page(file, certificate)
        except ShoalError as error:
            self._warnings.append(str(error))  # the cut-over is done without it
        return PASSED

    # The comparison of the records

    def _verify_before_cut(self) -> Verdict:
        return self._verify(Gate.IN_STEP, is_whole=False)

    def _verify_rest(self) -> Verdict:
        return self._verify(Gate.COMPLETE, is_whole=self._is_cut)

    def _verify(self, gate: Gate, *, is_whole: bool) -> Verdict:
        """
        Compare what was not compared before.

        Before the cut a verification may take long: only a standstill is too long, or an error that lasts.
        """
        read, read_at = -1, self._clock()

        def watch(progress: VerifyProgress) -> None:
            nonlocal read, read_at
            if progress.bytes_read != read:
                read, read_at = progress.bytes_read, self._clock()
            self._tell(gate, Verdict(State.WAITING, [f"verified: {progress.fraction:.0%}"]))
            if self._clock() - (self._began_at if is_whole else read_at) >= self._options.timeout_s:
                raise _TooLong

        try:
            report = self._observer.verify(self._verified, watch)
        except _TooLong:
            reason = "the verification of the records has not ended"
            return Verdict(State.FAILED, [reason], is_timed_out=True)
        verdict = verified_verdict(report, is_whole=is_whole)
        if verdict.state is State.PASSED:
            self._verified = report
            self._compared = {each.source: self._with_earlier(each) for each in report.partitions}
        return replace(verdict, remedy=_UNVERIFIED)

    def _with_earlier(self, report: PartitionReport) -> PartitionReport:
        """Add what an earlier comparison found equal, if this one went on behind it."""
        before = self._compared.get(report.source)
        if before is None or before.reached is None or report.alignment is None:
            return report
        began = report.alignment.source_offset, report.alignment.destination_offset
        if began != before.reached:
            return report
        return replace(
            report, records=before.records + report.records, batches=before.batches + report.batches
        )

    # The report

    def _group_warnings(self) -> Iterator[str]:
        if self._groups is None:
            return
        yield from (*self._groups.warnings, *staying_topics(self._groups))
        left_out = self._groups.left_out
        yield from (each.sentence for each in left_out)
        if len(self._groups.groups) == len(left_out):
            yield (
                f"no consumer group at the source matches {self._options.selection.groups!r}, or this "
                "principal may describe none. At the destination consumers begin by their auto.offset.reset"
            )


def cut_over(
    options: CutoverOptions, *, on_event: Callable[[GateEvent], object] = lambda _: None
) -> CutoverReport:
    """
    Move topics to the destination of their mirror, or rehearse it.

    Args:
        on_event: Receives the news of the gates.

    Raises:
        ConfigError: No topic matches, or the certificate could not be written.
        ShoalError: A cluster does not respond at the beginning. Later, that is in the report.

    """
    if options.certificate is not None:
        check_writable(options.certificate)
    mirror = options.mirror
    with Cluster(mirror.source) as source, Cluster(mirror.destination) as destination:
        observer = Observer(source, destination, options)
        return CutoverRun(observer, options, on_event=on_event).run()
