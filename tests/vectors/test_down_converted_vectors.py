"""The down-converted vectors match their index, as read by kafka-python."""

import re
from operator import attrgetter
from typing import Any

from kafka.protocol.consumer import FetchResponse
from kafka.record.memory_records import MemoryRecords

from tests.each_case import each_case
from tests.vectors import Vector, down_converted_vectors, vector

CONVERTED = [
    each
    for each in down_converted_vectors()
    # kafka-python reads no zstd.
    if each.direction == "response" and each.version < 4 and not re.search("zstd|refused", each.name)
]


@each_case("recorded", CONVERTED, attrgetter("name"))
def test_converted_vector_has_the_records_of_the_log(recorded: Vector) -> None:
    """As far as they come; without timestamps in magic 0."""
    log = vector(f"down_converted/fetch-v12-{recorded.name.split('-', 2)[2]}")
    within_log = {
        (offset, timestamp if recorded.version > 1 else -1, key, value)
        for offset, timestamp, key, value in records_in(log)
    }
    assert set(records_in(recorded)) <= within_log


def records_in(recorded: Vector) -> list[Any]:
    response = FetchResponse[recorded.version].decode(recorded.frame, header=True)
    (partition,) = response.responses[0].partitions
    records = MemoryRecords(bytes(partition.records))
    found = []
    while (batch := records.next_batch()) is not None:
        if batch.magic < 2 or not batch.is_control_batch:
            found += [
                (
                    record.offset,
                    -1 if record.timestamp is None else record.timestamp,
                    record.key,
                    record.value,
                )
                for record in batch
            ]
    return found
