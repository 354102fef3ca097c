"""
Frames of a real Kafka broker, byte by byte; see README.md.

    from tests.vectors import vector
    frame = vector("fetch-v12-gzip.response").frame
"""

import json
import uuid
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Vector", "down_converted_vectors", "old_vectors", "removed_vectors", "vector", "vectors"]

_DIRECTORY = Path(__file__).parent


@dataclass(frozen=True)
class Vector:
    """
    One recorded frame.

    Attributes:
        name: The file's name without ``.bin``; a response's ends in ``.response``.
        broker: Which Kafka answered, e.g. "Apache Kafka 4.1.0".
        api: Kafka's name, e.g. "Fetch".
        direction: "request" or "response".
        what: The steps that caused it.
        codec: Of the batches in it, if they have one.
        fields: The whole message as kafka-python decodes it; in place of record sets, the number
            of their bytes.
        batches: The batches of a Fetch response or Produce request as kafka-python decodes their
            headers, by "topic-partition", whole ones only.
        records: The records that confluent-kafka reads under read_committed, by
            "topic-partition", if the frame holds the whole partition.
        messages: The messages and wrappers of magic 0 and 1 in an old broker's Fetch response, as Kafka's
            DumpLogSegments shows them, by "topic-partition". In each, ``records`` are the inner offsets and
            timestamps.

    """

    name: str
    broker: str
    api: str
    api_key: int
    version: int
    direction: str
    what: str
    codec: str | None
    correlation_id: int
    size: int
    sha256: str
    fields: dict[str, Any]
    batches: dict[str, list[dict[str, Any]]]
    records: dict[str, list[dict[str, Any]]] | None
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def frame(self) -> bytes:
        """The frame, header included, without the four bytes of its size."""
        return (_DIRECTORY / f"{self.name}.bin").read_bytes()

    @property
    def names(self) -> dict[uuid.UUID, str]:
        """A name for each topic that it lists by id, as the index has it: the id as text."""
        listed = self.fields.get("responses") or self.fields.get("topic_data") or ()
        ids = [topic["topic_id"] for topic in listed if topic.get("topic_id")]
        return {uuid.UUID(each): each for each in ids}


@cache
def vectors() -> tuple[Vector, ...]:
    """Return all vectors of a broker of today, in the order of recording."""
    index = json.loads((_DIRECTORY / "index.json").read_text())
    return tuple(Vector(**entry) for entry in index)


def old_vectors() -> tuple[Vector, ...]:
    """Return all vectors of a broker with messages of magic 0 and 1; their names begin with "old/"."""
    return _in_directory("old")


def down_converted_vectors() -> tuple[Vector, ...]:
    """Return the vectors of a log and of old clients' responses; their names begin with "down_converted/"."""
    return _in_directory("down_converted")


def removed_vectors() -> tuple[Vector, ...]:
    """Return all vectors of versions that Kafka 4 has removed; their names begin with "removed/"."""
    return _in_directory("removed")


@cache
def _in_directory(name: str) -> tuple[Vector, ...]:
    index = json.loads((_DIRECTORY / name / "index.json").read_text())
    return tuple(Vector(**{**entry, "name": f"{name}/{entry['name']}"}) for entry in index)


@cache
def vector(name: str) -> Vector:
    """Return the vector of this name."""
    return next(
        vector
        for vector in (*vectors(), *old_vectors(), *down_converted_vectors(), *removed_vectors())
        if vector.name == name
    )
