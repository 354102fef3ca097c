"""Faults that are put into a copy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from tests.world.batches import Content

from .logs import Piece

__all__ = ["Fault", "put_in"]

_KINDS = (
    *("missing", "doubled", "doubled run", "swapped", "bit", "key bit", "header", "time", "null", "null"),
    *("missing batch", "doubled batch"),
)


class _Copied(NamedTuple):
    """A record of the copy: the offset of the one that it copies, and the number of its piece."""

    source: int | None
    item: Content
    piece: int


@dataclass(frozen=True)
class Fault:
    """
    A fault that was put in, and the place at which it is to be named.

    Attributes:
        source: The offset of the source's record; None if the destination has it once more.
        before: The offset of the source's record behind it, to find its place at the destination.
        item: The source's record.
        altered: The record in its place, if it is another one.
        change: The number of the change to the copy: one may double or remove many records.

    """

    kind: str
    source: int | None
    before: int | None
    item: Content
    altered: Content | None = None
    change: int = 0

    @property
    def keys(self) -> set[bytes | None]:
        """The key of the record, and that of the one in its place."""
        return {each.key for each in (self.item, self.altered) if each is not None}


def put_in(rng: random.Random, pieces: Sequence[Piece], count: int) -> tuple[list[Piece], list[Fault]]:
    """Put up to so many faults into a copy; return the new pieces and the faults."""
    copy = [
        _Copied(offset, item, number) for number, piece in enumerate(pieces) for offset, item in piece.records
    ]
    faults = []
    for change in range(count):
        if copy:
            faults += _put_one(rng, copy, change)
    return list(_cut(pieces, copy)), faults


def _put_one(rng: random.Random, copy: list[_Copied], change: int) -> list[Fault]:
    at = rng.randrange(len(copy))
    item, piece = copy[at].item, copy[at].piece
    kind = rng.choice(_KINDS)
    end = at + 1
    changed = _altered(kind, item)
    if kind == "doubled run":
        end = min(len(copy), at + rng.randrange(2, 40))
    elif kind in ("missing batch", "doubled batch"):
        while at and copy[at - 1].piece == piece:
            at -= 1
        while end < len(copy) and copy[end].piece == piece:
            end += 1
    found = copy[at:end]
    if kind.startswith("missing"):
        del copy[at:end]
        end = at
    elif kind.startswith("doubled"):
        # A number of its own: whole batches are there with the same bytes once more.
        copy[end:end] = [
            each._replace(source=None, piece=piece if piece < 0 else -1 - piece) for each in found
        ]
    elif kind == "swapped" and end < len(copy) and copy[at].item != copy[end].item:
        copy[at], copy[end] = copy[end]._replace(piece=piece), copy[at]._replace(piece=copy[end].piece)
    elif changed is not None:
        copy[at] = copy[at]._replace(item=changed)
    else:
        return []
    before = next((each.source for each in copy[end:] if each.source is not None), None)
    return [Fault(kind, each.source, before, each.item, changed, change) for each in found]


def _altered(kind: str, item: Content) -> Content | None:
    if kind == "bit" and item.value:
        return item._replace(value=bytes([item.value[0] ^ 1]) + item.value[1:])
    if kind == "key bit" and item.key:
        return item._replace(key=bytes([item.key[0] ^ 1]) + item.key[1:])
    if kind == "header" and item.headers:
        return item._replace(headers=item.headers[1:])
    if kind == "time":
        return item._replace(timestamp=item.timestamp + 1)
    if kind == "null" and item.key in (None, b""):
        return item._replace(key=b"" if item.key is None else None)
    if kind == "null" and item.value in (None, b""):
        return item._replace(value=b"" if item.value is None else None)
    return None


def _cut(pieces: Sequence[Piece], copy: Sequence[_Copied]) -> list[Piece]:
    """Return the pieces with these records; those that are as before keep their bytes."""
    found = []
    for number, group in groupby(copy, lambda each: each.piece):
        records = [(each.source, each.item) for each in group]
        before = pieces[number if number >= 0 else -1 - number]
        is_same = [item for _, item in records] == [item for _, item in before.records]
        found.append(Piece(before.codec, records, before.batch if is_same else None, before.is_transaction))
    return found
