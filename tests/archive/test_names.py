"""Names in an archive: topics, partitions, and topic ids."""

from __future__ import annotations

import uuid

import pytest

from shoal.archive.names import (
    UnsafeName,
    check_topic,
    read_partition,
    topic_directory_id,
    topic_id_of_directory,
    topic_path,
)

ID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize("name", ["a", "a.b_c-D", "..a", "x" * 249])
def test_check_topic_takes_names_of_kafka(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "a\0", "ä", "a\n", "x" * 250, "a b", "%2e"]
)
def test_check_topic_refuses_names_that_kafka_refuses(name: str) -> None:
    with pytest.raises(UnsafeName):
        check_topic(name)


@pytest.mark.parametrize(
    "directory", ["..", "x", "", ID.upper().replace("1", "A"), "{" + ID + "}", "no-id-", "no-id-../x"]
)
def test_topic_path_refuses_directories_that_are_no_topic_id(directory: str) -> None:
    with pytest.raises(UnsafeName):
        topic_path("orders", directory)


@pytest.mark.parametrize("number", ["-1", "01", "1x", "", "..", str(2**31), "١"])
def test_read_partition_refuses_text_that_is_no_number(number: str) -> None:
    with pytest.raises(UnsafeName):
        read_partition("orders", number)


def test_topic_directory_id_of_a_cluster_without_topic_ids_is_the_clusters() -> None:
    assert topic_directory_id(None, "abc_-9") == "no-id-abc_-9"
    assert topic_id_of_directory("no-id-abc_-9") is None
    assert topic_id_of_directory(topic_directory_id(uuid.UUID(ID), "abc")) == uuid.UUID(ID)


@pytest.mark.parametrize("cluster_id", [None, "", "../x", "a/b", "x" * 65])
def test_topic_directory_id_refuses_a_cluster_id_that_is_no_name(cluster_id: str | None) -> None:
    with pytest.raises(UnsafeName):
        topic_directory_id(None, cluster_id)
