import pickle
from dataclasses import replace

import pytest

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.connection import Address
from shoal.client.offsets import EARLIEST, LATEST
from shoal.errors import ConfigError
from shoal.mirroring.options import MirrorOptions, Start, default_group, parse_bytes
from shoal.mirroring.topics import TopicSelection

OPTIONS = MirrorOptions(
    ClientConfig("source", (Address("a", 1),)),
    ClientConfig("destination", (Address("b", 2),)),
    TopicSelection("orders"),
)

EVERYTHING = MirrorOptions(
    ClientConfig(
        "source",
        (Address("a", 1), Address("::1", 2)),
        "me",
        1234,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
    ),
    ClientConfig("destination", (Address("b", 2),), "you", 5678),
    TopicSelection("orders.*", "x", r"(.*)=y\1"),
    group="g",
    once=True,
    start=Start(1_700_000_000_000),
    replication_factor=2,
    fetch_buffer_bytes=1 << 20,
    commit_interval_ms=100,
    allow_nonempty=True,
    master="local[2,4]",
    checkpoint="somewhere",
    spark_conf=(("spark.executor.memoryOverhead", "1g"), ("spark.x", "a=b,c")),
)


@pytest.mark.parametrize("options", [OPTIONS, EVERYTHING])
def test_options_can_be_pickled(options):
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"commit_interval_ms": 0}, "--commit-interval-ms 0: not above 0"),
        ({"replication_factor": 0}, "--replication-factor 0: not between 1 and 32767"),
        ({"fetch_buffer_bytes": 1000}, "--fetch-buffer-bytes 1000: less than"),
        ({"group": ""}, "--group: the name of a group cannot be empty"),
    ],
)
def test_a_mistake_is_named(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(OPTIONS, **change)


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_a_start_is_a_name_or_a_time(text, timestamp_ms):
    assert Start.parse(text) == Start(timestamp_ms)


@pytest.mark.parametrize("text", ["soon", "", "-5", "1969-12-31T23:59:59Z", "2023-13-01"])
def test_anything_else_is_no_start(text):
    with pytest.raises(ConfigError, match=f"--start {text}: neither earliest nor latest nor a time"):
        Start.parse(text)


@pytest.mark.parametrize("start", [Start(), Start(LATEST), Start(0), Start(1_700_000_000_123)])
def test_a_start_is_parsed_from_its_text(start):
    assert Start.parse(str(start)) == start


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("16k", 16384), ("16m", 16 << 20), ("1G", 1 << 30), ("16mb", 16 << 20)]
)
def test_sizes_are_written_as_in_spark(text, size):
    assert parse_bytes("fetch-buffer-bytes", text) == size


@pytest.mark.parametrize("text", ["", "m", "1.5m", "-1", "1t"])
def test_anything_else_is_no_size(text):
    with pytest.raises(ConfigError, match="--fetch-buffer-bytes"):
        parse_bytes("fetch-buffer-bytes", text)


def test_rules_are_the_same_for_ever():
    # They are stored in committed pairs: another digest for the same rules
    # would make every running mirror refuse its own position.
    assert OPTIONS.rules() == "30869fdfe413a2ba"


def test_rules_follow_the_isolation_level():
    uncommitted = replace(OPTIONS.source, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    assert replace(OPTIONS, source=uncommitted).rules() != OPTIONS.rules()


def test_rules_do_not_follow_selection_start_or_speed():
    other = replace(
        EVERYTHING, source=replace(EVERYTHING.source, isolation_level=IsolationLevel.READ_COMMITTED)
    )
    assert other.rules() == OPTIONS.rules()


def test_the_default_group_is_named_after_both_clusters():
    assert default_group("S1", "D2") == "shoal.S1.D2"


@pytest.mark.parametrize(("ids", "side"), [((None, "D"), "source"), (("S", None), "destination")])
def test_a_cluster_without_an_id_wants_a_group(ids, side):
    with pytest.raises(ConfigError, match=f"the {side} cluster has no id .* --group"):
        default_group(*ids)
