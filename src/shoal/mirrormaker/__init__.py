"""
A mirror in the clothes of MirrorMaker 1 (KIP-3, KIP-712): it shares a consumer group with others.

The engine is the mirror's own. What is different is here: which partitions are this process's is the
group's matter (:mod:`.group_share`), and what is on its way may pass through a user's class (:mod:`.task`).
"""
