"""Records that consumers read twice or miss are counted by their number, not by offsets."""

from random import Random

import pytest

from bench.following.__main__ import sizes
from bench.following.groups import commit, committed, draw
from bench.following.lines import Line, table
from bench.following.load import Size
from bench.following.tally import CopyDiffers, Pair, Position, Tally, pair_of, tally
from bench.following.translation import Found, bounds_of, lines_of
from rig import Record
from tests.two_brokers import TwoBrokers

#: Source offsets 2 and 5 to 7 are markers, or compacted; the copy has no gaps.
PAIR = Pair(source=[0, 1, 3, 4, 8], copy=[0, 1, 2, 3, 4])
PLACE = ("topic", 0)


def record(offset: int, value: bytes = b"value", timestamp: int = 1, kind: str = "CreateTime") -> Record:
    return Record(b"key", value, (), timestamp, kind, offset)


@pytest.mark.parametrize(
    ("offset", "translated", "again"),
    [
        pytest.param(0, 0, 0, id="at the start"),
        pytest.param(3, 2, 0, id="behind a gap"),
        pytest.param(2, 2, 0, id="inside a gap"),
        pytest.param(8, 4, 0, id="before the last record"),
        pytest.param(9, 5, 0, id="at the end"),
        pytest.param(9, 700, 0, id="beyond the end"),
        pytest.param(9, 1, 4, id="too early"),
        pytest.param(3, 4, -2, id="too late"),
    ],
)
def test_pair_counts_the_records_between_two_offsets(offset: int, translated: int, again: int) -> None:
    assert PAIR.read_again(offset, translated) == again


def test_pair_of_equal_records_has_the_offsets_of_both_sides() -> None:
    assert pair_of([record(3), record(7)], [record(0), record(1)]) == Pair([3, 7], [0, 1])


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param([record(0)], id="a record is missing"),
        pytest.param([record(0), record(1), record(2)], id="a record is there twice"),
        pytest.param([record(0), record(1, value=b"other")], id="another value"),
        pytest.param([record(0), record(1, timestamp=2)], id="another time"),
    ],
)
def test_copy_with_other_records_is_refused(copy: list[Record]) -> None:
    with pytest.raises(CopyDiffers):
        pair_of([record(3), record(7)], copy)


def test_append_times_are_not_compared() -> None:
    pair = pair_of([record(3, timestamp=9, kind="LogAppendTime")], [record(0)])
    assert pair == Pair([3], [0])


def test_tally_sums_records_read_twice_and_missed_apart() -> None:
    positions = [Position("a", PLACE, 9), Position("b", PLACE, 3), Position("c", PLACE, 4)]
    there = {("a", PLACE): 1, ("b", PLACE): 4, ("c", PLACE): 3}
    found = tally(positions, there, {PLACE: PAIR})
    assert found == Tally(3, 3, exact=1, read_twice=4, most_twice=4, missed=2, without=0, groups_without=0)
    assert not found.is_exact


def test_tally_counts_positions_and_groups_without_an_offset() -> None:
    other = ("topic", 1)
    positions = [Position("a", PLACE, 3), Position("a", other, 3), Position("b", PLACE, 3)]
    found = tally(positions, {("a", PLACE): 2}, {PLACE: PAIR, other: PAIR})
    assert (found.exact, found.without, found.groups_without) == (1, 2, 1)
    assert not found.is_exact


def test_positions_take_partitions_in_turn_and_groups_with_each_turn() -> None:
    bounds = {("t", 0): (5, 9), ("t", 1): (0, 0)}
    drawn = draw(Random(0), bounds, 5, "g")
    assert [(each.group, each.place[1]) for each in drawn] == [
        ("g-0", 0), ("g-0", 1), ("g-1", 0), ("g-1", 1), ("g-2", 0),
    ]  # fmt: skip
    assert all(bounds[each.place][0] <= each.offset <= bounds[each.place][1] for each in drawn)


def test_positions_near_the_end_stay_within_the_log() -> None:
    bounds = {("t", 0): (0, 1000), ("t", 1): (95, 100)}
    for each in draw(Random(0), bounds, 400, "g", most_behind=10):
        start, end = bounds[each.place]
        assert max(start, end - 10) <= each.offset <= end


def test_committed_positions_are_read_back() -> None:
    positions = [Position("g", ("topic", 0), 3), Position("g", ("topic", 1), 0), Position("h", PLACE, 5)]
    with TwoBrokers.started() as brokers:
        brokers.topic(partitions=2)[0].plain(5)
        bootstrap = brokers.source.bootstrap
        commit(bootstrap, positions)
        found = committed(bootstrap, ["g", "h", "without members"])
        assert bounds_of(bootstrap, {"topic": 2}) == {("topic", 0): (0, 5), ("topic", 1): (0, 0)}
    assert found == {(group, place): offset for group, place, offset in positions}


def test_size_gives_groups_their_topics_in_turn() -> None:
    size = Size("t", partitions=120, topics_per_group=2)
    assert size.topics == {"t.0": 50, "t.1": 50, "t.2": 20}
    assert [size.topics_of(group) for group in range(3)] == [["t.0", "t.1"], ["t.1", "t.2"], ["t.2", "t.0"]]


def test_translation_that_calls_a_wrong_offset_exact_misses_the_aim() -> None:
    right = Tally(2, 1, exact=2, read_twice=0, most_twice=0, missed=0, without=0, groups_without=0)
    wrong = Tally(2, 1, exact=1, read_twice=3, most_twice=3, missed=0, without=0, groups_without=0)
    found = Found({"anywhere": right, "near": wrong}, {"near": right}, {"anywhere": 2, "near": 2})
    lines = lines_of("4 to 4", found)
    assert [each.verdict for each in lines] == ["met"] * 4 + ["**missed**", "**missed**", "met", "met"]
    assert [each.peer for each in lines] == [""] * 4 + ["2", "0 (0)", "0", "0 (0)"]


def test_table_has_no_verdict_without_an_aim() -> None:
    printed = table([Line("figure", "4 to 4", "1", aim="at most 2"), Line("other", "4 to 4", "3")])
    assert [row.split("|")[-2].strip() for row in printed.splitlines()[2:]] == ["met", ""]


def test_sizes_of_a_whole_run_are_those_of_the_aims() -> None:
    moved, (few, every) = sizes(1.0)
    for size in (moved, few, every):
        assert (size.partitions, sum(size.topics.values()), size.groups) == (1200, 1200, 100)
    assert len(few.topics_of(0)) == 1
    assert sorted(every.topics_of(7)) == sorted(every.topics)
