"""Options of ``format("shoal")``: Spark's Kafka connector's names, and refusals that name the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.client.metadata import TopicMetadata
from shoal.client.offsets import EARLIEST, LATEST
from shoal.client.security import PasswordLogin
from shoal.errors import ConfigError
from shoal.spark.options import ReadOptions, WriteOptions
from shoal.spark.rows import RowKind
from shoal.topic_partition import TopicPartition
from tests.snapshots import Texts

SOURCE = {"kafka.bootstrap.servers": "source:9092"}
SINK = {"kafka.bootstrap.servers": "destination:9092"}


def read(streaming: bool = False, **options: str) -> ReadOptions:
    return ReadOptions.parse({**SOURCE, "subscribe": "orders", **options}, streaming=streaming)


def test_batch_reads_from_the_earliest_to_the_latest_offset_with_bytes() -> None:
    options = read()
    assert (options.starting.timestamp_ms, options.ending.timestamp_ms) == (EARLIEST, LATEST)
    assert options.rows is RowKind.BYTES


def test_stream_starts_at_the_latest_offset_by_default() -> None:
    assert read(streaming=True).starting.timestamp_ms == LATEST


def test_option_names_ignore_case() -> None:
    assert read(STARTINGOFFSETS="latest").starting.timestamp_ms == LATEST


def test_offsets_of_partitions_are_read_from_spark_s_json() -> None:
    starting = read(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert starting.named == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2}
    assert starting.timestamp_ms == EARLIEST


def test_assign_is_read_as_partitions_in_order() -> None:
    options = ReadOptions.parse({**SOURCE, "assign": '{"orders": [2, 0]}'}, streaming=False)
    assert options.assigned == (TopicPartition("orders", 0), TopicPartition("orders", 2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "a", "assign": "{}"},
        {"subscribe": "a", "startingOffset": "earliest"},
        {"subscribe": "a", "startingOffsets": "soon"},
        {"subscribe": "a", "rows": "pointers"},
        {"subscribe": "a", "minPartitions": "0"},
        {"subscribe": "a", "startingTimestamp": "9" * 20},
        {"subscribe": "a", "startingTimestamp": "-1"},
        {"subscribePattern": "("},
        {"subscribe": "a", "kafka.security.protocol": "SASL_SSL"},
    ],
)
def test_invalid_option_is_named(options: dict[str, str], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        ReadOptions.parse({**SOURCE, **options}, streaming=False)
    texts(str(refused.value))


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp"])
def test_stream_with_ending_offsets_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=rf"option.*{option}"):
        read(streaming=True, **{option: "1"})


def test_stream_begins_at_the_earliest_of_given_times() -> None:
    assert read(streaming=True, startingTimestamp="0").starting.timestamp_ms == 0


def test_options_without_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        ReadOptions.parse({"subscribe": "a"}, streaming=False)


def write(**options: Any) -> WriteOptions:
    return WriteOptions.parse({**SINK, **options})


@pytest.mark.parametrize("options", [{"allowGaps": "on"}, {"group": "g"}])
def test_write_option_error_has_spark_s_spelling(options: dict[str, str], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        write(**options)
    texts(str(refused.value))


def test_unknown_option_of_a_sink_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowgap"):
        write(allowGap="true")


def test_topics_are_renamed_as_by_the_command_line() -> None:
    assert write(rename=r"(.*)=dr.\1").names.destination_of("orders") == "dr.orders"


def test_properties_file_is_read_and_options_take_precedence(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    jaas = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hidden-7f";'
    )
    file.write_text(
        "bootstrap.servers=elsewhere:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={jaas}\n"
    )
    file.chmod(0o600)
    source = read(streaming=False, **{"kafka.config.file": str(file)}).source
    assert source.security is not None
    assert source.security.login == PasswordLogin("PLAIN", "a", "hidden-7f")
    assert source.servers == "source:9092"
    assert "hidden-7f" not in repr(source)


def test_missing_properties_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.config\.file.*/missing"):
        read(streaming=False, **{"kafka.config.file": "/missing"})


def test_directory_stands_in_place_of_a_cluster_and_selects_all_topics() -> None:
    options = ReadOptions.parse({"path": "/data/archive"}, streaming=False)
    assert options.source.servers == "/data/archive"
    assert options.topics is not None
    assert options.topics.matches(TopicMetadata("orders", None, False, {}))


@pytest.mark.parametrize("path", ["archive", "data/archive"])
def test_relative_directory_needs_no_dot(path: str) -> None:
    assert ReadOptions.parse({"path": path}, streaming=False).source.servers == f"./{path}"


@pytest.mark.parametrize(
    "options",
    [{**SOURCE, "path": "/data"}, {"path": "s3://user:secret@bucket/kafka"}, {"path": "ftp://host/kafka"}],
)
def test_directory_that_cannot_be_read_is_named(options: dict[str, str], texts: Texts) -> None:
    with pytest.raises(ConfigError) as raised:
        ReadOptions.parse(options, streaming=False)
    texts(str(raised.value))
    assert "secret" not in str(raised.value)
