"""
Membership in a consumer group: of raw consumers, of a mirror's lock, and of MirrorMaker's group share.

:mod:`.membership` joins and sends heartbeats, :mod:`.assignors` assign the partitions, and
:mod:`.rebalance_listener` is called about them. The coordinator fences
commits by :attr:`Membership.identity`.
"""

from .assignors import ASSIGNORS
from .membership import Membership, MembershipSettings
from .rebalance_listener import RebalanceListener

__all__ = ["ASSIGNORS", "Membership", "MembershipSettings", "RebalanceListener"]
