"""The comparison of two streams of batches, against edits whose result is known, and against a model."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.verify.diff import diff
from shoal.verify.digest import Agreement, Digest, agree
from shoal.verify.finding import Finding, Kind
from tests.digests import RECORDS, one, stream

ALPHABET = "abcdefghijklmnopqrstuvwxyz"

#: Both sides end where they do, and all of the source must be there.
ALL = 1_000_000

DIFFERENCES = {Kind.MISSING, Kind.EXTRA, Kind.ALTERED, Kind.REORDERED}


def compare(
    source: Sequence[object], destination: Sequence[object], mirrored_until: int = ALL
) -> list[tuple[str, list[int], list[int]]]:
    """Return what differs, as numbers of batches of both sides, sorted."""
    return differences(diff(stream(source), stream(destination), mirrored_until=mirrored_until))


def differences(findings: Iterator[Finding]) -> list[tuple[str, list[int], list[int]]]:
    return sorted(
        (finding.kind.value, _numbers(finding.source), _numbers(finding.destination))
        for finding in findings
        if finding.kind is not Kind.SAME
    )


def _numbers(batches: Sequence[Digest]) -> list[int]:
    return [batch.base_offset // RECORDS for batch in batches]


def altered(letters: Sequence[str], *indexes: int) -> list[str]:
    return [letter + "'" if index in indexes else letter for index, letter in enumerate(letters)]


def test_equal_streams_have_no_difference() -> None:
    findings = list(diff(stream(ALPHABET), stream(ALPHABET), mirrored_until=ALL))
    assert {finding.kind for finding in findings} == {Kind.SAME}
    assert len(findings) == len(ALPHABET)


@pytest.mark.parametrize("index", [0, 1, 13, 24, 25])
def test_one_altered_batch_is_found_in_its_place(index: int) -> None:
    assert compare(ALPHABET, altered(ALPHABET, index)) == [("altered", [index], [index])]


@pytest.mark.parametrize("index", [0, 1, 13, 24, 25])
def test_one_missing_batch_is_found(index: int) -> None:
    assert compare(ALPHABET, ALPHABET[:index] + ALPHABET[index + 1 :]) == [("missing", [index], [])]


@pytest.mark.parametrize("index", [0, 1, 13, 24, 25])
def test_one_doubled_batch_is_found_and_named(index: int) -> None:
    doubled = ALPHABET[: index + 1] + ALPHABET[index:]
    findings = list(diff(stream(ALPHABET), stream(doubled), mirrored_until=ALL))
    assert differences(iter(findings)) == [("extra", [], [index + 1])]
    (extra,) = (finding for finding in findings if finding.kind is Kind.EXTRA)
    assert extra.copy_of is not None
    assert extra.copy_of.base_offset == index * RECORDS


@pytest.mark.parametrize(("first", "second"), [(0, 1), (13, 14), (24, 25), (0, 2), (3, 9), (0, 25)])
def test_two_swapped_batches_are_found_wherever_they_are(first: int, second: int) -> None:
    letters = list(ALPHABET)
    letters[first], letters[second] = letters[second], letters[first]
    assert compare(ALPHABET, letters) == [
        ("reordered", [first], [second]),
        ("reordered", [second], [first]),
    ]


def test_a_batch_that_moved_far_is_the_only_one_reordered() -> None:
    assert compare("abcdefghij", "acdefghbij") == [("reordered", [1], [7])]


def test_several_differences_are_kept_apart() -> None:
    # b is missing, f altered, j doubled, n and o swapped.
    destination = [*"acde", "f'", *"ghijjklmonpqr"]
    assert compare("abcdefghijklmnopqr", destination) == [
        ("altered", [5], [4]),
        ("extra", [], [9]),
        ("missing", [1], []),
        ("reordered", [13], [14]),
        ("reordered", [14], [13]),
    ]


def test_every_other_batch_altered_is_no_reason_to_lose_step() -> None:
    changed = range(1, 26, 2)
    assert compare(ALPHABET, altered(ALPHABET, *changed)) == [("altered", [i], [i]) for i in changed]


def test_a_batch_that_replaces_two_is_an_altered_range() -> None:
    assert compare("abcdefgh", "abXefgh") == [("altered", [2, 3], [2])]


def test_what_the_destination_does_not_have_yet_is_no_difference() -> None:
    assert compare("abcdef", "abc", mirrored_until=0) == [("not mirrored yet", [3], [])]


def test_what_was_committed_must_be_there() -> None:
    assert compare("abcdef", "abc", mirrored_until=5 * RECORDS) == [
        ("missing", [3], []),
        ("missing", [4], []),
        ("not mirrored yet", [5], []),
    ]


def test_the_last_batch_of_a_lagging_destination_may_be_altered_missing_or_doubled() -> None:
    lag: tuple[str, list[int], list[int]] = ("not mirrored yet", [3], [])
    assert compare(ALPHABET, ["a", "b", "c'"], 0) == [("altered", [2], [2]), lag]
    assert compare(ALPHABET, "abcc", 0) == [("extra", [], [3]), lag]
    assert compare(ALPHABET, "ac", 0) == [("missing", [1], []), lag]
    assert compare(ALPHABET, "acb", 0) == [
        lag,
        ("reordered", [1], [2]),
        ("reordered", [2], [1]),
    ]


def test_nothing_is_looked_at_behind_the_end_of_a_destination_that_lags() -> None:
    def endless() -> Iterator[Digest]:
        yield from stream("abcd")
        pytest.fail("the source was read on")

    assert differences(diff(endless(), stream("abc"))) == [("not mirrored yet", [3], [])]


def test_an_empty_side_is_missing_or_extra_as_a_whole() -> None:
    assert compare("ab", "") == [("missing", [0], []), ("missing", [1], [])]
    assert compare("", "ab") == [("extra", [], [0]), ("extra", [], [1])]
    assert compare("", "") == []


def test_sides_that_do_not_meet_again_within_the_look_ahead_have_diverged() -> None:
    source, destination = stream(["a", *range(100)]), stream(["a", *range(1000, 1100)])
    findings = list(diff(source, destination, look_ahead_batches=32))
    assert [finding.kind for finding in findings] == [Kind.SAME, Kind.DIVERGED]
    assert (findings[-1].source_place, findings[-1].destination_place) == (RECORDS, RECORDS)


def test_a_missing_run_shorter_than_the_look_ahead_is_one_gap() -> None:
    source = list(range(200))
    assert compare(source, source[:50] + source[150:]) == [("missing", [i], []) for i in range(50, 150)]


def test_places_say_where_the_other_side_would_have_it() -> None:
    (missing,) = (
        finding
        for finding in diff(stream("abcd"), stream("abd"), start=(0, 0), mirrored_until=ALL)
        if finding.kind is Kind.MISSING
    )
    assert (missing.source_place, missing.destination_place) == (20, 20)


# What cannot be compared


def undecoded(letters: str) -> list[Digest]:
    """Return recompressed batches that are too large."""
    return [
        one(letter, number * RECORDS, codec=1, undecoded="large") for number, letter in enumerate(letters)
    ]


def test_a_damaged_batch_is_altered_though_its_header_agrees() -> None:
    source = stream("abc")
    destination = [*stream("ab"), one("c", 20, damage="its CRC is wrong")]
    assert differences(diff(source, destination)) == [("altered", [2], [2])]


def test_what_cannot_be_decoded_is_not_compared_as_long_as_nothing_contradicts() -> None:
    source = stream("abcd")
    large = [
        one(letter, number * RECORDS, codec=1, undecoded="large") for number, letter in enumerate("abcd")
    ]
    assert differences(diff(source, large)) == [("not decoded", [i], [i]) for i in range(4)]


def test_a_missing_batch_is_found_by_the_times_of_those_that_cannot_be_decoded() -> None:
    source = stream("abcdefg")
    large = [
        one(letter, number * RECORDS, codec=1, undecoded="large") for number, letter in enumerate("abdefg")
    ]
    found = differences(diff(source, large, mirrored_until=ALL))
    assert [each for each in found if each[0] != "not decoded"] == [("missing", [2], [])]


def test_batches_that_cannot_be_decoded_and_have_another_count_are_not_compared() -> None:
    source = [one("a", 0), one("b", 10), one("c", 20)]
    destination = [one("a", 0), one("b", 10, 9, codec=1, undecoded="large"), one("c", 19)]
    assert [finding.kind for finding in diff(source, destination)] == [Kind.SAME, Kind.SAME, Kind.UNDECODED]


def test_a_gap_that_compaction_left_explains_what_is_missing() -> None:
    destination = [*stream("ab"), one("d", 30, gap=10)]
    assert differences(diff(stream("abcd"), destination)) == [("compacted", [2], [])]


def test_a_gap_in_the_source_explains_what_only_the_destination_has() -> None:
    source = [*stream("ab"), one("d", 30, gap=10)]
    assert differences(diff(source, stream("abcd"))) == [("compacted", [], [2])]


def test_a_gap_does_not_explain_what_is_there_twice() -> None:
    source = [*stream("ab"), one("d", 30, gap=10)]
    assert differences(diff(source, stream("abbd"))) == [("extra", [], [2])]


def test_a_gap_that_is_too_small_explains_nothing() -> None:
    destination = [*stream("ab"), one("d", 25, gap=5)]
    assert differences(diff(stream("abcd"), destination)) == [("missing", [2], [])]


# Against a model

SMALL_ALPHABET = st.lists(st.sampled_from("abcdef"), max_size=30)


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Draw a source, and a destination that some edits made of it."""
    source = [str(number) for number in range(draw(st.integers(0, 60)))]
    destination = list(source)
    for _ in range(draw(st.integers(0, 6))):
        edit = draw(st.sampled_from(["flip", "drop", "double", "swap", "insert", "cut"]))
        at = draw(st.integers(0, max(len(destination) - 1, 0)))
        other = draw(st.integers(0, max(len(destination) - 1, 0)))
        if edit == "insert":
            destination.insert(at, draw(st.sampled_from(["x", "y"])))
        elif not destination:
            continue
        elif edit == "flip":
            destination[at] += "'"
        elif edit == "drop":
            del destination[at]
        elif edit == "double":
            destination.insert(other, destination[at])
        elif edit == "swap":
            destination[at], destination[other] = destination[other], destination[at]
        else:
            del destination[at : at + 10]
    return source, destination


@given(
    st.one_of(edited(), st.tuples(SMALL_ALPHABET, SMALL_ALPHABET)),
    st.sampled_from([1, 2, 5, 20, 4096]),
    st.sampled_from([0, 100, ALL]),
)
def test_every_batch_is_in_one_finding_and_differences_are_found(
    sides: tuple[list[str], list[str]], look_ahead: int, mirrored_until: int
) -> None:
    source, destination = map(stream, sides)
    findings = list(diff(source, destination, mirrored_until=mirrored_until, look_ahead_batches=look_ahead))
    kinds = Counter(finding.kind for finding in findings)
    last = findings[-1] if findings else None
    if last and last.kind in (Kind.NOT_MIRRORED, Kind.DIVERGED):
        findings.pop()
        source = [batch for batch in source if batch.base_offset < last.source_place]
        if last.kind is Kind.DIVERGED:
            destination = [batch for batch in destination if batch.base_offset < last.destination_place]
    assert sorted(batch for finding in findings for batch in finding.source) == sorted(source)
    assert sorted(batch for finding in findings for batch in finding.destination) == sorted(destination)
    same = [finding for finding in findings if finding.kind is Kind.SAME]
    assert same == sorted(same, key=lambda finding: finding.source)
    assert same == sorted(same, key=lambda finding: finding.destination)
    for finding in findings:
        if finding.kind in (Kind.SAME, Kind.REORDERED):
            assert agree(finding.source[0], finding.destination[0]) is Agreement.SAME
    is_prefix = sides[0][: len(sides[1])] == sides[1]
    is_whole = is_prefix and len(sides[1]) * RECORDS >= min(mirrored_until, len(sides[0]) * RECORDS)
    assert is_whole == (not kinds.keys() & {*DIFFERENCES, Kind.DIVERGED})


@given(st.lists(st.integers(0, 10**6), unique=True, min_size=2, max_size=60), st.data())
def test_one_edit_of_distinct_batches_is_found_as_what_it_is(letters: list[int], data: st.DataObject) -> None:
    at, other = sorted(
        data.draw(st.lists(st.integers(0, len(letters) - 1), unique=True, min_size=2, max_size=2))
    )
    assert compare(letters, letters[:at] + letters[at + 1 :]) == [("missing", [at], [])]
    assert compare(letters, [*letters[: other + 1], letters[at], *letters[other + 1 :]]) == [
        ("extra", [], [other + 1])
    ]
    swapped = list(letters)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    assert compare(letters, swapped) == [("reordered", [at], [other]), ("reordered", [other], [at])]
    flipped: list[object] = [*letters]
    flipped[at] = f"{letters[at]}'"
    assert compare(letters, flipped) == [("altered", [at], [at])]


@given(edited(), st.sampled_from([1, 4, 16]))
def test_no_more_than_the_look_ahead_is_held(sides: tuple[list[str], list[str]], look_ahead: int) -> None:
    taken = Counter[str]()

    def counted(side: str, batches: list[Digest]) -> Iterator[Digest]:
        for batch in batches:
            taken[side] += 1
            yield batch

    out = Counter[str]()
    source, destination = map(stream, sides)
    for finding in diff(
        counted("source", source), counted("destination", destination), look_ahead_batches=look_ahead
    ):
        out["source"] += len(finding.source)
        out["destination"] += len(finding.destination)
        held = taken - out
        # What is looked at ahead, what waits to turn up elsewhere, and one run
        # that is being handed out.
        assert held.total() <= 2 * look_ahead + look_ahead + 2 * look_ahead + 2
