"""The options of a mirror: texts and values, the rules of copies, the group's default name."""

import math
import pickle
import re
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.offsets import EARLIEST, LATEST
from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import copy_rules
from shoal.mirroring.model.incidents import Delivery
from shoal.mirroring.model.options import MirrorOptions, checkpoint_name, default_group
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import Start
from shoal.net.address import Address
from shoal.option_values import parse_bytes, parse_listen
from tests.snapshots import Texts

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
    refresh_s=60,
    metrics=Address("::1", 9100),
    ui=Address("127.0.0.1", 0),
    report="run.html",
    master="local[2,4]",
    checkpoint="somewhere",
    conf=(("spark.executor.memoryOverhead", "1g"), ("spark.x", "a=b,c")),
    fetch_buffer_bytes=1 << 20,
)


@pytest.mark.parametrize("options", [OPTIONS, EVERYTHING])
def test_options_can_be_pickled(options: MirrorOptions) -> None:
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    "change",
    [
        {"replication_factor": 0},
        {"fetch_buffer_bytes": 1000},
        {"fetch_buffer_bytes": (1 << 30) + 1},
        {"max_in_flight": 0},
        {"max_in_flight": 6},
        {"http_token_file": "token"},
        {"conf": (("foo", "bar"),)},
        {"adopt": True, "delivery": Delivery.AT_LEAST_ONCE},
        {"refresh_s": 0.9},
        {"refresh_s": 90_000.0},
        {"refresh_s": math.inf},
        {"refresh_s": math.nan},
        {"refresh_s": "1_0"},
        {"refresh_s": "\u0663"},
        {"fetch_buffer_bytes": "\u0663m"},
        {"metrics": Address("localhost", 1), "ui": Address("localhost", 1)},
        {"report": ""},
        {"group": ""},
        {"groups": "*"},
        {"groups": ""},
        {"segment_bytes": 1 << 20},
        {"segment_s": 5.0},
    ],
)
def test_invalid_option_is_named(change: dict[str, Any], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(OPTIONS, **change)
    texts(str(refused.value))


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
        ("1970-01-01", 0),
        ("0", 0),
        ("100000000000", 100_000_000_000),
        ("253402300799999", 253_402_300_799_999),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999),
    ],
)
def test_start_is_parsed_as_name_or_time(text: str, timestamp_ms: int) -> None:
    assert Start.parse("start", text) == Start(timestamp_ms)


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "", "-5", "1969-12-31T23:59:59Z", "2023-13-01", "253402300800000", "99999999999999999999"),
        *("9" * 5000, "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+14:00"),
        *("1", "2026", "20260131", "99999999999"),
    ],
)
def test_invalid_start_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"'{re.escape(text)}'"):
        Start.parse("start", text)


@pytest.mark.parametrize("start", [Start(), Start(LATEST), Start(0), Start(1_700_000_000_123)])
def test_start_is_parsed_from_its_text(start: Start) -> None:
    assert Start.parse("start", str(start)) == start


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("16k", 16384), ("16m", 16 << 20), ("1G", 1 << 30), ("16mb", 16 << 20)]
)
def test_sizes_are_parsed_as_in_spark(text: str, size: int) -> None:
    assert parse_bytes("fetch_buffer_bytes", text) == size


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9100", Address("127.0.0.1", 9100)),
        ("[::1]:9100", Address("::1", 9100)),
        ("mirror.example:0", Address("mirror.example", 0)),
        ("[::]:0", Address("::", 0)),
    ],
)
def test_listen_address_is_parsed_as_host_and_port(text: str, address: Address) -> None:
    assert parse_listen("metrics", text) == address


@pytest.mark.parametrize(
    "text", ["", "9100", "localhost", "localhost:", "localhost:65536", "::1:9100", "a:1,b:2", "a:00", "a:-1"]
)
def test_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{re.escape(text)}'.*HOST:PORT"):
        parse_listen("metrics", text)


def test_rules_have_a_literal_value() -> None:
    # They are stored in committed positions: another digest for the same rules
    # would make every running mirror refuse its own position.
    assert copy_rules(OPTIONS.source) == "30869fdfe413a2ba"


def test_rules_depend_on_the_isolation_level() -> None:
    uncommitted = replace(OPTIONS.source, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    assert copy_rules(uncommitted) != copy_rules(OPTIONS.source)


def test_default_group_is_named_after_both_clusters() -> None:
    assert default_group("S1", "D2") == "shoal.S1.D2"


@pytest.mark.parametrize(("ids", "side"), [((None, "D"), "source"), (("S", None), "destination")])
def test_default_group_without_cluster_id_is_refused(ids: tuple[str | None, str | None], side: str) -> None:
    with pytest.raises(ConfigError, match=rf"required.*{side}"):
        default_group(*ids)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("shoal.S1_x-.D2", "shoal.S1_x-.D2"),
        ("/proc/x", "%2Fproc%2Fx"),
        ("../../x", "..%2F..%2Fx"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("a b\0é", "a%20b%00%C3%A9"),
        ("100%", "100%25"),
        ("\udcff", "%FF"),
    ],
)
def test_group_directory_is_one_readable_path_component(group: str, name: str) -> None:
    assert checkpoint_name(group) == name


def test_long_groups_have_distinct_directory_names() -> None:
    groups = ["g" * 200, "g" * 201, "g" * 202, "g" * 10_000, "é" * 200]
    names = [checkpoint_name(group) for group in groups]
    assert len({*names, *map(checkpoint_name, names)}) == 9
    assert names[0] == groups[0]
    assert {len(name) for name in names} == {200}


def made(**options: Any) -> MirrorOptions:
    return MirrorOptions(OPTIONS.source, OPTIONS.destination, OPTIONS.topics, **options)


def test_mirror_options_read_texts_and_python_values_alike() -> None:
    texts = made(
        fetch_buffer_bytes="8m",
        delivery="at-least-once",
        refresh_s="2",
        continue_after="source-reset",
        start="latest",
        metrics="127.0.0.1:9100",
        conf=["spark.a=1"],
    )
    values = made(
        fetch_buffer_bytes=8 << 20,
        delivery=Delivery.AT_LEAST_ONCE,
        refresh_s=2,
        continue_after=["source-reset"],
        start=Start(LATEST),
        metrics=Address("127.0.0.1", 9100),
        conf={"spark.a": "1"},
    )
    assert texts == values != OPTIONS


def test_mirror_options_read_clusters_as_servers_or_properties() -> None:
    properties: Any = {"bootstrap.servers": "a:1", "fetch.min.bites": "1"}
    servers: Any = "b:2"
    topics: Any = "orders"
    options = MirrorOptions(properties, servers, topics)
    assert options == OPTIONS
    assert "fetch.min.bites" in options.ignored[0]
