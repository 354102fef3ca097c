"""The file of an archive with the offsets of groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.archive.description import DamagedObject
from shoal.archive.groups import check_time, read_groups, write_groups
from shoal.archive.store import open_store
from shoal.errors import ConfigError
from shoal.topic_partition import TopicPartition

BILLING = {"billing": {TopicPartition("orders", 0): 3, TopicPartition("orders", 12): 0}}
LATER = {"billing": {TopicPartition("orders", 0): 9}, "audit": {TopicPartition("returns", 0): 1}}


def test_file_of_groups_has_the_documented_fields(tmp_path: Path) -> None:
    write_groups(open_store(str(tmp_path)), BILLING, 1_000)
    (file,) = (tmp_path / "groups").iterdir()
    assert file.name == "00000000000000001000.json"
    assert json.loads(file.read_bytes()) == {
        "format": 1,
        "groups": {"billing": {"orders": {"0": 3, "12": 0}}},
    }


@pytest.mark.parametrize(
    "groups",
    [
        None,
        [],
        {"g": 1},
        {"g": {"orders": [1]}},
        {"g": {"../orders": {"0": 1}}},
        {"g": {"orders": {"x": 1}}},
        {"g": {"orders": {"0": -1}}},
        {"g": {"orders": {"0": True}}},
        {"g": {"orders": {"0": 2**63}}},
        {"\ud800x": {"orders": {"0": 1}}},
    ],
)
def test_file_of_groups_of_another_form_is_damaged(tmp_path: Path, groups: object) -> None:
    (tmp_path / "groups").mkdir()
    file = tmp_path / "groups/00000000000000001000.json"
    file.write_text(json.dumps({"format": 1, "groups": groups}))
    with pytest.raises(DamagedObject, match=file.name):
        read_groups(open_store(str(tmp_path)))


@pytest.mark.parametrize("time", ["9" * 20, "00000253402300800000"])
def test_file_behind_the_last_year_is_none_of_groups(tmp_path: Path, time: str) -> None:
    (tmp_path / "groups").mkdir()
    (tmp_path / f"groups/{time}.json").write_text('{"format": 1, "groups": {}}')
    (tmp_path / "archive.json").write_text('{"format": 1, "id": "a"}')
    store = open_store(str(tmp_path))
    with pytest.raises(ConfigError, match="no committed offsets of consumer groups"):
        check_time(store, 5_000)
    write_groups(store, BILLING, 1_000)
    assert read_groups(store) == BILLING
