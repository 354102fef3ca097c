"""
The groups of a running mirror: a round every 10 seconds, and one at the end.

A round of hundreds of groups that all commit takes a few tenths of a CPU second. So that following costs at
most a small part of a core, the next round waits longer, up to a few intervals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from ...client.cluster import Cluster, is_transient
from ..model.copy_options import CopySettings
from ..model.follow_options import GroupSelection
from ..model.offset_map import Exactness
from ..model.options import MirrorOptions
from ..model.progress import GroupsStatus
from ..model.text import once_each
from ..monitoring.metrics import Metrics
from .archived_groups import GroupArchive
from .groups import GroupSync
from .report import Action, GroupsReport
from .selected import settled

__all__ = ["GroupFollower", "pause_s"]

#: How long the end of a mirror waits for the last round.
_LAST_ROUND_S = 30.0

#: The most names of groups in metrics and page.
_NAMED = 100

#: The most offsets that one count may span while the mirror runs: a group far behind, among transactions or
#: compacted records, would have the driver read large parts of a topic. The last round has no bound.
MOST_COUNTED = 100_000


#: The part of a core that rounds may take, if they need not wait longer than that many intervals for it.
_MOST_CPU = 0.03
_LONGEST_INTERVALS = 3


def pause_s(interval_s: float, round_cpu_s: float) -> float:
    """Return the time between two rounds, from the CPU time of the last one."""
    return min(max(interval_s, round_cpu_s / _MOST_CPU), _LONGEST_INTERVALS * interval_s)


class GroupFollower:
    """Moves the offsets of consumer groups behind the records."""

    def __init__(
        self,
        options: MirrorOptions,
        selection: GroupSelection,
        group: str,
        topics: Callable[[], Mapping[str, str]],
        metrics: Metrics,
        warn: Callable[[str], object],
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            selection: The groups that follow.
            group: The mirror's group, which has the positions.
            topics: Returns the topics at the destination, by their names at the source.
            metrics: The registry that gets the state of each round.
            warn: A function that receives each warning once, from the thread.

        """
        self._options = options
        self._selection = selection
        self._group = group
        self._topics = topics
        self._metrics = metrics
        self._warn = once_each(warn)
        self._wake = threading.Event()
        self._is_closed = False
        self._unlisted_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="shoal-groups", daemon=True)
        metrics.groups = GroupsStatus()

    def begin(self) -> None:
        """Begin, in a thread of its own, which never delays the tasks."""
        self._thread.start()

    def finish(self) -> None:
        """Translate once more, with the last positions, and end; a broker that stalls is not waited for."""
        self._wake.set()
        self._thread.join(_LAST_ROUND_S)
        if self._thread.is_alive():
            self._warn(
                f"the last round of the consumer groups did not end within {_LAST_ROUND_S:g} s. Run shoal "
                "groups --apply to repeat it, or archive once more"
            )
        self.close()

    def close(self) -> None:
        """End without another round. The thread may wait for a broker, and holds only its own connections."""
        self._is_closed = True
        self._wake.set()

    def _run(self) -> None:
        options = self._options
        with ExitStack() as stack:
            one_round = self._rounds(stack)
            is_last = False
            wait_s = options.timing.groups_interval_s
            while not is_last and not self._is_closed:
                # The last round of a mirror with --once is the only one.
                is_last = self._wake.wait(None if options.once else wait_s)
                if not self._is_closed:
                    began_cpu_s = time.thread_time()
                    self._round(one_round, is_last=is_last)
                    wait_s = pause_s(options.timing.groups_interval_s, time.thread_time() - began_cpu_s)

    def _rounds(self, stack: ExitStack) -> Callable[..., GroupsReport]:
        """Return a function that takes the mirror's topics, and makes a round."""
        source = stack.enter_context(Cluster(self._options.source.impatient()))
        begin = self._options.destination.choose(self._translations, self._archive)
        return begin(source, stack)

    def _translations(self, source: Cluster, stack: ExitStack) -> Callable[..., GroupsReport]:
        options = self._options
        destination = stack.enter_context(Cluster(options.destination.impatient()))
        settings = CopySettings.of(options, options.source, options.destination, self._group)
        return partial(GroupSync(source, destination, settings, self._selection).round, apply=True)

    def _archive(self, source: Cluster, _: ExitStack) -> Callable[..., GroupsReport]:
        return GroupArchive(source, self._options.destination, self._selection, self._group).round

    def _round(self, one_round: Callable[..., GroupsReport], *, is_last: bool) -> None:
        topics = self._topics()
        try:
            if is_last:
                report = settled(partial(one_round, topics), self._options.timing.last_round_patience_s)
            else:
                report = one_round(topics, most_counted=MOST_COUNTED)
        except Exception as error:
            before = self._metrics.groups or GroupsStatus()
            self._metrics.groups = replace(before, failure=str(error))
            # A mirror runs for months: only an error that a later round cannot heal is a warning.
            if is_last or not is_transient(error):
                self._warn(f"the offsets of consumer groups cannot follow: {error}")
            return
        self._warn_of_unlisted(report.warnings, is_last=is_last)
        for group in (*report.left_out, *report.untranslated):
            if is_last or not group.may_pass:  # else a coordinator moves, for instance
                self._warn(group.sentence)
        refused = {
            each.detail
            for each in report.offsets
            if each.action in (Action.REFUSED, Action.UNCONFIRMED) and (is_last or not each.may_pass)
        }
        for sentence in sorted(refused):
            self._warn(sentence)
        self._metrics.groups = _status_of(report)

    def _warn_of_unlisted(self, warnings: Sequence[str], *, is_last: bool) -> None:
        """Warn of brokers whose groups no round has seen for some time."""
        now = time.monotonic()
        since = self._unlisted_since = (self._unlisted_since or now) if warnings else None
        if since is not None and (is_last or now - since >= self._options.timing.unlisted_s):
            for sentence in warnings:
                self._warn(sentence)


def _status_of(report: GroupsReport) -> GroupsStatus:
    counts = report.counts
    return GroupsStatus(
        at=time.time(),
        groups=len(report.groups),
        offsets={each.value: counts.get(each.value, 0) for each in Exactness},
        actions={each.value: counts[each.value] for each in Action if each.value in counts},
        left_alone=tuple(
            group.name
            for group in report.groups
            if any(each.action is Action.ACTIVE for each in group.offsets)
        )[:_NAMED],
        problems={each.name: each.problem for each in [*report.untranslated, *report.left_out][:_NAMED]},
        untranslated=len(report.untranslated),
    )
