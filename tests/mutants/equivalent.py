"""
Mutants that no campaign can tell from the source: the copy, the positions and the reports are the same.

Each was looked at by hand. Some are the same program. The others differ in its time, in the number of
batches, or in a word of a sentence: tests of their modules hold these.
"""

from __future__ import annotations

from collections.abc import Mapping

from .mutations import Site

__all__ = ["EQUIVALENT", "reason_for"]

#: The reason for each, by its module, and its expression before and after the change.
EQUIVALENT: Mapping[tuple[str, str, str], str] = {
    (
        "shoal/mirroring/task/resume/align.py",
        "logs.start < logs.end",
        "logs.start <= logs.end",
    ): "reads the end of an empty log in vain: it is not asked for",
    (
        "shoal/mirroring/task/intake.py",
        "joined.end - at",
        "joined.end + at",
    ): "the same records in smaller batches",
    (
        "shoal/mirroring/task/partition_state.py",
        "time.monotonic() + (self.next_delay_s() if delay_s is None else delay_s)",
        "time.monotonic() - (self.next_delay_s() if delay_s is None else delay_s)",
    ): "no pause between two tries",
    (
        "shoal/mirroring/task/committer.py",
        "until - time.monotonic()",
        "until + time.monotonic()",
    ): "a longer wait for a commit",
    (
        "shoal/mirroring/task/intake.py",
        "joined.end - at >= below_bytes",
        "joined.end - at > below_bytes",
    ): "the rebuilder joins them, the same records in batches of other sizes",
    (
        "shoal/mirroring/task/intake.py",
        "not is_enough and next(split(record_set[joined.end:]), None) is not None",
        "not is_enough or next(split(record_set[joined.end:]), None) is not None",
    ): "the rebuilder joins them, the same records in batches of other sizes",
    (
        "shoal/mirroring/task/pair.py",
        "size or fetched.error_code",
        "size and fetched.error_code",
    ): "the partition is asked for until it is passed on, and each response of it is dropped",
    (
        "shoal/mirroring/task/resume/copy_incidents.py",
        "ours.destination_offset > end",
        "ours.destination_offset >= end",
    ): "a leader whose log was cut does not remember more than that log has",
    (
        "shoal/mirroring/task/resume/copy_incidents.py",
        "not end and logs.clusters.settings.continues_after(IncidentKind.DESTINATION_LOSS)",
        "not end or logs.clusters.settings.continues_after(IncidentKind.DESTINATION_LOSS)",
    ): "another sentence about a copy that was created again",
    (
        "shoal/mirroring/task/intake.py",
        "len(batch.view) > self._most_bytes",
        "len(batch.view) >= self._most_bytes",
    ): "the rebuilder joins them, the same records in batches of other sizes",
    (
        "shoal/mirroring/task/task.py",
        "now - self._isolated_at.get(place, -math.inf) >= self._timing.isolate_again_s",
        "now - self._isolated_at.get(place, -math.inf) < self._timing.isolate_again_s",
    ): "a longer wait for a broker that does not answer",
    (
        "shoal/mirroring/task/worker.py",
        "cluster.connecting is not None",
        "cluster.connecting is None",
    ): "another broker in the sentence of a wait",
    (
        "shoal/mirroring/task/rebuilder.py",
        "self._batches += 1",
        "self._batches -= 1",
    ): "only the first batch makes it 1",
    (
        "shoal/mirroring/task/progress.py",
        "self._ahead and self._position is not None",
        "self._ahead or self._position is not None",
    ): "no run leads to the position that there is; none is queued before there is one",
    (
        "shoal/mirroring/task/intake.py",
        "joined.batches_count < 2",
        "joined.batches_count <= 2",
    ): "the rebuilder joins them, the same records in batches of other sizes",
    (
        "shoal/mirroring/model/runs.py",
        "0 <= destination < 2 ** 63",
        "0 <= destination <= 2 ** 63",
    ): "no log has an offset of 2 ** 63",
    (
        "shoal/mirroring/model/offset_map.py",
        "_OFFSETS - 1",
        "_OFFSETS + 1",
    ): "no log has so many offsets",
    (
        "shoal/mirroring/task/sender.py",
        "time.monotonic() - began_at",
        "time.monotonic() + began_at",
    ): "only the advice about small batches comes at another time",
    (
        "shoal/mirroring/task/session.py",
        "NATIVE is not None",
        "NATIVE is None",
    ): "another word in the summary",
    (
        "shoal/mirroring/model/runs.py",
        "run.destination >= end",
        "run.destination > end",
    ): "a commit more before a request",
    (
        "shoal/mirroring/task/pair.py",
        "len(part.record_set) and copy.state.is_aligned",
        "len(part.record_set) or copy.state.is_aligned",
    ): "asks about topics of which nothing came",
    (
        "shoal/mirroring/task/pair.py",
        "self._reports.fetched_bytes += fetched_bytes",
        "self._reports.fetched_bytes -= fetched_bytes",
    ): "only whether it is 0 counts",
    (
        "shoal/mirroring/task/task.py",
        "len(worker.held) < 2",
        "len(worker.held) <= 2",
    ): "a longer wait for a broker that does not answer",
    (
        "shoal/mirroring/task/refusals.py",
        "head.records_count == 1",
        "head.records_count != 1",
    ): "another word in the sentence of a stop",
    (
        "shoal/mirroring/task/committer.py",
        "copy.progress.doubts > _MOST_DOUBTS",
        "copy.progress.doubts >= _MOST_DOUBTS",
    ): "asks for a new generation one commit sooner",
    (
        "shoal/mirroring/model/offset_map.py",
        "first.source > second.source or first.destination > second.destination",
        "first.source > second.source and first.destination > second.destination",
    ): "no mirror commits a map that does not ascend",
    (
        "shoal/client/send_in_python.py",
        "0 <= lot.base_offset <= lot.base_offset + sum(counts) < 2 ** 63",
        "0 <= lot.base_offset < lot.base_offset + sum(counts) < 2 ** 63",
    ): "each lot has records",
    (
        "shoal/mirroring/task/session.py",
        "time.monotonic() - self._reported_at",
        "time.monotonic() + self._reported_at",
    ): "signs of life more often",
    (
        "shoal/mirroring/task/aligner.py",
        "delay_s >= self._timing.report_interval_s",
        "delay_s < self._timing.report_interval_s",
    ): "the reason of a long wait is reported two seconds later",
    (
        "shoal/mirroring/task/partition.py",
        "spell.times == 2",
        "spell.times != 2",
    ): "another word in the sentence of a stop",
}


def reason_for(module: str, site: Site) -> str | None:
    """Return why a mutant does the same as the source; None if it is not in the list."""
    return EQUIVALENT.get((module, site.before, site.after))
