"""The counts of a partition, each declared in one line: tasks count them, and all views loop over them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ...numbers import counter, numbers_of

__all__ = ["Counted"]


@dataclass(slots=True)
class Counted:
    """The counts of one partition, of a topic, or of the whole mirror. A task alone changes its own."""

    records: int = counter("shoal_records_total", "Records that the destination has acknowledged.")
    batches: int = counter("shoal_batches_total", "Batches that the destination has acknowledged.")
    bytes_in: int = counter(
        "shoal_fetched_bytes_total",
        "Bytes in: of batches fetched from the source, including batches fetched again and batches dropped.",
    )
    bytes_out: int = counter(
        "shoal_produced_bytes_total", "Bytes out: of batches that the destination has acknowledged."
    )
    retries: int = counter("shoal_retries_total", "Waits and new attempts after errors.")
    decisions: dict[str, int] = counter(
        "shoal_decisions_total",
        "Batches by decision, such as copied, cropped, joined or dropped: control. Only decisions that "
        "occurred are present. skipped: gap counts offsets, not batches.",
        label="decision",
    )

    def counts(self) -> dict[str, Any]:
        """Return the counts by name, as JSON has them; later counting does not change them."""
        return {
            name: dict(getattr(self, name)) if number.label else getattr(self, name)
            for name, number in numbers_of(Counted).items()
        }

    def moved(self, before: Counted, now: Counted) -> Counted:
        """Return these totals after one part of them went from the counts before to those of now."""
        moved: dict[str, Any] = {}
        for name, number in numbers_of(Counted).items():
            total, was, is_ = getattr(self, name), getattr(before, name), getattr(now, name)
            if number.label:
                moved[name] = Counter(total)
                moved[name].update(is_)
                moved[name].subtract(was)
            else:
                moved[name] = total + is_ - was
        return Counted(**moved)
