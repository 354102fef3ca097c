"""
Membership in a consumer group, for whoever works on its partitions.

:mod:`.membership` keeps the place, :mod:`.assignors` deal the partitions,
:mod:`.rebalance_listener` is told. Commits are fenced by :attr:`Membership.identity`.
"""

from .assignors import ASSIGNORS
from .membership import Membership, MembershipSettings
from .rebalance_listener import RebalanceListener

__all__ = ["ASSIGNORS", "Membership", "MembershipSettings", "RebalanceListener"]
