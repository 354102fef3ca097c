"""Restores by the copy task of every mirror, from an archive that stands in place of the source."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from shoal.archive.description import DamagedObject
from shoal.archive.directory import Archive
from shoal.archive.files import StoredFile
from shoal.archive.groups import write_groups
from shoal.archive.names import ObjectName
from shoal.archive.objects import PartitionObjects
from shoal.archive.reading import PartitionReader
from shoal.client.admin import describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import fetch_offsets
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.client.groups import list_groups
from shoal.client.offsets import EARLIEST, LATEST, ask_offsets, list_offsets
from shoal.errors import ConfigError
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import Until
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.changes import Prepared
from shoal.mirroring.prepare.inspect import inspect_topics
from shoal.mirroring.sync.one_round import translate_offsets
from shoal.topic_partition import TopicPartition
from shoal.verify import verify
from shoal.verify.extent import Extent
from tests.archive.archives import TOPIC_ID, add, described, new_archive, objects_of, plain
from tests.archive.archiving import Archiving
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of

ORDERS = TopicPartition("orders", 0)


class Restoring:
    """An archive of one partition, and a cluster that it is restored to."""

    def __init__(self, directory: Path, brokers: TwoBrokers) -> None:
        self.directory = directory
        self.archive = new_archive(directory / "archive")
        self.brokers = brokers
        self.source = ClientConfig.given("source", str(directory / "archive"), None).kept_by(
            brokers.settings.destination
        )
        brokers.destination.create_topic("orders", 1)

    def add(self, record_set: bytes, **how: object) -> None:
        objects = objects_of(self.archive)
        end, generation = objects.end_offset or 0, objects.place.next_generation
        add(self.archive, record_set, self.directory, offset=end, generation=generation, **how)  # type: ignore[arg-type]

    def run(self, **settings: object) -> list[str]:
        """Restore to the end; return why the partition stopped."""
        end = objects_of(self.archive).end_offset or 0
        restoring = self.brokers.with_settings(source=self.source, **settings)
        result = restoring.run([CopyRange("orders", 0, "orders", 0, end)])
        return [each.reason for each in result.stopped]


@pytest.fixture
def restoring(tmp_path: Path) -> Iterator[Restoring]:
    with TwoBrokers.started() as brokers:
        yield Restoring(tmp_path, brokers)


def transaction(offset: int, producer_id: int, ends: int) -> bytes:
    data = batches.batch(
        [b"t"], base_offset=offset, flags=batches.TRANSACTIONAL, producer_id=producer_id, producer_epoch=0
    )
    return bytes(data + batches.marker(ends, producer_id, base_offset=offset + 1))


def test_restore_keeps_its_position_at_the_destination(restoring: Restoring) -> None:
    restoring.add(plain(3))
    restoring.run()
    with Cluster(restoring.source) as archive:
        positions = GroupPositions(archive, restoring.brokers.settings.group, MemberId).read([ORDERS])
        assert fetch_offsets(archive, restoring.brokers.settings.group, [ORDERS])[ORDERS].offset == 3
    assert positions[ORDERS].source_offset == 3
    assert positions[ORDERS].source_topic_id == str(TOPIC_ID)
    restoring.add(plain(2, base_offset=3))
    assert restoring.run() == []
    assert len(content_of(restoring.brokers.destination.log("orders", 0))) == 5


def test_restore_stops_at_a_damaged_object_and_names_it(restoring: Restoring) -> None:
    restoring.add(plain(3))
    restoring.add(plain(2, base_offset=3))
    objects = objects_of(restoring.archive)
    file = restoring.directory / "archive" / objects.path / f"{objects.names[1]}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    (reason,) = restoring.run()
    assert file.name in reason
    assert len(content_of(restoring.brokers.destination.log("orders", 0))) == 3


@pytest.mark.parametrize("damage", ["cut", "no log", "no json"])
def test_restore_continues_behind_damage_once_the_archive_begins_there(
    restoring: Restoring, damage: str
) -> None:
    for count, base_offset in ((3, 0), (2, 3), (4, 5)):
        restoring.add(plain(count, base_offset=base_offset))
    objects = objects_of(restoring.archive)
    log, json = (
        restoring.directory / "archive" / objects.path / f"{objects.names[1]}.{suffix}"
        for suffix in ("log", "json")
    )
    if damage == "cut":
        log.write_bytes(log.read_bytes()[:-1])
    else:
        {"no log": log, "no json": json}[damage].unlink()
    (reason,) = restoring.run()
    assert "docs/archive.md" in reason
    for name in objects.names[:2]:
        for each in log.parent.glob(f"{name}.*"):
            each.rename(restoring.directory / each.name)
    assert restoring.run(continue_after=frozenset({IncidentKind.SOURCE_RETENTION})) == []
    assert len(content_of(restoring.brokers.destination.log("orders", 0))) == 3 + 4


def test_archive_answers_as_a_cluster_does(restoring: Restoring) -> None:
    restoring.add(plain(3, timestamp=1_000))
    restoring.add(plain(2, base_offset=3, timestamp=5_000))
    with Cluster(restoring.source) as archive:
        topic = archive.refresh().topics["orders"]
        assert (topic.topic_id, len(topic.partitions), len(topic.partitions[0].replicas)) == (TOPIC_ID, 1, 3)
        assert archive.metadata.cluster_id == restoring.archive.id
        assert list_offsets(archive, {ORDERS: EARLIEST}) == {ORDERS: 0}
        assert list_offsets(archive, {ORDERS: LATEST}) == {ORDERS: 5}
        assert list_offsets(archive, {ORDERS: 2_000}) == {ORDERS: 3}
        assert describe_topic_configs(archive, ["orders"])["orders"]["retention.ms"].value == "1000"
        assert "nothing" in archive.refresh(["nothing"]).errors


def test_archive_shows_a_topic_that_is_described_later(restoring: Restoring) -> None:
    with Cluster(restoring.source) as archive:
        assert "later" not in archive.refresh().topics
        Archive.open(restoring.archive.store.url).describe(described(name="later"))
        assert "later" in archive.refresh(["later"]).topics


def test_archive_shows_the_newest_creation_of_a_topic(restoring: Restoring) -> None:
    restoring.add(plain(3))
    with Cluster(restoring.source) as archive:
        archive.refresh(["orders"])
        assert list_offsets(archive, {ORDERS: LATEST}) == {ORDERS: 3}
        restoring.archive.describe(replace(described(), directory_id=str(UUID(int=2)), written_ms=2))
        archive.refresh(["nothing", "orders"])  # an unknown name lets it list the topics again
        assert archive.topic_id("orders") == UUID(int=2)
        assert list_offsets(archive, {ORDERS: LATEST}) == {ORDERS: 0}


def groups_options(restoring: Restoring, until: int | None = None) -> MirrorOptions:
    return MirrorOptions(
        restoring.source,
        restoring.brokers.settings.destination,
        TopicSelection("orders"),
        group=restoring.brokers.settings.group,
        groups=".*",
        until=None if until is None else Until(until),
    )


@pytest.mark.parametrize(("until", "expected"), [(None, 4), (1_000, 1)])
def test_groups_of_an_archive_are_set_by_the_map_of_its_restore(
    restoring: Restoring, until: int | None, expected: int
) -> None:
    """One aborted record is left out, so offsets behind it are smaller by the record and its marker."""
    restoring.add(plain(1) + transaction(1, 7, ends=0) + plain(3, base_offset=3), aborted=[(7, 1)])
    assert restoring.run() == []
    write_groups(restoring.archive.store, {"billing": {ORDERS: 3}}, 1_000)
    write_groups(restoring.archive.store, {"billing": {ORDERS: 6}}, 3_000)
    report = translate_offsets(groups_options(restoring, until), apply=True, prove=True)
    with Cluster(restoring.brokers.settings.destination) as destination:
        committed = fetch_offsets(destination, "billing", [ORDERS])[ORDERS]
    assert committed.offset == expected
    rows = [each for group in report.groups for each in group.offsets]
    assert [each.exactness for each in rows] == [Exactness.EXACT]
    assert all(each.proof is not None and each.proof.is_same is not False for each in rows)


@pytest.mark.parametrize("until", [None, 999])
def test_groups_that_an_archive_does_not_have_are_refused(restoring: Restoring, until: int | None) -> None:
    if until is not None:
        write_groups(restoring.archive.store, {"billing": {ORDERS: 3}}, 1_000)
    with pytest.raises(
        ConfigError, match=r"no committed offsets" if until is None else r"1970-01-01T00:00:01"
    ):
        translate_offsets(groups_options(restoring, until))


@pytest.mark.parametrize(
    ("until", "reverse", "refused"), [(None, True, "--reverse"), (Until(offset=1), False, "--until OFFSET")]
)
def test_groups_of_an_archive_are_those_of_a_time(
    restoring: Restoring, until: Until | None, reverse: bool, refused: str
) -> None:
    with pytest.raises(ConfigError, match=refused):
        translate_offsets(replace(groups_options(restoring), until=until), reverse=reverse)


def test_groups_are_translated_between_clusters_and_from_a_directory(restoring: Restoring) -> None:
    clusters = restoring.brokers.options("orders", groups=".*")
    with pytest.raises(ConfigError, match="shoal groups has no meaning if --to"):
        translate_offsets(replace(clusters, destination=restoring.source))
    with pytest.raises(ConfigError, match="--until has no meaning if --from is a cluster"):
        translate_offsets(replace(clusters, until=Until(1)))


def test_error_that_no_check_foresees_is_a_sentence(
    restoring: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the connection breaks, as that to a broker which wants another login."""

    def unforeseen(*_: object) -> None:
        raise ValueError("nobody thought of it")

    restoring.add(plain(3))
    monkeypatch.setattr(PartitionReader, "read", unforeseen)
    (reason,) = restoring.run()
    monkeypatch.setattr(Archive, "topics", unforeseen)
    with Cluster(restoring.source) as archive, pytest.raises(DamagedObject, match="METADATA") as refused:
        archive.refresh()
    for sentence in (reason, str(refused.value)):
        assert "nobody thought of it" in sentence
        assert str(restoring.directory / "archive") in sentence


def test_groups_of_a_damaged_file_are_a_failure_with_its_name(restoring: Restoring) -> None:
    damaged = restoring.directory / "archive/groups/00000000000000001000.json"
    damaged.parent.mkdir()
    damaged.write_text(json.dumps({"format": 1, "groups": {"\ud800x": {"orders": {"0": 1}}}}))
    with Cluster(restoring.source) as archive:
        (failure,) = list_groups(archive).failures.values()
    assert damaged.name in str(failure)


def test_groups_of_an_earlier_creation_of_a_topic_are_refused(restoring: Restoring) -> None:
    """Its offsets are those of another log: the first records of the new one would be skipped."""
    options = groups_options(restoring)
    again = replace(described(), directory_id=str(UUID(int=2)), written_ms=5_000)
    write_groups(restoring.archive.store, {"billing": {ORDERS: 3}}, 1_000)
    restoring.archive.describe(again)
    with pytest.raises(ConfigError, match=rf"orders.*{again.directory_id}.*behind the archived offsets"):
        translate_offsets(options, apply=True)
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        with pytest.raises(ConfigError, match=rf"orders.*{again.directory_id}.*behind the archived offsets"):
            inspect_topics(options, source, destination)
        write_groups(restoring.archive.store, {"billing": {ORDERS: 1}}, 6_000)
        assert list(inspect_topics(options, source, destination).topics) == ["orders"]


def test_restore_lets_groups_follow_if_the_archive_has_none(restoring: Restoring) -> None:
    options = groups_options(restoring)
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        assert list(inspect_topics(options, source, destination).topics) == ["orders"]


def test_time_before_a_topic_was_created_again_is_refused(restoring: Restoring) -> None:
    brokers = restoring.brokers.settings
    again = replace(described(), directory_id=str(UUID(int=2)), written_ms=5_000)

    def inspect(until_ms: int) -> Prepared:
        options = MirrorOptions(
            restoring.source, brokers.destination, TopicSelection("orders"), until=Until(until_ms)
        )
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return inspect_topics(options, source, destination)

    assert list(inspect(0).topics) == ["orders"], "its only creation"
    restoring.archive.describe(again)
    restoring.archive.describe(replace(again, partitions=2, written_ms=9_000))
    write_groups(restoring.archive.store, {"billing": {ORDERS: 3}}, 1_000)
    source, destination = restoring.source, brokers.destination
    until = Extent(until=Until(4_999))
    for use in (
        lambda: inspect(4_999),
        lambda: verify(source, destination, {"orders": "orders"}, extent=until),
        lambda: translate_offsets(groups_options(restoring, 4_999)),
    ):
        with pytest.raises(ConfigError, match=rf"orders.*{again.directory_id}.*1970-01-01T00:00:05"):
            use()
    assert list(inspect(5_000).topics) == ["orders"]
    assert verify(source, destination, {"orders": "orders"}, extent=Extent(until=Until(5_000))).partitions


# A slow disk


class SlowFile:
    """A file of a disk that takes long for each piece."""

    def __init__(self, file: StoredFile, seconds: float) -> None:
        self._file = file
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_into(self, position: int, room: memoryview) -> int:
        time.sleep(self._seconds)
        return self._file.read_into(position, room)


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    def opened(objects: PartitionObjects, name: ObjectName, suffix: str) -> StoredFile:
        file = objects.store.open(f"{objects.path}/{name}.{suffix}")
        return cast(StoredFile, SlowFile(file, seconds)) if suffix == "log" else file

    monkeypatch.setattr(PartitionObjects, "open", opened)


def test_disk_that_takes_longer_than_a_request_may_last_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Archiving.started(str(tmp_path / "archive")) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        archiving.to_the_end()
        slow_down(monkeypatch, 3.0)
        restoring = archiving.restoring.with_clients("source", request_timeout_ms=1_500)
        assert restoring.start([CopyRange("topic", 0, "topic", 0, 3)]).result().complete
        assert restoring.copied() == history.committed


@pytest.mark.long
def test_times_in_many_objects_of_a_slow_disk_are_found_by_several_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [TopicPartition("topic", number) for number in range(12)]
    with Archiving.started(str(tmp_path / "archive")) as archiving:
        for number, history in enumerate(archiving.brokers.topic(partitions=len(partitions))):
            history.plain(3)
            archiving.to_the_end(number)
        slow_down(monkeypatch, 0.9)
        source = archiving.restoring.with_clients("source", request_timeout_ms=7_000).settings.source
        with Cluster(source) as cluster:
            cluster.refresh(["topic"])
            assert set(ask_offsets(cluster, partitions, 0, 60.0).values()) == {0}
