"""
A cut-over from its first gate to its last.

Each gate is looked at again and again until it opens, fails or times out. Only the gate of the groups writes
to a cluster, and only once all of its looks agree; what it commits carries shoal's mark, and so follows the
source again if the cut-over ends later. A transient error of a cluster is one more reason to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import NoReturn

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ...verify import PartitionReport, VerifyProgress, VerifyReport
from ..sync.report import GroupsReport
from .certificate import Certificate, CutLog, CutPartition
from .commits import Commits, cut_offsets
from .files import check_writable, write_certificate, write_page
from .gates import (
    GATES,
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
from .movement import Movement, PartitionSeen, Quiet
from .observing import Observer, Observing
from .options import CutoverOptions
from .outcome import CutoverReport, GateEvent

__all__ = ["CutoverRun", "cut_over"]

#: Between two looks. A whole cut-over should take 60 s, and a look at 1,200 partitions takes some requests.
_LOOK_S = 1.0

_UNWRITTEN = "Cut over again with a new file for --certificate. The next translation replaces the offsets."

_REMOVE_CAUSE = "Remove the cause, and cut over again."

_UNVERIFIED = "See the ranges with shoal verify, and let the producers and consumers stay at the source."

#: Positions are committed every 5 s (``commit_interval_ms``); a busy coordinator may miss some commits.
_STANDING_S = 30.0


class _Closed(Exception):
    """A gate did not open."""


class _TimedOut(Exception):
    """A verification took too long."""


class CutoverRun:
    """One cut-over. :meth:`run` once."""

    def __init__(
        self,
        observer: Observing,
        options: CutoverOptions,
        *,
        on_event: Callable[[GateEvent], object] = lambda _: None,
        commands: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """
        Prepare; nothing is asked yet.

        Args:
            observer: Asks both clusters.
            on_event: Receives the news of the gates.
            commands: The command that repeats each check, for the certificate.
            clock: The monotonic clock.
            pause: Waits for a number of seconds.

        """
        self._observer = observer
        self._options = options
        self._on_event = on_event
        self._commands = commands or {}
        self._clock = clock
        self._pause = pause
        self._events: dict[Gate, GateEvent] = {}
        self._began_at = 0.0
        self._ends: dict[TopicPartition, int] = {}
        self._seen: list[PartitionSeen] = []
        self._verified: VerifyReport | None = None
        self._compared: dict[TopicPartition, PartitionReport] = {}
        self._groups: GroupsReport | None = None
        self._commits = Commits()
        self._certificate: Certificate | None = None
        self._warnings: list[str] = []

    def run(self) -> CutoverReport:
        """Lead through the gates, up to the first that does not open."""
        steps: Mapping[Gate, Callable[[Gate], None]] = {
            Gate.MIRROR: self._await_mirror,
            Gate.IN_STEP: self._await_in_step,
            Gate.QUIET: self._await_quiet,
            Gate.COMPLETE: self._await_complete,
            Gate.GROUPS: self._await_groups,
            Gate.CERTIFICATE: self._certify,
        }
        for gate, rule in GATES.items():
            if self._options.rehearse and not rule.is_rehearsed:
                continue
            self._began_at = self._clock()
            self._tell(gate, Verdict(State.WAITING))
            try:
                self._pass(gate, steps[gate])
            except _Closed:
                self._see_unconfirmed()
                break
            self._tell(gate, Verdict(State.PASSED))
        return CutoverReport(
            self._options.rehearse,
            tuple(self._events.values()),
            len(self._commits.done),
            self._certificate,
            (*self._warnings, *self._group_warnings()),
            tuple(self._commits.unconfirmed.values()),
            self._commands.get(Gate.GROUPS.value, "shoal groups"),
        )

    def _group_warnings(self) -> Iterator[str]:
        if self._groups is None:
            return
        yield from (*self._groups.warnings, *staying_topics(self._groups))
        left_out = self._groups.left_out
        for group in left_out:
            yield f"group {group.name!r} is left out: {group.problem}"
        if len(self._groups.groups) == len(left_out):
            yield (
                f"no consumer group at the source matches {self._options.selection.groups!r}, or this "
                "principal may describe none. At the destination consumers begin by their auto.offset.reset"
            )

    def _pass(self, gate: Gate, step: Callable[[Gate], None]) -> None:
        try:
            step(gate)
        except KeyboardInterrupt:
            # An operator has to know whether anything was changed.
            self._close(gate, ["interrupted"], remedy="Cut over again when you are ready.")

    # The gates

    def _await_mirror(self, gate: Gate) -> None:
        movement = Movement(_STANDING_S)

        def look() -> Verdict:
            seen = self._observer.partitions()
            standing = movement.look(self._clock(), seen)
            holder = self._observer.holder()
            return mirror_verdict(self._observer.group, holder, seen, standing, self._options.max_lag)

        self._wait(gate, look)

    def _await_in_step(self, gate: Gate) -> None:
        accepts = self._options.accept_at_least

        def look() -> Verdict:
            groups = self._observer.groups()
            seen = self._observer.partitions()  # later: retention may overtake a group
            return in_step_verdict(self._observer.drift(), groups, seen, accepts_at_least=accepts)

        self._wait(gate, look)
        self._verify(gate, is_whole=False)

    def _await_quiet(self, gate: Gate) -> None:
        quiet = Quiet()

        def look() -> Verdict:
            asked_at = self._clock()
            self._seen = self._observer.partitions()
            return quiet_verdict(quiet.look(asked_at, self._seen), self._options.quiet_s)

        self._wait(gate, look)
        self._ends = {each.source: each.end for each in self._seen}

    def _await_complete(self, gate: Gate) -> None:
        def look() -> Verdict:
            seen = self._look_behind_cut()
            if isinstance(seen, Verdict):
                return seen
            if not self._ends:
                self._ends = {each.source: each.copyable_end for each in seen}
            return complete_verdict(self._ends, seen)

        self._wait(gate, look)
        self._verify(gate, is_whole=not self._options.rehearse)

    def _await_groups(self, gate: Gate) -> None:
        def look() -> Verdict:
            seen = self._look_behind_cut()
            if isinstance(seen, Verdict):
                return seen
            preview = self._observer.groups()
            self._commits.see(preview)
            verdict = self._groups_verdict(preview, seen)
            if verdict.state is not State.PASSED or self._options.rehearse:
                return verdict
            self._commits.begin(preview)
            written = self._observer.commit_groups()
            self._commits.end(written)
            # A consumer may have joined meanwhile, or committed: the next look begins again.
            for report in (written, self._observer.groups()):
                verdict = self._groups_verdict(report, seen)
                if verdict.state is not State.PASSED:
                    return verdict
            return read_back_verdict(report)

        self._wait(gate, look)

    def _groups_verdict(self, report: GroupsReport, seen: Sequence[PartitionSeen]) -> Verdict:
        self._groups = report
        return groups_verdict(
            report,
            seen,
            accepts_at_least=self._options.accept_at_least,
            is_rehearsal=self._options.rehearse,
        )

    def _see_unconfirmed(self) -> None:
        """Ask once more for commits without an answer, since the report says what was changed."""
        if self._commits.unconfirmed:
            with suppress(ShoalError):
                self._commits.see(self._observer.groups())

    def _certify(self, gate: Gate) -> None:
        def look() -> Verdict:
            seen = self._look_behind_cut()
            if isinstance(seen, Verdict):
                return seen
            file = self._options.certificate
            if self._options.rehearse:
                if file is not None:
                    check_writable(file)
                return Verdict(State.PASSED)
            logs = self._observer.logs(seen)
            verdict = copy_end_verdict(seen, logs)
            if verdict.state is not State.PASSED:
                return verdict
            certificate = self._make_certificate(seen, logs)
            assert file is not None
            try:
                write_certificate(file, certificate)
            except ShoalError as error:
                return Verdict(State.FAILED, [str(error)], _UNWRITTEN)
            self._certificate = certificate
            self._write_page(file, certificate)
            return Verdict(State.PASSED)

        self._wait(gate, look)

    def _look_behind_cut(self) -> list[PartitionSeen] | Verdict:
        """Return the partitions, or a verdict if a producer has written since the cut."""
        seen = self._observer.partitions()
        if not self._options.rehearse:
            unmoved = unmoved_verdict(self._ends, seen)
            if unmoved.state is not State.PASSED:
                return unmoved
        return seen

    # Waiting

    def _wait(self, gate: Gate, look: Callable[[], Verdict], *, counts_first_look: bool = True) -> None:
        """
        Look until the gate opens, fails or times out.

        Args:
            counts_first_look: Whether the timeout counts from the gate's begin; otherwise from the end of the
                first look.

        """
        since = self._began_at if counts_first_look else None
        while True:
            try:
                verdict = look()
            except ShoalError as error:
                state = State.WAITING if is_transient(error) else State.FAILED
                remedy = self._observer.remedy_of(error) or (_REMOVE_CAUSE if gate is Gate.IN_STEP else "")
                verdict = Verdict(state, [str(error)], remedy)
            if verdict.state is State.PASSED:
                return
            if verdict.state is State.FAILED:
                self._close(gate, verdict.reasons, remedy=verdict.remedy)
            since = self._clock() if since is None else since
            if self._clock() - since >= self._options.timeout_s:
                self._close(gate, verdict.reasons, is_timed_out=True)
            self._tell(gate, verdict)
            self._pause(_LOOK_S)

    def _verify(self, gate: Gate, *, is_whole: bool) -> None:
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
            waited_s = self._elapsed_s if is_whole else self._clock() - read_at
            if waited_s >= self._options.timeout_s:
                raise _TimedOut

        def look() -> Verdict:
            try:
                report = self._observer.verify(self._verified, watch)
            except ShoalError as error:
                state = State.WAITING if is_transient(error) else State.FAILED
                return Verdict(state, [f"the records cannot be verified: {error}"])
            verdict = verified_verdict(report, is_whole=is_whole)
            if verdict.state is State.PASSED:
                self._verified = report
                self._compared = {each.source: self._with_earlier(each) for each in report.partitions}
            return verdict._replace(remedy=_UNVERIFIED)

        try:
            self._wait(gate, look, counts_first_look=is_whole)
        except _TimedOut:
            self._close(gate, ["the verification of the records has not ended"], is_timed_out=True)

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

    @property
    def _elapsed_s(self) -> float:
        return self._clock() - self._began_at

    def _close(
        self, gate: Gate, reasons: Sequence[str], *, is_timed_out: bool = False, remedy: str = ""
    ) -> NoReturn:
        remedy = remedy or GATES[gate].remedy
        event = GateEvent(gate, State.FAILED, self._elapsed_s, reasons, is_timed_out, remedy)
        self._events[gate] = event
        self._on_event(event)
        raise _Closed

    def _tell(self, gate: Gate, verdict: Verdict) -> None:
        before = self._events.get(gate)
        event = GateEvent(gate, verdict.state, self._elapsed_s, verdict.reasons)
        self._events[gate] = event
        if before is None or (before.state, before.reasons) != (event.state, event.reasons):
            self._on_event(event)

    # The certificate

    def _write_page(self, file: str, certificate: Certificate) -> None:
        """Write the page; the cut-over is done without it."""
        try:
            write_page(file, certificate)
        except ShoalError as error:
            self._warnings.append(str(error))

    def _make_certificate(
        self, seen: Sequence[PartitionSeen], logs: Mapping[TopicPartition, tuple[CutLog, CutLog]]
    ) -> Certificate:
        rules = [each.rules for one in seen if (each := self._observer.position_of(one.source)) is not None]
        return Certificate(
            datetime.now(UTC).isoformat(timespec="seconds"),
            *self._observer.clusters(),
            self._observer.group,
            rules[0] if rules else "",
            dict(self._observer.topics),
            tuple(self._cut_partition(each, *logs[each.source]) for each in seen),
            tuple(cut_offsets(self._groups)) if self._groups else (),
            {gate.value: round(event.elapsed_s, 3) for gate, event in self._events.items()},
            dict(self._commands),
        )

    def _cut_partition(self, seen: PartitionSeen, ours: CutLog, theirs: CutLog) -> CutPartition:
        position = self._observer.position_of(seen.source)
        compared = self._compared.get(seen.source)
        # Records behind the copy are of producers that have begun at the destination: they go back later.
        end = theirs.end if seen.copy_end is None else seen.copy_end
        return CutPartition(
            seen.source.partition,
            ours,
            replace(theirs, start=min(theirs.start, end), end=end),
            None if position is None else position.origin,
            0 if compared is None else compared.records,
            0 if compared is None else compared.batches,
            None if position is None else position.last_batch,
        )


def cut_over(
    options: CutoverOptions,
    *,
    on_event: Callable[[GateEvent], object] = lambda _: None,
    commands: Mapping[str, str] | None = None,
) -> CutoverReport:
    """
    Move topics to the destination of their mirror, or rehearse it.

    Args:
        on_event: Receives the news of the gates.
        commands: The command that repeats each check, for the certificate.

    Raises:
        ConfigError: No topic matches, or the certificate could not be written.
        ShoalError: A cluster does not respond at the beginning. Later, that is in the report.

    """
    if options.certificate is not None:
        check_writable(options.certificate)
    mirror = options.mirror
    with Cluster(mirror.source) as source, Cluster(mirror.destination) as destination:
        observer = Observer(source, destination, options)
        return CutoverRun(observer, options, on_event=on_event, commands=commands).run()
