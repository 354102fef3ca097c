"""Partitions' logs, in memory or in Kafka's own files, and what else outlives the broker's process."""
