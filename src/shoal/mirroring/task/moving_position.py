"""
The position of a partition while a worker copies it: each lot moves it, and a commit or a report makes it.

A topic with few records moves it for every record. Between two commits it is four numbers, and the header of
the last batch. To make a :class:`MirrorPosition` for each record, with a fingerprint of that batch, took a
tenth of the copying's CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...records import RecordBatch, fingerprint, read_header
from ..model.position import MirrorPosition

__all__ = ["LandedEnd", "MovingPosition"]


class LandedEnd(NamedTuple):
    """
    The end of an acknowledged batch.

    Attributes:
        source_offset: The next source offset.
        destination_offset: The next destination offset.
        header: The batch's header; its bytes are its own.
        source_leader_epoch: The batch's leader epoch at the source.

    """

    source_offset: int
    destination_offset: int
    header: bytes
    source_leader_epoch: int


class MovingPosition:
    """
    The position of one partition.

    Attributes:
        source_offset: The next source offset to mirror; -1 before the first alignment.

    """

    __slots__ = (
        "_destination_leader_epoch",
        "_has_moved",
        "_landed",
        "_made",
        "_source_leader_epoch",
        "source_offset",
    )

    def __init__(self) -> None:
        self.source_offset = -1
        self._made: MirrorPosition | None = None
        self._has_moved = False
        self._landed: LandedEnd | None = None
        self._destination_leader_epoch = -1
        self._source_leader_epoch = -1

    def __bool__(self) -> bool:
        """Whether there is a position."""
        return self._made is not None

    @property
    def sequence_is_offset(self) -> bool:
        """See :attr:`.ProducerIdentity.sequence_is_offset`; only :meth:`put` changes the identity."""
        return self._made is not None and self._made.identity.sequence_is_offset

    def put(self, position: MirrorPosition | None) -> None:
        """Go on from a position."""
        self._made = position
        self._has_moved = False
        self._landed = None
        if position is not None:
            self.source_offset = position.source_offset
            self._destination_leader_epoch = position.destination_leader_epoch
            self._source_leader_epoch = position.source_leader_epoch

    def land(self, end: LandedEnd) -> None:
        """Move behind an acknowledged batch."""
        self._landed = end
        self._has_moved = True
        self.source_offset = end.source_offset
        self._source_leader_epoch = end.source_leader_epoch

    def pass_over(
        self, source_offset: int, *, destination_leader_epoch: int, source_leader_epoch: int
    ) -> None:
        """Move behind source offsets of which nothing is left to send, in these leader epochs."""
        self._has_moved = True
        self.source_offset = max(self.source_offset, source_offset)
        self._destination_leader_epoch = destination_leader_epoch
        self._source_leader_epoch = source_leader_epoch

    def get(self) -> MirrorPosition | None:
        """Return the position as of now; None before the first alignment."""
        if self._has_moved and self._made is not None:
            made = replace(
                self._made,
                source_offset=self.source_offset,
                destination_leader_epoch=self._destination_leader_epoch,
                source_leader_epoch=self._source_leader_epoch,
            )
            if self._landed is not None:
                made = replace(
                    made,
                    destination_offset=self._landed.destination_offset,
                    last_batch=_crc(self._landed.header),
                )
            self.put(made)
        return self._made


def _crc(header: bytes) -> int:
    view = memoryview(header)
    return fingerprint(RecordBatch(read_header(view), view)).crc
