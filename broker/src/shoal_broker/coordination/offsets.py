"""
The committed offsets of groups.

Offsets of an open transaction are *pending*, by producer id, until the transaction ends. The lock of
:class:`~.groups.Groups` guards all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .group import CommittedOffset, Group

__all__ = ["GroupsOffsets"]


class GroupsOffsets:
    """All groups' offsets."""

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
        _replace(group.offsets, key, committed)

    def _set_pending(
        self, group: Group, producer_id: int, key: tuple[str, int], committed: CommittedOffset | None
    ) -> None:
        pending = group.pending_offsets.setdefault(producer_id, {})
        _replace(pending, key, committed)
        if not pending:
            del group.pending_offsets[producer_id]


def _replace(
    offsets: dict[tuple[str, int], CommittedOffset], key: tuple[str, int], committed: CommittedOffset | None
) -> None:
    if committed is None:
        offsets.pop(key, None)
    else:
        offsets[key] = committed
