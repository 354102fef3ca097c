"""
Membership in a consumer group: of raw consumers, of a mirror's lock, and of MirrorMaker's group share.

:mod:`.membership` joins and sends heartbeats, :mod:`.assigning` assigns the partitions by one of
:mod:`.assignors`, and :mod:`.rebalance_listener` is called about them. The coordinator fences commits by
:attr:`Membership.identity`.
"""

from .assignors import ASSIGNORS
from .membership import Membership
from .rebalance_listener import RebalanceListener
from .settings import MembershipSettings

__all__ = ["ASSIGNORS", "Membership", "MembershipSettings", "RebalanceListener"]
