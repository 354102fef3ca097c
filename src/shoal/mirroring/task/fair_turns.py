"""
Fair turns of partitions that share a limit, within one worker.

A limited fetch is smaller than what the partitions have, so the broker's order would decide about the shares.
Instead, a partition that is ahead of the others is left out of the fetch until they have caught up. A
partition without data does not take part. When it has some again, it begins beside the one with the least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["FairTurns"]

P = TypeVar("P", bound=Hashable)


class FairTurns(Generic[P]):
    """The bytes of each partition that has something to fetch, since its worker is limited."""

    def __init__(self) -> None:
        self._spent: dict[P, int] = {}

    def spend(self, partition: P, size: int) -> None:
        """Count bytes that were fetched of a partition."""
        if partition in self._spent:
            self._spent[partition] += size

    def ahead(self, behind: Iterable[tuple[P, Hashable]], slack_bytes: int) -> set[P]:
        """
        Return the partitions that have to wait for others of the same limit.

        Args:
            behind: The partitions that have something to fetch now, each with its limit.
            slack_bytes: How far a partition may be ahead.

        """
        sharing: dict[Hashable, list[P]] = defaultdict(list)
        for partition, limit in behind:
            sharing[limit].append(partition)
        spent: dict[P, int] = {}
        ahead: set[P] = set()
        for partitions in sharing.values():
            least = min((self._spent[each] for each in partitions if each in self._spent), default=0)
            for each in partitions:
                spent[each] = self._spent.get(each, least)
                if spent[each] > least + slack_bytes:
                    ahead.add(each)
        self._spent = spent
        return ahead
