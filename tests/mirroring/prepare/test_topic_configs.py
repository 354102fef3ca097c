"""Configurations of a topic and its copy: differences that matter, and those of a new copy."""

import re

import pytest

from shoal.client.admin import ConfigEntry
from shoal.mirroring.prepare.topic_configs import TopicState, compare, configs_of_copy
from tests.snapshots import Texts

FOREVER = str(2**63 - 1)

#: Of Kafka 4.4.
DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
}


def state(changes: dict[str, str] | None = None, replicas: int = 1) -> TopicState:
    """A topic with Kafka's defaults and some configs set on it."""
    entries = {name: ConfigEntry(value, set_on_topic=False) for name, value in DEFAULTS.items()}
    entries |= {name: ConfigEntry(value, set_on_topic=True) for name, value in (changes or {}).items()}
    return TopicState(replicas, entries)


def old(**changes: str) -> TopicState:
    """A topic of Kafka before 3.6, which has one timestamp limit and none by default."""
    configs = {**state().configs, "message.timestamp.difference.max.ms": ConfigEntry(FOREVER, False)}
    del configs["message.timestamp.after.max.ms"], configs["message.timestamp.before.max.ms"]
    return TopicState(1, configs)


def errors(source: TopicState, destination: TopicState) -> list[str]:
    return [finding.text for finding in compare(source, destination) if finding.fatal]


def warnings(source: TopicState, destination: TopicState) -> list[str]:
    return [finding.text for finding in compare(source, destination) if not finding.fatal]


APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
DAY = {"message.timestamp.before.max.ms": "86400000"}
COMPACTED = {"cleanup.policy": "compact"}
BOTH_POLICIES = {"cleanup.policy": "compact,delete"}
NO_POLICY = {"cleanup.policy": ""}  # since Kafka 4.2: records stay for ever
ZSTD = {"compression.type": "zstd"}
TIMES_OF_COPYING = "message.timestamp.type is LogAppendTime: every record gets the time of its copying"
SHORTER = "retention.ms is 604800000 and the source keeps more"


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        pytest.param(state(), state(), id="equal"),
        pytest.param(state({"max.message.bytes": "1000"}), state(), id="larger max.message.bytes"),
        pytest.param(state(ZSTD), state(ZSTD), id="codec of both sides"),
        pytest.param(state(COMPACTED), state(COMPACTED), id="compaction on both sides"),
        pytest.param(state(NO_POLICY), state(NO_POLICY), id="no cleanup on both sides"),
        pytest.param(state(), state(NO_POLICY), id="no cleanup of the copy"),
        pytest.param(state(APPEND_TIME), state(), id="append times of the source"),
        *(
            pytest.param(
                state({"retention.bytes": "5", **BOTH_POLICIES}),
                state({"retention.bytes": "5", **BOTH_POLICIES, **retention}),
                id=f"{name} retention",
            )
            for name, retention in (("longer", {"retention.ms": "-1"}), ("equal", {}))
        ),
    ],
)
def test_suitable_destination_has_no_finding(source: TopicState, destination: TopicState) -> None:
    assert list(compare(source, destination)) == []


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (state(), state(APPEND_TIME)),
        (state(APPEND_TIME), state(APPEND_TIME)),
        (state(DAY), state(DAY)),
        (state(), state({"retention.bytes": "1000"})),
        (state({"retention.ms": "604800001"}), state()),
        (state({"retention.ms": "-1"}), state()),
        (state({"retention.ms": "-1"}), state({"retention.ms": "315360000000"})),
        (state(COMPACTED), state(BOTH_POLICIES)),
        (state(COMPACTED), state()),
        (state(NO_POLICY), state()),
    ],
)
def test_unlike_destination_warns(source: TopicState, destination: TopicState, texts: Texts) -> None:
    (text,) = warnings(source, destination)
    texts(text)


@pytest.mark.parametrize("name", ["max.message.bytes", "segment.bytes"])
def test_smaller_max_message_bytes_is_an_error(name: str) -> None:
    (text,) = errors(
        state({"max.message.bytes": "2000000"}), state({"max.message.bytes": "3000000", name: "1999999"})
    )
    assert all(each in text for each in (str(name), "1999999", "2000000"))


@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_recompression_warns_with_its_cost(compression: str) -> None:
    (text,) = warnings(state(), state({"compression.type": compression}))
    assert text.startswith(f"compression.type is {compression}: ")
    assert re.search(r"10.*40.*times.*CPU", text)


def test_narrower_limit_to_future_timestamps_warns() -> None:
    (text,) = warnings(state({"message.timestamp.after.max.ms": FOREVER}), state())
    assert re.match(r"message\.timestamp\.after\.max\.ms\b.*\b3600000\b", text)
    assert str(FOREVER) in text


def test_source_before_kafka_3_6_counts_as_unlimited() -> None:
    assert len(warnings(old(), state())) == 1


def test_destination_before_kafka_3_6_limits_both_directions() -> None:
    configs = {**old().configs, "message.timestamp.difference.max.ms": ConfigEntry("1000", True)}
    assert len(warnings(state(), TopicState(1, configs))) == 2


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_compaction_at_the_destination_alone_warns(policy: str) -> None:
    texts = warnings(state(), state({"cleanup.policy": policy}))
    assert ["compacted" in text for text in texts] == [True]


def test_too_few_replicas_for_acknowledgement_is_an_error() -> None:
    (text,) = errors(state(), state({"min.insync.replicas": "2"}))
    assert re.search(r"1.*min\.insync\.replicas=2", text)


UNKNOWN = TopicState(1, {})
BROKEN = state({"compression.type": "gzip", "max.message.bytes": "1"})


def test_missing_destination_configs_are_not_compared() -> None:
    assert list(compare(BROKEN, UNKNOWN)) == []


def test_missing_source_configs_leave_the_destination_checked() -> None:
    assert [finding.text[:16] for finding in compare(UNKNOWN, BROKEN)] == ["compression.type"]


def test_configs_of_copy_keep_retention_and_limits_of_the_source() -> None:
    assert configs_of_copy(state(), has_timestamp_after=False) == {
        "compression.type": "producer",
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
    }


def test_configs_of_copy_exclude_the_destination_s_own() -> None:
    configs = configs_of_copy(
        state(
            {
                "segment.ms": "1000",
                "retention.ms": "5",
                "compression.type": "gzip",
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.before.max.ms": "7",
                "min.insync.replicas": "2",
                "leader.replication.throttled.replicas": "*",
            }
        ),
        has_timestamp_after=False,
    )
    assert configs == {
        "compression.type": "producer",
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "retention.bytes": "-1",
        "retention.ms": "5",
        "segment.ms": "1000",
    }


@pytest.mark.parametrize(("source", "after"), [(state(), "3600000"), (old(), FOREVER)])
def test_configs_of_copy_allow_future_timestamps_like_the_source(source: TopicState, after: str) -> None:
    configs = configs_of_copy(source, has_timestamp_after=True)
    assert configs["message.timestamp.after.max.ms"] == after
