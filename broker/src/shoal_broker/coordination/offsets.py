"""
The committed offsets of groups: in memory, and in the journal.

Offsets of an open transaction are *pending*, by producer id, until the transaction ends. The lock of
:class:`~.groups.Groups` guards all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..storage.journal import Journal
from .group import CommittedOffset, Group

__all__ = ["GroupsOffsets"]


class GroupsOffsets:
    """
    All groups' offsets.

    Attributes:
        kept_bytes: The memory that they take.

    """

    def __init__(self, journal: Journal, group: Callable[[str], Group]) -> None:
        """
        Restore the offsets of a journal.

        Args:
            journal: The place where offsets are kept.
            group: Returns the group with this id, which it creates if necessary.

        """
        self._journal = journal
        self.kept_bytes = 0
        for (group_id, topic, partition), fact in journal.facts("offset"):
            committed = CommittedOffset(*fact)
            group(group_id).offsets[topic, int(partition)] = committed
            self.kept_bytes += committed.kept_bytes(topic)
        for (group_id, producer_id, topic, partition), fact in journal.facts("pending_offset"):
            pending = group(group_id).pending_offsets.setdefault(int(producer_id), {})
            pending[topic, int(partition)] = committed = CommittedOffset(*fact)
            self.kept_bytes += committed.kept_bytes(topic)

    @staticmethod
    def more_bytes(
        group: Group, offsets: Mapping[tuple[str, int], CommittedOffset], producer_id: int | None
    ) -> int:
        """Return the additional memory that a commit would take."""
        before = group.offsets if producer_id is None else group.pending_offsets.get(producer_id, {})
        return sum(_difference(key[0], before.get(key), offsets[key]) for key in offsets)

    def commit(
        self, group: Group, offsets: Mapping[tuple[str, int], CommittedOffset], producer_id: int | None
    ) -> None:
        """Keep offsets; those of a producer's transaction are pending until it ends."""
        for key, committed in offsets.items():
            if producer_id is None:
                self._set(group, key, committed)
            else:
                self._set_pending(group, producer_id, key, committed)

    def end_transaction(self, group: Group, producer_id: int, *, committed: bool) -> None:
        """Take over a producer's pending offsets, or forget them."""
        for key, pending in [*group.pending_offsets.get(producer_id, {}).items()]:
            if committed:
                self._set(group, key, pending)
            self._set_pending(group, producer_id, key, None)

    def forget(self, group: Group, keys: Iterable[tuple[str, int]]) -> None:
        """Forget the committed offsets of some partitions."""
        for key in keys:
            self._set(group, key, None)

    def forget_all(self, group: Group, topic: str | None = None) -> None:
        """Forget a group's committed and pending offsets: all of them, or those of one topic."""
        self.forget(group, [key for key in group.offsets if topic in (None, key[0])])
        for producer_id, offsets in [*group.pending_offsets.items()]:
            for key in [key for key in offsets if topic in (None, key[0])]:
                self._set_pending(group, producer_id, key, None)

    def _set(self, group: Group, key: tuple[str, int], committed: CommittedOffset | None) -> None:
        self._journal.put("offset", group.group_id, *key, value=committed)
        self._replace(group.offsets, key, committed)

    def _set_pending(
        self, group: Group, producer_id: int, key: tuple[str, int], committed: CommittedOffset | None
    ) -> None:
        self._journal.put("pending_offset", group.group_id, producer_id, *key, value=committed)
        pending = group.pending_offsets.setdefault(producer_id, {})
        self._replace(pending, key, committed)
        if not pending:
            del group.pending_offsets[producer_id]

    def _replace(
        self,
        offsets: dict[tuple[str, int], CommittedOffset],
        key: tuple[str, int],
        committed: CommittedOffset | None,
    ) -> None:
        self.kept_bytes += _difference(key[0], offsets.get(key), committed)
        if committed is None:
            offsets.pop(key, None)
        else:
            offsets[key] = committed


def _difference(topic: str, before: CommittedOffset | None, after: CommittedOffset | None) -> int:
    """Return the additional memory that an offset takes in place of the one before."""
    return sum(sign * each.kept_bytes(topic) for sign, each in ((-1, before), (1, after)) if each is not None)
