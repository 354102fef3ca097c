"""A mirror that must stop at a recreated topic mixes no records of both."""

from __future__ import annotations

import pytest

from rig.record import Record
from tests.campaigns.clusters.topics import mirrored_of, while_stopped


def records(*keys: int) -> list[Record]:
    return [Record(b"%d" % key, b"value", (), 1, offset=offset) for offset, key in enumerate(keys)]


@pytest.mark.parametrize(
    ("copy", "has_stopped", "is_kept"),
    [
        (records(1, 2), True, True),
        (records(1, 2, 3), True, True),
        (records(7, 8), False, True),
        (records(), True, True),
        (records(1, 2), False, False),
        (records(1, 7), True, False),
        (records(1, 2, 3, 7, 8), True, False),
        (records(7), False, False),
        (records(8, 7), False, False),
        (records(2, 3), True, False),
    ],
)
def test_stop_at_a_recreated_topic_is_kept_if_no_record_is_mixed(
    copy: list[Record], has_stopped: bool, is_kept: bool
) -> None:
    problems = while_stopped(records(1, 2, 3), records(7, 8), copy, has_stopped=has_stopped)
    assert (problems == []) is is_kept


def test_mirrored_of_returns_the_first_records_in_order() -> None:
    assert [each.key for each in mirrored_of(records(1, 2, 3), records(1, 2, 7))] == [b"1", b"2"]
    assert mirrored_of(records(1, 2, 3), records(2, 3)) == []
