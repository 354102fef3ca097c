"""Topic ids for tests of the wire format: each name has an id, and each id has a name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

__all__ = ["NAMES", "id_of"]


def id_of(name: str) -> uuid.UUID:
    """Return the id of a topic, always the same."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


class _Names(Mapping[uuid.UUID, str]):
    def __getitem__(self, topic_id: uuid.UUID) -> str:
        return str(topic_id)

    def __iter__(self) -> Iterator[uuid.UUID]:
        return iter(())

    def __len__(self) -> int:
        return 0


#: Names every id by its own text.
NAMES = _Names()
