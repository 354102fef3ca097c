"""Blocking connections to brokers, and on them metadata, offsets, groups, fetch and produce."""
