"""
Membership in a consumer group, for whoever works on its partitions.

:mod:`.membership` keeps the place, :mod:`.assignors` deal the partitions,
:mod:`.listener` is told. Commits are fenced by :attr:`GroupMembership.identity`.
"""

from .assignors import ASSIGNORS
from .listener import RebalanceListener
from .membership import GroupMembership, MembershipSettings

__all__ = ["ASSIGNORS", "GroupMembership", "MembershipSettings", "RebalanceListener"]
