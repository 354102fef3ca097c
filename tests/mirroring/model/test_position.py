"""A position survives the way through a commit's metadata, or is refused; a sequence is an offset."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.committed_offsets import Committed
from shoal.errors import ConfigError
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity

OFFSETS = st.integers(0, 2**63 - 1)
TOPIC_IDS = st.none() | st.uuids().map(str)
IDENTITIES = st.builds(
    ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(-(2**63), 2**63 - 1)
)

PAIR = MirrorPosition(10, 7, ProducerIdentity(5, 0), (2, 0), 4_000_000_000, "source-id", None, 3, "rules", 2)


@given(
    st.builds(
        MirrorPosition,
        OFFSETS,
        OFFSETS,
        IDENTITIES,
        st.tuples(OFFSETS, OFFSETS),
        st.none() | st.integers(0, 2**32 - 1),
        TOPIC_IDS,
        TOPIC_IDS,
        st.integers(-1, 2**31 - 1),
        st.text(max_size=64),
        st.integers(-1, 2**31 - 1),
        st.none() | st.builds(FirstStart, OFFSETS, st.just((("orders.*", None), ("a", "b")))),
    )
)
def test_committed_position_is_read_back(position: MirrorPosition) -> None:
    committed = position.to_committed()
    assert MirrorPosition.from_committed(committed) == position
    assert committed.offset == position.source_offset
    # offset.metadata.max.bytes, for which Kafka counts characters of UTF-16
    assert len(committed.metadata) <= 4096
    assert committed.metadata.isascii()


def test_metadata_has_the_documented_form() -> None:
    metadata = PAIR.to_committed().metadata
    assert metadata.startswith("shoal1{")
    assert json.loads(metadata.removeprefix("shoal1")) == {
        "destination": 7,
        "producer": [5, 0, 0],
        "origin": [2, 0],
        "last": 4_000_000_000,
        "topics": ["source-id", None],
        "epoch": 3,
        "source_epoch": 2,
        "rules": "rules",
    }


def test_position_without_source_epoch_is_read() -> None:
    committed = PAIR.to_committed()
    values = json.loads(committed.metadata.removeprefix("shoal1"))
    del values["source_epoch"]
    older = replace(committed, metadata="shoal1" + json.dumps(values))
    assert MirrorPosition.from_committed(older) == replace(PAIR, source_leader_epoch=-1)


@pytest.mark.parametrize("metadata", ["", "words", "{}", '{"destination": 1}', "SHOAL1{}"])
def test_commit_of_another_program_is_no_position(metadata: str) -> None:
    assert MirrorPosition.from_committed(Committed(10, metadata)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"destination": "7"},
        {"destination": None},
        {"destination": True},
        {"destination": 7.0},
        {"producer": [5]},
        {"producer": []},
        {"producer": 5},
        {"producer": [5, 0, 0, 0]},
        {"producer": ["5", 0, 0]},
        {"origin": [2]},
        {"origin": None},
        {"last": "4"},
        {"topics": ["a"]},
        {"topics": [1, 2]},
        {"epoch": None},
        {"source_epoch": "2"},
        {"rules": 1},
        # Numbers that no field of the protocol holds.
        {"destination": -1},
        {"destination": 2**63},
        {"producer": [2**63, 0, 0]},
        {"producer": [-1, 0, 0]},
        {"producer": [5, 2**15, 0]},
        {"producer": [5, 0, 2**63]},
        {"origin": [2, 10**30]},
        {"last": 2**32},
        {"epoch": 2**31},
        {"source_epoch": -2},
    ],
)
def test_malformed_position_of_shoal_is_refused(change: dict[str, Any]) -> None:
    committed = PAIR.to_committed()
    values = json.loads(committed.metadata.removeprefix("shoal1")) | change
    with pytest.raises(ConfigError, match="another version of shoal"):
        MirrorPosition.from_committed(replace(committed, metadata="shoal1" + json.dumps(values)))


@pytest.mark.parametrize(
    "metadata", ["shoal1", "shoal1{", "shoal1[]", "shoal1{}", "shoal2{}", "shoal10{}", "shoal1" + "[" * 4000]
)
def test_position_of_another_version_is_refused(metadata: str) -> None:
    with pytest.raises(ConfigError, match="mirror with that version, or with another group"):
        MirrorPosition.from_committed(Committed(10, metadata))


@given(st.text(max_size=300))
def test_arbitrary_metadata_are_a_position_none_or_refused(metadata: str) -> None:
    for prefix in ("", "shoal", "shoal1", 'shoal1{"destination":'):
        try:
            assert MirrorPosition.from_committed(Committed(10, prefix + metadata)) is None
        except ConfigError:
            assert (prefix + metadata).startswith("shoal")


@pytest.mark.parametrize(
    ("offset", "base", "sequence"),
    [
        (0, 0, 0),
        (7, 0, 7),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, 0),
        (2**32 + 5, 0, 5),
        (2**63 - 1, 0, 2**31 - 1),
        (10, 10, 0),
        (2**31 + 10, 10, 0),
    ],
)
def test_sequence_follows_the_destination_offset(offset: int, base: int, sequence: int) -> None:
    assert ProducerIdentity(5, 0, base).sequence(offset) == sequence
