"""
All groups with their members and offsets, within one bound of memory.

``shoal.groups.max.bytes`` bounds the memory of all groups, since any client may join any number of groups,
and disconnect. A member stays until its session ends, up to half an hour later. Kafka bounds the memory of a
group by ``message.max.bytes`` of ``__consumer_offsets``.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.error_codes import ErrorCode
from shoal.printable import logger

from ..api_error import ApiError
from ..clock import now_ms
from ..storage.journal import Journal
from .group import CommittedOffset, Group
from .offsets import GroupsOffsets

__all__ = ["KeptGroups"]

_log = logger("shoal_broker")


class KeptGroups:
    """
    The groups, and their memory. The lock of :class:`~.groups.Groups` guards them.

    Attributes:
        offsets: Their committed offsets.

    """

    def __init__(self, broker_config: Mapping[str, str], journal: Journal) -> None:
        """
        Restore the offsets of a journal.

        Args:
            broker_config: The broker's settings, with the limits.
            journal: The place where offsets are kept.

        """
        self._config = broker_config
        self.by_id: dict[str, Group] = {}
        # The memory of members and groups, or more: it is counted again only when it matters, so members that
        # left count until then.
        self._members_bytes = 0
        self._was_refused = False
        self.offsets = GroupsOffsets(journal, self._group)
        self.count_members()

    def _group(self, group_id: str) -> Group:
        return self.by_id.setdefault(group_id, Group(group_id, empty_since_ms=now_ms()))

    def known(self, group_id: str) -> Group:
        """Return a group, or raise ApiError with UNKNOWN_MEMBER_ID if it has no members and no offsets."""
        group = self.by_id.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    @property
    def kept_bytes(self) -> int:
        """The memory of all groups, or a little more."""
        return self._members_bytes + self.offsets.kept_bytes

    def check_room(self, group_id: str, more_bytes: int, code: ErrorCode) -> None:
        """
        Check that the groups may take more memory.

        Raises:
            ApiError: With the code.

        """
        most_bytes = int(self._config["shoal.groups.max.bytes"])
        if more_bytes <= 0 or most_bytes < 0 or self.kept_bytes + more_bytes <= most_bytes:
            return
        reason = (
            f"group {group_id!r} would keep {more_bytes} bytes more, all groups have {self.kept_bytes}, and "
            f"shoal.groups.max.bytes is {most_bytes}"
        )
        if not self._was_refused:
            _log.warning("a request of a consumer group is refused: %s", reason)
        self._was_refused = True
        # Not from a variable: the frame would keep the error, and the error the frame, with the request.
        raise ApiError(code, reason)

    def keep_member(self, group: Group, more_bytes: int) -> None:
        """
        Count additional memory for a group's members, and add the group if it is new.

        Raises:
            ApiError: With GROUP_MAX_SIZE_REACHED, if that is too much.

        """
        if group.group_id not in self.by_id:
            more_bytes += group.bare_bytes
        self.check_room(group.group_id, more_bytes, ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._members_bytes += more_bytes
        self.by_id[group.group_id] = group

    def count_members(self) -> None:
        """Count again, if the estimate is so large that it matters: there may be many members."""
        most_bytes = int(self._config["shoal.groups.max.bytes"])
        if most_bytes < 0:
            return
        if self._members_bytes > (most_bytes - self.offsets.kept_bytes) // 2:
            groups = self.by_id.values()
            self._members_bytes = sum(each.bare_bytes + each.members_bytes for each in groups)
        self._was_refused = self._was_refused and self.kept_bytes > most_bytes // 2

    def commit(
        self, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset], producer_id: int | None
    ) -> None:
        """
        Keep offsets, and add their group if it is new.

        Raises:
            ApiError: With INVALID_COMMIT_OFFSET_SIZE, if there is no room for them.

        """
        group = self.by_id.get(group_id) or Group(group_id, empty_since_ms=now_ms())
        bare_bytes = 0 if group_id in self.by_id else group.bare_bytes
        more_bytes = self.offsets.more_bytes(group, offsets, producer_id)
        self.check_room(group_id, more_bytes + bare_bytes, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        self.by_id[group_id] = group
        self._members_bytes += bare_bytes
        self.offsets.commit(group, offsets, producer_id)
