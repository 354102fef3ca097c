"""Positions of a mirror, of which a cut-over looks at the offsets."""

from __future__ import annotations

from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity

__all__ = ["position_at"]


def position_at(source: int, destination: int | None = None) -> MirrorPosition:
    """Return a position; the copy is as long as the source, unless its end is given."""
    end = source if destination is None else destination
    return MirrorPosition(
        source, end, ProducerIdentity(1, 0), (0, 0), None, None, "", OffsetMap.begun_at(0, 0)
    )
