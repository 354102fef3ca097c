"""Requests of versions that the cluster does not speak any more, each API in its way."""
