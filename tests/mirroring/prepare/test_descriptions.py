"""Limits that follow from the configurations of topics."""

from __future__ import annotations

import pytest

from shoal.client.admin import ConfigEntry
from shoal.mirroring.prepare.descriptions import decompression_limit

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("largest", "limit"),
    [
        ([], 64 * MIB),
        ([1_048_588], 64 * MIB),
        ([1_048_588, 20 * MIB], 80 * MIB),
        ([1_000_000_000], 512 * MIB),
    ],
)
def test_decompression_limit_follows_the_largest_batch_of_the_topics(largest: list[int], limit: int) -> None:
    topics = [{"max.message.bytes": ConfigEntry(str(size), set_on_topic=True)} for size in largest]
    assert decompression_limit([*topics, {}]) == limit
