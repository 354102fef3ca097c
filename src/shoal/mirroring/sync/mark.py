"""
The mark of a committed offset that shoal translated, in the commit's metadata.

A mark reads ``translated-by-shoal/1 CLUSTER OFFSET TRANSLATION EXACTNESS``, and behind a space follows the
metadata that the group's consumer committed. If a broker does not allow metadata of this length, the mark
stands alone.

An offset without a mark is one of a consumer or an operator, and shoal never moves it backwards. The same is
true of a mark beside another offset: its committer had read shoal's metadata. The cluster's id says where the
offset was read, since shoal does not send it back.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ...client.group_offsets import CommittedValue
from ..model.offset_map import Exactness, Translation

__all__ = ["LARGEST_METADATA", "Mark"]

_PREFIX = "translated-by-shoal/1 "
_MARK = re.compile(
    re.escape(_PREFIX) + r"(\S+) (\d{1,19}) (\d{1,19}) (exact|ahead|at-least)(?: (.*))?",
    re.DOTALL,
)

#: The default of the broker's offset.metadata.max.bytes, which counts characters.
LARGEST_METADATA = 4096

#: In place of the id of a cluster before Kafka 0.10.1.
_NO_CLUSTER_ID = "-"


class Mark(NamedTuple):
    """
    The metadata of a translated offset.

    Attributes:
        cluster_id: The id of the cluster whose group was read.
        offset: The offset that the group had committed there.
        translation: The offset to which the metadata belongs.
        exactness: How exact the translation is.
        passed_on: The metadata that the group had committed there; empty if they were too long.

    """

    cluster_id: str
    offset: int
    translation: int
    exactness: Exactness
    passed_on: str = ""

    @classmethod
    def of(cls, cluster_id: str | None, committed: CommittedValue, translation: Translation) -> Mark:
        """Return the mark of a translation; metadata that is itself a mark is passed on without it."""
        inner = _read(committed.metadata)
        passed_on = committed.metadata if inner is None else inner.passed_on
        return cls(cluster_id or _NO_CLUSTER_ID, committed.offset, *translation, passed_on)

    @classmethod
    def read(cls, committed: CommittedValue) -> Mark | None:
        """Read the mark of a committed offset; None if shoal did not commit it."""
        mark = _read(committed.metadata)
        return mark if mark is not None and mark.translation == committed.offset else None

    def is_from(self, cluster_id: str | None) -> bool:
        """Whether the offset was read from the cluster with this id."""
        return self.cluster_id == (cluster_id or _NO_CLUSTER_ID)

    @property
    def alone(self) -> str:
        """The metadata to commit, without that of the consumer."""
        exactness = self.exactness.value.replace(" ", "-")
        return f"{_PREFIX}{self.cluster_id} {self.offset} {self.translation} {exactness}"

    def to_metadata(self) -> str:
        """Return the metadata to commit, with that of the consumer if it fits."""
        whole = f"{self.alone} {self.passed_on}" if self.passed_on else self.alone
        return whole if len(whole) <= LARGEST_METADATA else self.alone

    def was_committed_as(self, found: Mark) -> bool:
        """Whether a commit of this mark leaves the one that was found; a broker may allow it alone only."""
        return found[:4] == self[:4] and found.passed_on in (self.passed_on, "")


@lru_cache(maxsize=100_000)  # an idle group shows the same mark in each round
def _read(metadata: str) -> Mark | None:
    if not metadata.startswith(_PREFIX):
        return None
    match = _MARK.fullmatch(metadata)
    if match is None:
        return None
    cluster_id, offset, translation, exactness, passed_on = match.groups()
    known = Exactness(exactness.replace("-", " "))
    return Mark(cluster_id, int(offset), int(translation), known, passed_on or "")
