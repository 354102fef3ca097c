"""Handlers of ``shoal mirror-maker`` for the bench: they pass all on into the topic of their argument."""

from collections.abc import Sequence
from dataclasses import replace

from shoal import ConsumerRecord, RawRecord
from shoal.handlers import (
    MirrorMakerMessageHandler,
    MirrorMakerRawBytesMessageHandler,
    ProducerRecord,
)

__all__ = ["Batches", "Records"]


class Records(MirrorMakerMessageHandler):
    """Passes on each record."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def handle(self, record: ConsumerRecord) -> Sequence[ProducerRecord]:
        return [replace(ProducerRecord.of(record), topic=self._topic)]


class Batches(MirrorMakerRawBytesMessageHandler):
    """Passes on each batch."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        return [replace(batch, topic=self._topic)]
