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
        "shoal/mirroring/task/rebuilder.py",
        "header.magic != 2",
        "header.magic == 2",
    ): "the same records in batches of other sizes",
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
        "shoal/mirroring/task/partition.py",
        "spell.times == 2",
        "spell.times != 2",
    ): "another word in the sentence of a stop",
}


def reason_for(module: str, site: Site) -> str | None:
    """Return why a mutant does the same as the source; None if it is not in the list."""
    return EQUIVALENT.get((module, site.before, site.after))
