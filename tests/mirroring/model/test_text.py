"""How things are named in warnings."""

from __future__ import annotations

import pytest

from shoal.mirroring.model.text import first_few
from shoal.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["a"], "a"),
        ([TopicPartition("a", 0), TopicPartition("a", 11)], "a-0, a-11"),
        (list("abcde"), "a, b, c, d, e"),
        (list("abcdef"), "a, b, c, d, e and 1 more"),
        (list("abcdefgh"), "a, b, c, d, e and 3 more"),
    ],
)
def test_first_items_are_named_and_the_others_counted(names: list[object], named: str) -> None:
    assert first_few(names) == named
