"""Blocking sockets around the protocol: connections, metadata, offsets, groups."""
