"""Partitions' logs."""
