"""One record, as a client sees it."""

from dataclasses import dataclass

__all__ = ["Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was sent or read.

    Attributes:
        key: None is a null key, which is not the same as an empty one.
        value: None is a tombstone.
        timestamp: Milliseconds since 1970.
        timestamp_type: "CreateTime", "LogAppendTime" or "none".
        offset: -1 for a record that was sent and not yet read.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    timestamp_type: str = "CreateTime"
    offset: int = -1

    def same_content(self, other: "Record") -> bool:
        """Whether key, value, headers and timestamp are equal; offsets may differ."""
        return (self.key, self.value, self.headers, self.timestamp) == (
            other.key,
            other.value,
            other.headers,
            other.timestamp,
        )
