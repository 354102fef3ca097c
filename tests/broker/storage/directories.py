"""Brokers over a data directory, and the files in it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.records import split
from shoal_broker import Broker
from tests.broker.wire import Wire


@contextmanager
def serving(data: Path, **config: str) -> Iterator[tuple[Broker, Wire]]:
    """Run a broker over a directory, and connect to it."""
    settings_by_name = {key.replace("_", "."): value for key, value in config.items()}
    with Broker(data=data, config=settings_by_name) as broker, Wire(broker.bootstrap) as wire:
        yield broker, wire


def stored(wire: Wire, topic: str = "topic", offset: int = 0) -> bytes:
    """Read all that one answer holds."""
    return bytes(wire.fetch(topic, offset, partition_max_bytes=1 << 26, max_bytes=1 << 26).record_set)


def segments(data: Path, partition: str = "topic-0") -> list[Path]:
    return sorted((data / partition).glob("*.log"))


def fetched_payloads(wire: Wire) -> list[tuple[int, bytes]]:
    """Offset and payload of every batch of the topic."""
    found = split(memoryview(bytes(wire.fetch("topic").record_set)))
    return [(each.header.base_offset, bytes(each.payload)) for each in found]


def raising(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
