"""
A mirror with the interface of MirrorMaker 1 (KIP-3, KIP-712), which shares a consumer group with others.

The run and the engine are those of any mirror. There are two differences: the group assigns the partitions
(:mod:`.group_share`), and records may pass through a user's class (:mod:`.task`).
"""
