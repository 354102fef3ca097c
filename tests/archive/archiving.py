"""A source, an archive, and a cluster that the archive is restored to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal.archive.directory import Archive
from shoal.archive.objects import PartitionObjects
from shoal.client.config import ClientConfig
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.task.archiving import follow_documents
from shoal.verify import Outcome, verify
from shoal_broker.storage.log import Log
from tests.archive.archives import read_all
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of, content_of
from tests.world.control import incidents_of, partitions_of
from tests.world.driver import Driver, Following
from tests.world.task import TaskResult
from tests.world.waiting import wait_until

__all__ = ["Archiving", "stored"]


@dataclass
class Archiving:
    """
    A source, an archive, and a driver whose tasks archive the one to the other.

    Attributes:
        brokers: The source, with the settings of the archiving mirror.
        archive: The archive.
        driver: The driver of the archiving mirror.
        restoring: The destination of a restore, with its settings.

    """

    brokers: TwoBrokers
    archive: Archive
    driver: Driver
    restoring: TwoBrokers

    @classmethod
    @contextmanager
    def started(
        cls, directory: Path | str, seen_at: str | None = None, **settings: object
    ) -> Iterator[Archiving]:
        """Create the archive; with ``seen_at``, the test itself looks at it by another URL."""
        archive = Archive.open(str(directory), creates=True)
        if seen_at is not None:
            archive = Archive.open(seen_at)
        destination = ClientConfig.given("destination", str(directory), None)
        with TwoBrokers.started() as brokers:
            source = ClientConfig.given("source", str(directory), None)
            restoring = brokers.with_settings(source=source.kept_by(brokers.settings.destination))
            brokers = brokers.with_settings(
                destination=destination,
                group=f"shoal.source.{archive.id}",
                **{"segment_s": 3_600.0, **settings},
            )
            driver = Driver(brokers, follow_documents)
            try:
                yield cls(brokers, archive, driver, restoring)
            finally:
                driver.server.close()

    def start(self) -> Following:
        return self.driver.start()

    @property
    def fetched_bytes(self) -> int:
        """The bytes that tasks have fetched, by their reports."""
        newest = {part["since"]: part["bytes_in"] for part in partitions_of(self.driver)}
        return sum(newest.values())

    @property
    def path(self) -> str:
        """The directory of partition 0."""
        return f"topics/topic/{self.brokers.source.topics.topic('topic').topic_id}/0"

    @property
    def is_begun(self) -> bool:
        """Whether a task has reported a position."""
        return any(part["source_offset"] is not None for part in partitions_of(self.driver))

    def objects(self, partition: int = 0) -> PartitionObjects:
        topic_id = self.brokers.source.topics.topic("topic").topic_id
        return self.archive.objects("topic", str(topic_id), partition)

    def content(self, partition: int = 0) -> bytes:
        """The batches of a partition, as a reader gets them."""
        return read_all(self.objects(partition), 100_000)

    def end(self, partition: int = 0) -> int | None:
        return self.objects(partition).end_offset

    def incidents(self) -> list[str]:
        return [kind for kind, *_ in incidents_of(self.driver)]

    def to_the_end(self, number: int = 0) -> None:
        """Archive all that a partition of the source has, by one task."""
        task = self.start()
        end = self.brokers.source.log("topic", number).last_stable_offset
        self.driver.want(number, end=end)
        wait_until(lambda: self.driver.server.is_done)
        self.driver.end(task)
        assert (self.end(number) or 0) == end, self.driver.stopped

    def restore(self, start: int | None = None, end: int | None = None, number: int = 0) -> None:
        """Restore a partition up to an offset, by one task."""
        start = self.objects(number).start_offset or 0 if start is None else start
        end = self.end(number) or 0 if end is None else end
        result = self.restoring.run([CopyRange("topic", number, "topic", start, end)])
        assert result == TaskResult((), complete=True), [str(each) for each in result.stopped]

    def restored(self, number: int = 0) -> Sequence[Content]:
        """Return the records of the restored partition, as another client decodes them."""
        return content_of(self.restoring.destination.log("topic", number))

    def verified(self) -> Outcome:
        """Compare the archive with the restored topic."""
        settings = self.restoring.settings
        topics = {"topic": "topic"}
        report = verify(settings.source, settings.destination, topics, group=settings.group, patience_s=5.0)
        return report.outcome


def stored(log: Log, end: int | None = None) -> bytes:
    """Return the bytes of a source's log, as the test wrote them, up to an offset."""
    found = batches_of(log)
    return b"".join(bytes(each.view) for each in found if end is None or each.header.base_offset < end)
