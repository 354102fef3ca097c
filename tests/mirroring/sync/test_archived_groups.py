"""The committed offsets of groups, from a cluster to an archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from shoal.archive.description import now_ms
from shoal.archive.directory import Archive
from shoal.archive.groups import read_groups
from shoal.client.config import ArchiveConfig
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.sync.archived_groups import GroupArchive
from shoal.mirroring.sync.report import Action
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.archive.archives import described
from tests.mirroring.sync.conftest import Groups, row_of


class Archiving:
    """The groups of a source, and an archive."""

    def __init__(self, groups: Groups, directory: Path, selection: str = ".*") -> None:
        self.groups = groups
        self.archive = Archive.open(str(directory), creates=True)
        self.store = self.archive.store
        own_group = groups.two.settings.group
        destination = ArchiveConfig.at_directory("destination", str(directory), {}, "the test")
        self.rounds = GroupArchive(groups.source, destination, GroupSelection(selection), own_group)

    def files(self) -> int:
        return len(self.store.names("groups"))


@pytest.fixture
def archiving(groups: Groups, tmp_path: Path) -> Archiving:
    groups.two.topic()
    return Archiving(groups, tmp_path / "archive")


def test_round_archives_the_offsets_of_mirrored_topics_by_their_names_there(
    groups: Groups, archiving: Archiving
) -> None:
    groups.two.source.create_topic("other", 1)
    groups.commit("source", "g", 4)
    groups.commit("source", "g", 1, topic="other")
    report = archiving.rounds.round({"topic": "renamed"})
    assert read_groups(archiving.store) == {"g": {TopicPartition("renamed", 0): 4}}
    rows = {each.partition.topic: (each.action, each.exactness) for each in report.groups[0].offsets}
    assert rows == {"topic": (Action.WRITTEN, Exactness.EXACT), "other": (Action.NOT_MIRRORED, None)}


def test_round_writes_a_file_only_if_an_offset_has_changed(groups: Groups, archiving: Archiving) -> None:
    groups.commit("source", "g", 4)
    archiving.rounds.round(groups.topics)
    assert row_of(archiving.rounds.round(groups.topics)).action is Action.UNCHANGED
    assert archiving.files() == 1
    groups.commit("source", "g", 2)
    archiving.rounds.round(groups.topics)
    assert archiving.files() == 2
    assert read_groups(archiving.store) == {"g": {TopicPartition("topic", 0): 2}}


def test_later_run_writes_nothing_if_nothing_has_changed(
    groups: Groups, archiving: Archiving, tmp_path: Path
) -> None:
    groups.commit("source", "g", 4)
    archiving.rounds.round(groups.topics)
    Archiving(groups, tmp_path / "archive").rounds.round(groups.topics)
    assert archiving.files() == 1


def test_group_whose_coordinator_fails_keeps_its_archived_offsets(
    groups: Groups, archiving: Archiving
) -> None:
    groups.commit("source", "g", 4)
    archiving.rounds.round(groups.topics)
    groups.two.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    report = archiving.rounds.round(groups.topics)
    assert report.groups[0].has_failed
    assert read_groups(archiving.store) == {"g": {TopicPartition("topic", 0): 4}}
    assert archiving.files() == 1


@pytest.mark.parametrize("is_another_run", [False, True])
def test_group_whose_coordinator_fails_keeps_no_offsets_of_an_earlier_creation(
    groups: Groups, archiving: Archiving, tmp_path: Path, is_another_run: bool
) -> None:
    """A newer file would claim that they are of the new log, and consumers would skip its first records."""
    groups.two.source.create_topic("other", 1)
    for topic in ("topic", "other"):
        archiving.archive.describe(replace(described(name=topic), written_ms=now_ms()))
        groups.commit("source", "g", 4, topic=topic)
    names = {"topic": "topic", "other": "other"}
    archiving.rounds.round(names)
    again = replace(described(name="topic"), directory_id=str(UUID(int=2)), written_ms=now_ms() + 1)
    archiving.archive.describe(again)
    groups.two.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    if is_another_run:
        archiving = Archiving(groups, tmp_path / "archive")
    archiving.rounds.round(names)
    assert read_groups(archiving.store) == {"g": {TopicPartition("other", 0): 4}}
