"""
Membership in a consumer group, for whoever works on its partitions.

:mod:`.membership` keeps the place, :mod:`.assignors` deal the partitions,
:mod:`.rebalance_listener` is told. Commits are fenced by :attr:`GroupMembership.identity`.
"""

from .assignors import ASSIGNORS
from .membership import GroupMembership, MembershipSettings
from .rebalance_listener import RebalanceListener

__all__ = ["ASSIGNORS", "GroupMembership", "MembershipSettings", "RebalanceListener"]
