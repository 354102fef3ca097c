"""A partition's name, which all of shoal uses."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TopicPartition"]


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
