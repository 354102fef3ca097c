"""
The one table of differences between servers.

A test that a row names must fail on the row's servers: a difference that goes away is red. Whatever differs
and has no row is a defect, of the embedded broker or of the test.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

import pytest

from tests.conformance.servers import Server

__all__ = ["DIFFERENCES", "Difference", "difference", "expected_failure"]


class Difference(NamedTuple):
    """
    A difference.

    Attributes:
        servers: The names of the servers, as patterns with ``*``.
        what: The behavior of these servers.
        why: The reason.
        tests: The tests that fail, without the server: ``test_fetch.py::test_name[parameters]``.

    """

    servers: tuple[str, ...]
    what: str
    why: str
    tests: tuple[str, ...]


_CODECS = ("gzip", "snappy", "lz4", "zstd")
_BEFORE_4 = ("kafka-3.*", "kafka-2.*")
_OLDEST = ("kafka-2.8.2",)


def _with_codecs(*cases: str, codecs: Iterable[str] = _CODECS) -> tuple[str, ...]:
    return tuple(f"{case}, {codec}" for case in cases for codec in codecs)


def _cases(*cases: str) -> tuple[str, ...]:
    test = "test_produce_cases.py::test_case_has_kafka_s_response_and_log"
    return tuple(f"{test}[{case}]" for case in cases)


def _each(test: str, *parameters: object) -> tuple[str, ...]:
    return tuple(f"{test}[{each}]" for each in parameters)


DIFFERENCES = [
    Difference(
        ("kafka-4.4.0", "agent-4.4.0"),
        "refuses a compressed record of negative length",
        "Kafka 4.2.2 and 4.4.0 do, Kafka 4.1 and 4.3 do not; the embedded broker follows 4.1",
        _cases(*_with_codecs("a record of negative length")),
    ),
    Difference(
        ("gateway", *_BEFORE_4),
        "announces and serves the versions that Kafka 4 removed",
        "Kafka 4.0 removed them (KIP-896), and old clients are why there is a gateway",
        (
            "test_api_versions.py::test_versions_that_kafka_4_removed_are_not_announced",
            *_each(
                "test_api_versions.py::test_unserved_api_or_version_closes_the_connection",
                *("PRODUCE-2", "FETCH-3", "LIST_OFFSETS-0", "OFFSET_COMMIT-1", "OFFSET_FETCH-0"),
                *("CREATE_TOPICS-1", "OFFSET_FOR_LEADER_EPOCH-1", "DESCRIBE_CONFIGS-0"),
            ),
        ),
    ),
    Difference(
        _BEFORE_4,
        "refuses a zstd topic to Fetch before v10",
        "Kafka 4.0 looks no more at the codec, as it converts nothing down",
        ("test_fetch.py::test_zstd_topic_is_fetched_by_readers_from_before_zstd[9]",),
    ),
    Difference(
        _BEFORE_4,
        "announces and serves DeleteTopics v0",
        "Kafka 4.0 removed it (KIP-896); the gateway serves no version",
        _each("test_api_versions.py::test_unserved_api_or_version_closes_the_connection", "DELETE_TOPICS-0"),
    ),
    Difference(
        ("gateway",),
        "serves no APIs of administrators but CreateTopics",
        "clients without a login act as the upstream user",
        _each(
            "test_api_versions.py::test_versions_of_shoal_s_client_are_served",
            *("CREATE_PARTITIONS", "INCREMENTAL_ALTER_CONFIGS"),
            *("DESCRIBE_PRODUCERS", "DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS"),
        ),
    ),
    Difference(
        ("gateway",),
        "answers ApiVersions without a look at the client's software",
        "the name is for the broker's metrics, and the gateway does not pass it on",
        ("test_api_versions.py::test_invalid_client_software_name_is_refused",),
    ),
    Difference(
        ("gateway",),
        "serves Produce up to v9, which lists topics by name and adds no partition to a transaction",
        "newer answers have addresses of brokers (KIP-951)",
        (
            "test_topic_ids.py::test_batch_produced_by_id_is_fetched_by_id",
            "test_topic_ids.py::test_id_of_no_topic_is_unknown",
            "test_topic_ids.py::test_id_of_a_former_topic_is_unknown",
            "test_topic_ids.py::test_session_keeps_the_topic_ids_of_its_start",
            "test_transactions.py::test_produce_v12_adds_the_partition",
        ),
    ),
    Difference(
        _BEFORE_4,
        "allows any time in the future, and segments below 1 MiB",
        "Kafka 4.0 changed these limits (KIP-1030)",
        (
            "test_topics.py::test_unknown_setting_or_invalid_value_is_refused[segment.bytes-1024]",
            "test_topics.py::test_defaults_are_kafka_s[message.timestamp.after.max.ms-3600000]",
            *_cases(
                *_with_codecs(
                    "two hours ahead", "one record of three is two hours ahead", codecs=("none", "lz4")
                ),
                *_with_codecs("one record without a key, another two hours ahead", codecs=("none", *_CODECS)),
            ),
        ),
    ),
    Difference(
        _OLDEST,
        "refuses a malformed record in a compressed batch with another error, or accepts it",
        "later versions read compressed records in another way",
        _cases(
            *_with_codecs(
                "a record longer than the batch",
                "a record shorter than its fields",
                "a record of negative length",
                "a length without end",
            ),
            *(f"a record of negative length, {codec}, where it is recompressed" for codec in _CODECS),
            "a payload that is half of its gzip",
            "bytes after the end of the zstd stream",
        ),
    ),
    Difference(
        _OLDEST,
        "answers CORRUPT_MESSAGE to a length that is shorter than a header",
        "it compares the length before it reads the header",
        _cases("a length shorter than a header"),
    ),
    Difference(
        _OLDEST,
        "refuses a batch without the LogAppendTime bit of its topic with INVALID_TIMESTAMP",
        "later versions set the bit",
        _cases(*_with_codecs("the LogAppendTime bit is cleared", codecs=("none", "lz4"))),
    ),
    Difference(
        _OLDEST,
        "lacks the settings of a range of timestamps",
        "they came with 3.6 (KIP-937)",
        (
            "test_topics.py::test_defaults_are_kafka_s[message.timestamp.before.max.ms-9223372036854775807]",
            *_cases(
                *_with_codecs(
                    "further ahead than the topic allows",
                    "older than the topic allows",
                    "no timestamps, whatever the range",
                    codecs=("none", "lz4"),
                )
            ),
        ),
    ),
    Difference(
        _OLDEST,
        "lacks producer.id.expiration.ms",
        "it came with 3.4",
        ("test_topics.py::test_broker_s_settings_are_described",),
    ),
    Difference(
        _OLDEST,
        "writes for a transactional id that has not added the partition or the group",
        "the check came with 3.6 (KIP-890)",
        (
            *_cases("a transactional id that nobody has"),
            "test_transactions.py::test_producer_id_of_another_transactional_id_is_refused",
            "test_transactions.py::test_transactional_offsets_of_a_group_not_added_are_refused",
        ),
    ),
    Difference(
        _OLDEST,
        "takes the special timestamp -3 for a time",
        "it came with 3.0 (KIP-734)",
        (
            "test_offsets.py::test_timestamp_finds_the_first_record_not_earlier[-3-expected7]",
            "test_offsets.py::test_special_timestamp_that_its_version_lacks_is_unsupported[6--3]",
            *_each("test_offsets.py::test_timestamp_finds_a_record_inside_a_compressed_batch", *range(5)),
        ),
    ),
    Difference(
        _OLDEST,
        "answers some invalid requests about topics with other errors, and deletes a topic later",
        "its controller is on ZooKeeper",
        (
            "test_topics.py::test_topic_repeated_in_a_request_is_not_created",
            "test_topics.py::test_recreated_topic_has_another_id",
            *_each(
                "test_topics.py::test_unknown_setting_or_invalid_value_is_refused",
                *("retention.ms-soon", "retention.ms--2", "compression.type-rar", "cleanup.policy-burn"),
                *("message.timestamp.type-Later", "max.message.bytes-99999999999"),
                "min.cleanable.dirty.ratio-1.5",
            ),
        ),
    ),
]


def difference(node_id: str, server: Server) -> Difference | None:
    """Return the row of a test on a server, if there is one."""
    path, _, parameters = node_id.partition("[")
    rest = parameters.removesuffix("]").removeprefix(server.name).removeprefix("-")
    test = path.rpartition("/")[2] + (f"[{rest}]" if rest else "")
    for row in DIFFERENCES:
        if test in row.tests and any(fnmatchcase(server.name, name) for name in row.servers):
            return row
    return None


def expected_failure(row: Difference) -> pytest.MarkDecorator:
    """Return the mark of a test that a row names."""
    # A test unpacks the one answer that it expects: that there is none, or two, is a ValueError.
    failures = (AssertionError, ValueError)
    return pytest.mark.xfail(strict=True, raises=failures, reason=f"{row.what}: {row.why}")
