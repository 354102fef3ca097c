"""A group's first start survives its commits, with the topics selected then."""

from __future__ import annotations

import pytest

from shoal.client.committed_offsets import Committed
from shoal.client.metadata import TopicMetadata
from shoal.mirroring.model.first_start import (
    FirstStart,
    is_start_mark,
    read_first_start,
    remembering,
    start_mark,
)
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.topics import TopicSelection

ORDERS = FirstStart(1_700_000_000_000).selecting(TopicSelection("orders.*", exclude=".*-old"))


def topic(name: str) -> TopicMetadata:
    return TopicMetadata(name, None, False, {})


def test_start_mark_is_read_back_and_is_no_position_for_older_versions() -> None:
    mark = start_mark(7, ORDERS)
    assert (mark.offset, is_start_mark(mark), read_first_start(mark)) == (7, True, ORDERS)
    assert MirrorPosition.from_committed(mark) is None


def test_committed_position_keeps_the_first_start() -> None:
    position = remembering(7, ORDERS)
    assert (position.offset, is_start_mark(position), read_first_start(position)) == (7, False, ORDERS)
    assert read_first_start(remembering(7, None)) is None


@pytest.mark.parametrize("metadata", ["", "start1", "start1[]", "start1[1,[[2,3]]]", "start1" + "[" * 9_999])
def test_metadata_of_another_program_have_no_first_start(metadata: str) -> None:
    assert read_first_start(Committed(7, metadata)) is None


def test_first_start_keeps_the_selections_of_all_starts() -> None:
    assert ORDERS.selected(topic("orders-1"))
    assert not ORDERS.selected(topic("orders-old"))
    assert not ORDERS.selected(topic("payments"))
    both = ORDERS.selecting(TopicSelection("payments"))
    assert both.selected(topic("orders-1"))
    assert both.selected(topic("payments"))
    assert both.selecting(TopicSelection("payments")) == both


def test_merged_first_starts_have_the_earlier_time_and_both_selections() -> None:
    later = FirstStart(ORDERS.at_ms + 1).selecting(TopicSelection("payments"))
    merged = later.merged_with(ORDERS)
    assert merged == ORDERS.merged_with(later)
    assert merged.at_ms == ORDERS.at_ms
    assert merged.selected(topic("payments"))


def test_too_long_selections_count_every_topic_as_selected() -> None:
    names = ",".join(f"topic-{number}" for number in range(1_000))
    forgotten = ORDERS.selecting(TopicSelection(names))
    assert forgotten.selections == ()
    assert forgotten.selected(topic("payments"))
    assert len(start_mark(2**63 - 1, forgotten).metadata) < 100


def test_invalid_selection_counts_as_matching() -> None:
    damaged = FirstStart.from_json_object([1, [["((", None]]])
    assert damaged.selected(topic("payments"))
