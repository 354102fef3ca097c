"""
A number of bytes a second, shared out over the workers that ask for their part.

The driver grants bytes, and a worker that has used them up asks for more. Bytes exist here alone, so the
sum over all tasks cannot exceed the rate.

Strategy:

- Each worker that asks, or asked within the last second, *takes part*. The rate is shared out over
  these, in proportion to their partitions that have something to copy. So each partition gets the same.
- A worker whose connections are slower than its part does not ask in time, and its savings reach their bound.
  The others get what it leaves (max-min fairness).
- A fetch returns at least one batch, so a worker may receive more than it was granted. It reports the
  difference with its next question, and waits until its part has paid for that. If its task ends before, the
  mirror pays.

All workers together save at most :data:`_SAVED_S` of the rate, and a quiet time leaves at most
:data:`_SPARE_S` of it. So within any 10 s, at most 10.9 s of the rate are granted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["SharedRate"]

K = TypeVar("K", bound=Hashable)

#: A worker takes part for so long after its last question.
_TAKES_PART_S = 1.0

#: The largest savings of all workers, in seconds of the rate.
_SAVED_S = 0.5

#: The bytes of a quiet time that the next worker gets, in seconds of the rate. When a task takes
#: over from another, it has not asked yet.
_SPARE_S = 0.4

#: A sum below one byte is not shared out again.
_NOTHING = 1.0


@dataclass(slots=True)
class _Member:
    """One worker: its partitions, its bytes that are not granted yet, and its debt at its last question."""

    weight: int
    asked_at: float
    credit: float = 0.0
    debt: float = 0.0
    is_asking: bool = True


class SharedRate(Generic[K]):
    """
    The shares of one rate, by the key of a worker. Not thread-safe, and without a clock of its own.

    Attributes:
        bytes_per_s: The rate.

    """

    def __init__(self, bytes_per_s: int, now: float) -> None:
        """Begin without savings; ``now`` is a time in seconds, on any clock that does not go back."""
        self.bytes_per_s = bytes_per_s
        self.at = now
        self._spare = 0.0
        self._members: dict[K, _Member] = {}

    def ask(self, key: K, weight: int, debt: int, now: float) -> None:
        """
        Let a worker ask for bytes.

        Args:
            key: The worker.
            weight: The number of its partitions that have something to copy; 0 counts as 1.
            debt: The bytes that it received without a grant.

        """
        self._advance(now)
        member = self._members.setdefault(key, _Member(1, now))
        member.weight, member.asked_at, member.is_asking = max(1, weight), now, True
        member.debt = max(0, debt)

    def forget(self, key: K) -> None:
        """Remove a worker that has ended; the others pay its debt, or get its savings."""
        member = self._members.pop(key, None)
        if member is not None:
            self._spare += member.credit - (member.debt if member.is_asking else 0.0)

    def members(self) -> list[K]:
        """Return all workers that have asked."""
        return list(self._members)

    def grants(self, now: float) -> dict[K, int]:
        """Return the bytes for each worker that asks and has paid its debt; it does not ask any more then."""
        self._advance(now)
        granted: dict[K, int] = {}
        for key, member in self._members.items():
            if member.is_asking and member.credit > member.debt:
                granted[key] = int(member.credit) + 1
                member.credit -= granted[key]
                member.debt = 0.0
                member.is_asking = False
                member.asked_at = now  # it takes part while it uses them
        return granted

    def _advance(self, now: float) -> None:
        """Share out what the time since the last call brings."""
        self._spare += self.bytes_per_s * max(0.0, now - self.at)
        self.at = max(now, self.at)
        part = []
        for member in self._members.values():
            if member.is_asking or now - member.asked_at <= _TAKES_PART_S:
                part.append(member)
            elif member.credit > 0:
                self._spare, member.credit = self._spare + member.credit, 0.0
        whole = sum(member.weight for member in part)
        # Those whose savings are at their bound leave the rest to the others.
        while part and self._spare >= _NOTHING:
            amount, weights = self._spare, sum(member.weight for member in part)
            hungry = []
            for member in part:
                bound = self.bytes_per_s * _SAVED_S * member.weight / whole + member.debt
                added = min(amount * member.weight / weights, max(0.0, bound - member.credit))
                member.credit += added
                self._spare -= added
                if member.credit < bound:
                    hungry.append(member)
            if len(hungry) == len(part):
                break
            part = hungry
        self._spare = min(self._spare, self.bytes_per_s * _SPARE_S)
