"""A partition's name, which all of shoal uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

__all__ = ["TopicPartition", "by_topic"]

T = TypeVar("T")


class TopicPartition(NamedTuple):
    """
    The name of a partition: a topic and a number.

    Attributes:
        topic: The topic's name.
        partition: The partition's number, from 0 on.

    Examples:
        >>> import shoal
        >>> orders = shoal.TopicPartition("orders", 0)
        >>> orders == ("orders", 0), str(orders)
        (True, 'orders-0')

    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition], make: Callable[[TopicPartition], T]) -> dict[str, list[T]]:
    """Return what is made of each partition, by its topic: so messages list partitions."""
    made: dict[str, list[T]] = defaultdict(list)
    for each in partitions:
        made[each.topic].append(make(each))
    return made
