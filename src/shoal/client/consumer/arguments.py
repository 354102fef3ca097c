"""Partitions and offsets as a caller names them."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import ConfigError
from ...topic_partition import TopicPartition

__all__ = ["all_named", "named", "valid_offset"]


def named(partition: object) -> TopicPartition:
    """Return the partition that a caller means."""
    match partition:
        case (str() as topic, int() as number) if number >= 0:
            return TopicPartition(topic, number)
    raise ConfigError(f"invalid partition {partition!r}. Use TopicPartition(topic, number), or such a pair")


def all_named(partitions: object) -> list[TopicPartition]:
    """Return one partition, or each of a collection of them."""
    # A partition is a tuple, too: a tuple is a collection only if tuples are in it.
    is_one = isinstance(partitions, tuple) and not all(isinstance(each, tuple) for each in partitions)
    if is_one or isinstance(partitions, str) or not isinstance(partitions, Iterable):
        return [named(partitions)]
    return [named(each) for each in partitions]


def valid_offset(what: str, offset: object) -> int:
    """Return an offset, or raise ValueError if it is not one."""
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"{what} {offset!r}: an offset is a whole number that is not negative")
    return offset
