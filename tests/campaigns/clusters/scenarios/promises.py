"""The contents that a copy must have after a scenario: its promises.

``ever`` are the records that the source ever had, in their order; ``present``
are those that it still has; ``copy`` are those of the destination. In every
scenario the copy repeats and reorders no record: it is a part of ``ever`` in
the same order. A promise determines which records may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Findings", "exact", "exact_or_stopped"]


class Keyed(Hashable, Protocol):
    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Findings:
    """The state of one partition at the end of a trial.

    Attributes:
        ever: All records that the source ever had.
        present: Those that it has now.
        copy: Those of the destination.
        stopped: The sentences by which the partition stopped; none if it is complete.
        lost: Number of records that the mirror reported as lost; None if it could not count them.
        documented: Returns whether the scenario may stop by a sentence.
    """

    ever: Sequence[Keyed]
    present: Sequence[Keyed]
    copy: Sequence[Keyed]
    stopped: Sequence[str]
    lost: int | None
    documented: Callable[[str], bool]


def exact(found: Findings) -> list[str]:
    """Require every record that the source ever had, once, in order, and no stop."""
    problems = [f"stopped: {each}" for each in found.stopped]
    if list(found.copy) != list(found.ever):
        problems += _out_of_place(found) or [_count("differs", found)]
    return problems


def exact_or_stopped(found: Findings) -> list[str]:
    """Require no record twice, none out of order, and none skipped that the source still has.

    If the partition stopped, by a documented sentence, no record before the copy's end is skipped. If it
    is complete, a missing record was deleted from the source, or reported as lost.
    """
    problems = [f"stopped: {each}" for each in found.stopped if not found.documented(each)]
    problems += _out_of_place(found)
    if problems:
        return problems
    missing = _missing(found)
    if missing and not (found.lost is None or found.lost >= len(missing)):
        problems.append(
            f"{len(missing)} records are missing, {found.lost} were reported as lost; the first: {missing[0]}"
        )
    return problems


def _out_of_place(found: Findings) -> list[str]:
    """Describe the records by which the copy is no part of the source's history in the same order."""
    place = 0
    for number, record in enumerate(found.copy):
        try:
            place = list(found.ever).index(record, place) + 1
        except ValueError:
            was = "again or out of order" if record in found.ever else "never in the source"
            return [f"offset {number} of the copy, {record}, is {was}"]
    return []


def _missing(found: Findings) -> list[Keyed]:
    """Return records of the source that the copy lacks, up to the copy's end if the partition stopped.

    A topic that was deleted and filled again may repeat a record after the copy's end: that one is not
    skipped, but still to come.
    """
    copied = set(found.copy)
    last = max((found.ever.index(each) for each in copied), default=-1)
    comes_again = set(found.ever[last + 1 :]) if found.stopped else set()
    upto = last + 1 if found.stopped else len(found.ever)
    present = set(found.present) - comes_again
    return [each for each in found.ever[:upto] if each in present and each not in copied]


def _count(what: str, found: Findings) -> str:
    return f"{what}: {len(found.copy)} records in the copy, {len(found.ever)} in the source"
