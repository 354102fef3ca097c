"""
The state of a group's member, which its owner and its keeper share; see :mod:`.membership`.

::

    OUT --subscribe--> GIVING_UP --poll--> JOINING --synced--> ASSIGNED --poll--> STABLE
                           ^                  |                    |                 |
                           +---lost-----------+--------------------+---rebalance-----+
"""

from __future__ import annotations

import enum
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import ShoalError
from ..topic_partition import TopicPartition
from .coordinator import Joined, MemberId

__all__ = ["NO_GENERATION", "MemberState", "Phase"]

#: The generation of a member that is in none.
NO_GENERATION = -1


class Phase(enum.Enum):
    """The phase of a member; see the diagram of this module."""

    OUT = "out"
    GIVING_UP = "giving up"
    JOINING = "joining"
    ASSIGNED = "assigned"
    STABLE = "stable"
    LEFT = "left"


class MemberState:
    """
    The phase of a member, and what leads to the next one. The caller holds ``changed`` for each method.

    Attributes:
        changed: Guards this object, and is notified of each change.
        identity: The member's id for requests.
        error: The error that ended the membership.
        last_failure: The error of the last request to the coordinator; None if that succeeded.
        assignment: The partitions of the last assignment.
        wanted: The subscription: names, or a pattern.
        topics: The topics of the subscription.
        polled_at: The time of the owner's last poll, by the monotonic clock.
        is_lost: Whether another member may have the partitions already.
        joins_as_new: Whether the member gives up its id at the next join.

    """

    def __init__(self, instance_id: str | None, on_change: Callable[[], object]) -> None:
        """
        Begin outside the group.

        Args:
            on_change: Called if the owner has work.

        """
        self.changed = threading.Condition()
        self.phase = Phase.OUT
        self.identity = MemberId(instance_id=instance_id)
        self.error: ShoalError | None = None
        self.last_failure: ShoalError | None = None
        self.assignment: tuple[TopicPartition, ...] = ()
        self.wanted: frozenset[str] | re.Pattern[str] = frozenset()
        self.topics: frozenset[str] = frozenset()
        self.polled_at = 0.0
        self.is_lost = False
        self.joins_as_new = False
        self._must_join_again = False
        self._on_change = on_change

    def subscribe(self, wanted: frozenset[str] | re.Pattern[str]) -> bool:
        """Replace the subscription; return whether it is another one."""
        if wanted == self.wanted and self.phase is not Phase.OUT:
            return False
        self.wanted = wanted
        if not isinstance(wanted, re.Pattern):
            self.topics = wanted
        self.polled_at = time.monotonic()
        if self.phase is Phase.OUT:
            self.phase = Phase.GIVING_UP
        else:
            self.join_again()
        self.changed.notify_all()
        return True

    def join_again(self) -> None:
        """Make the owner revoke, and join again."""
        if self.phase is Phase.STABLE:
            self.phase = Phase.GIVING_UP
        elif self.phase in (Phase.ASSIGNED, Phase.JOINING):
            self._must_join_again = True
        self._notify()

    def begin_join(self) -> MemberId:
        """Note that the subscription is read now; return the identity to join with."""
        self._must_join_again = False
        return self.identity

    def given_up(self) -> None:
        """Join, after the owner has revoked its partitions."""
        # If the partitions were lost meanwhile, the listener must be called about that first.
        if self.phase is Phase.GIVING_UP and not self.is_lost:
            self.phase = Phase.JOINING
            self.changed.notify_all()

    def joined(self, membership: MemberId, joined: Joined) -> None:
        """Store the member's id, so that the member can leave if the next request fails."""
        if self.phase is Phase.JOINING:
            self.identity = replace(membership, member_id=joined.member_id)

    def synced(
        self, membership: MemberId, joined: Joined, assignment: Sequence[TopicPartition]
    ) -> MemberId | None:
        """Keep an assignment for the owner; return the identity, or None if the member is not joining."""
        self.identity = replace(membership, member_id=joined.member_id, generation=joined.generation)
        if self.phase is not Phase.JOINING:
            return None
        # If the subscription changed after the request, the assignment has topics that it does not name.
        self.assignment = tuple(each for each in assignment if each.topic in self.topics)
        self._must_join_again = self._must_join_again or len(self.assignment) < len(assignment)
        self.phase = Phase.ASSIGNED
        self._notify()
        return self.identity

    def take(self) -> tuple[TopicPartition, ...] | None:
        """Return the owner's new partitions; None if they are lost."""
        if self.phase is not Phase.ASSIGNED:
            return None
        self.phase = Phase.GIVING_UP if self._must_join_again else Phase.STABLE
        self._must_join_again = False
        self.changed.notify_all()
        return self.assignment

    def lose(self, *, keep_id: bool) -> None:
        """Note that the coordinator no longer has this member."""
        member_id = self.identity.member_id if keep_id else ""
        self.identity = MemberId(member_id, NO_GENERATION, self.identity.instance_id)
        self.is_lost = True
        if self.phase is not Phase.LEFT:
            self.phase = Phase.GIVING_UP
        self._must_join_again = False
        self._notify()

    def fail(self, error: ShoalError) -> None:
        """End the membership by an error."""
        self.error = error
        self._notify()

    def leave(self) -> None:
        """End the membership."""
        self.phase = Phase.LEFT
        self.changed.notify_all()

    def _notify(self) -> None:
        self.changed.notify_all()
        self._on_change()
