"""
A mirror with the interface of MirrorMaker 1 (KIP-3, KIP-712): it shares a consumer group with others.

The run and the engine are those of any mirror. Two things differ: the group assigns the partitions
(:mod:`.group_share`), and records may pass through a user's class (:mod:`.task`).
"""
