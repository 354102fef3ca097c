"""
The mirror's place in its group, as a driver holds it: a generation for each attempt, and a lease.

The coordinator refuses the commits of former generations. A former attempt sends nothing more once the next
one begins. The requests and commits that it sent before may still arrive.
"""

from __future__ import annotations

from contextlib import suppress

from shoal.client.coordinator import MemberId
from shoal_broker.api_error import ApiError
from shoal_broker.coordination.groups import Groups
from shoal_broker.coordination.member import Join, Sync
from tests.world.control import Watched

__all__ = ["Fencing"]

_PROTOCOL_TYPE, _PROTOCOL = "consumer", "world"

#: Longer than any trial: no member sends heartbeats.
_SESSION_MS = 1_800_000


class Fencing:
    """The only member of the mirror's group, of whatever name, for the tasks of a world."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._members: dict[str, str] = {}

    def begin(self, group: str) -> MemberId:
        """Begin a generation of a group."""
        try:
            return self._join(group, self._members.get(group, ""))
        except ApiError:  # the group was deleted
            return self._join(group, "")

    def _join(self, group: str, member_id: str) -> MemberId:
        protocols = {_PROTOCOL: b""}
        timeouts = _SESSION_MS, _SESSION_MS
        # Version 3 joins without an id of its own.
        join = Join(group, member_id, None, _PROTOCOL_TYPE, protocols, *timeouts, "world", "localhost", 3)
        joined = self._groups.join(join)
        sync = Sync(group, joined.leader, None, joined.generation, None, None, {joined.leader: b""})
        self._groups.sync(sync)
        self._members[group] = joined.leader
        return MemberId(joined.leader, joined.generation)

    def leave(self, group: str) -> None:
        """Leave a group, so that it can be deleted."""
        with suppress(ApiError):
            self._groups.leave(group, self._members.pop(group, ""), None)

    def let_begin(self, control: Watched, group: str) -> None:
        """Let a task be the group's present attempt."""
        control.hold_group(lambda: self.begin(group))
