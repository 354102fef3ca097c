"""The news of the gates, and the outcome of a cut-over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...exit_codes import EXIT_DONE, EXIT_FAILED
from ...json_report import as_json
from ..model.text import first_few
from ..sync.report import Action, GroupOffset
from .certificate import Certificate
from .gates import Gate, State, Verdict

__all__ = ["CutoverReport", "GateEvent"]

#: The actions for an offset that the destination has.
_IN_PLACE = frozenset({Action.UNCHANGED.value, Action.RETURNED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEvent(Verdict):
    """
    News of a gate: its beginning, other reasons to wait, its end. The first event of a gate has no reasons.

    Attributes:
        elapsed_s: The seconds since the gate's first look.

    """

    gate: Gate
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class CutoverReport:
    """
    The outcome of a cut-over.

    Attributes:
        is_rehearsal: Whether it was one.
        gates: The last event of each gate, in their order; none of gates that were not reached.
        committed: The number of offsets of groups that were committed at the destination.
        certificate: The certificate; None without one.
        warnings: Sentences about groups that could not be seen, and about a page that was not written.
        unconfirmed: The offsets of groups whose commit had no answer. The destination may have them.

    """

    is_rehearsal: bool
    gates: tuple[GateEvent, ...]
    committed: int = 0
    certificate: Certificate | None = None
    warnings: tuple[str, ...] = ()
    unconfirmed: tuple[GroupOffset, ...] = ()

    @property
    def closed(self) -> GateEvent | None:
        """The gate that did not open; None if all did."""
        return next((each for each in self.gates if each.state is not State.PASSED), None)

    @property
    def in_place(self) -> int:
        """The number of offsets of groups that the destination has; 0 without a certificate."""
        groups = () if self.certificate is None else self.certificate.groups
        return sum(each.action in _IN_PLACE for each in groups)

    @property
    def exit_code(self) -> int:
        """0 if all gates opened, otherwise 1."""
        return EXIT_DONE if self.closed is None else EXIT_FAILED

    @property
    def sentence(self) -> str:
        """The reason and the remedy of a gate that did not open; empty if all did."""
        closed = self.closed
        if closed is None:
            return ""
        how = f"did not open within {closed.elapsed_s:.0f} s" if closed.is_timed_out else "failed"
        return f"gate {closed.gate.value!r} {how}: {closed.sentence}. {self._changes} {closed.remedy}"

    @property
    def _changes(self) -> str:
        if not self.committed and not self.unconfirmed:
            return "Nothing was changed."
        sentences = []
        if self.committed:
            sentences.append(
                f"{self.committed:,} offsets of consumer groups were committed at the destination, with "
                "shoal's mark: the next translation replaces them."
            )
        if self.unconfirmed:
            named = [f"{each.group!r} at {each.counterpart}: {each.translated}" for each in self.unconfirmed]
            sentences.append(
                f"{len(named):,} offsets may have been committed there, since the coordinator confirmed none "
                f"of them (group {first_few(named, most=3)}). Run shoal groups to see them."
            )
        return " ".join(sentences)

    def to_json_object(self) -> dict[str, Any]:
        """Return the outcome as values of JSON, with the names that its attributes have."""
        return {
            "type": "cutover",
            **as_json(self),
            "certificate": self.certificate and self.certificate.as_json(),
            "in_place": self.in_place,
            "problem": self.sentence or None,
            "exit_code": self.exit_code,
        }
