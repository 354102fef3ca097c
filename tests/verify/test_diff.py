"""The comparison of two streams of batches, against edits whose result is known, and against a model."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.verify.decoded import Decoded
from shoal.verify.diff import diff
from shoal.verify.digest import Digest, are_same
from shoal.verify.finding import AnyFinding, Finding, Gap, Kind, SameBatches
from tests.verify.digests import DECODERS, RECORDS, Letters, one, packed, stream

ALPHABET = "abcdefghijklmnopqrstuvwxyz"

#: All of the source must be at the destination.
ALL = 1_000_000

DIFFERENCES = {Kind.MISSING, Kind.EXTRA, Kind.ALTERED, Kind.REORDERED}


def compare(
    source: Sequence[object], destination: Sequence[object], mirrored_until: int = ALL
) -> list[tuple[str, list[int], list[int]]]:
    """Return the differences as numbers of batches of both sides, sorted; the same for packed batches."""
    ours, theirs = stream(source), stream(destination)
    found = differences(diff(ours, theirs, DECODERS, mirrored_until=mirrored_until))
    for most in (1, 7, 1000):
        runs = packed(ours, most), packed(theirs, 1000)
        assert differences(diff(*runs, DECODERS, mirrored_until=mirrored_until)) == found
    return found


def differences(findings: Iterable[AnyFinding]) -> list[tuple[str, list[int], list[int]]]:
    found = {
        (finding.kind.value, *_numbers(finding))
        for finding in findings
        if isinstance(finding, Finding) and finding.kind is not Kind.SAME
    }
    return sorted((kind, list(source), list(destination)) for kind, source, destination in found)


def _numbers(finding: Finding) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of the batches of a finding; of one that has only a place, that place."""
    if finding.kind in (Kind.NOT_MIRRORED, Kind.DIVERGED):
        return (finding.source_place // RECORDS,), ()
    source, destination = (
        tuple(sorted({part.base_offset // RECORDS for part in side}))
        for side in (finding.source, finding.destination)
    )
    return source, destination


def altered(letters: Sequence[str], *indexes: int) -> list[str]:
    return [letter + "'" if index in indexes else letter for index, letter in enumerate(letters)]


def test_diff_of_equal_streams_finds_nothing() -> None:
    findings = list(diff(stream(ALPHABET), stream(ALPHABET), DECODERS, mirrored_until=ALL))
    assert all(isinstance(finding, Finding) and finding.kind is Kind.SAME for finding in findings)
    assert len(findings) == len(ALPHABET)
    (run,) = packed(stream(ALPHABET), 1000)
    assert list(diff([run], [run], DECODERS, mirrored_until=ALL)) == [SameBatches(run, run)]


@pytest.mark.parametrize("index", [0, 1, 13, 24, 25])
def test_diff_finds_one_altered_batch_in_its_place(index: int) -> None:
    assert compare(ALPHABET, altered(ALPHABET, index)) == [("altered", [index], [index])]


@pytest.mark.parametrize("index", [0, 1, 13, 24, 25])
def test_diff_finds_one_missing_batch(index: int) -> None:
    assert compare(ALPHABET, ALPHABET[:index] + ALPHABET[index + 1 :]) == [("missing", [index], [])]


def test_diff_finds_doubles_before_a_batch_that_is_like_one_of_them() -> None:
    # The x behind them is the source's second, not one of the doubles; a missing p hides where both meet.
    before, behind = "abcxefghij", "klxmnopqrstuvwyzABCDEFGHI"
    found = compare(before + behind, before + before + behind.replace("p", ""))
    assert found == [*(("extra", [], [index]) for index in range(10, 20)), ("missing", [16], [])]


def test_diff_takes_one_batch_in_the_same_place_behind_many_differences_for_an_accident() -> None:
    # The e is fifth behind the first ten, and fifth of the doubles, too.
    before, behind = "abcdefghij", "klmneopqrstuvwxyzABCDEFGHIJKLMNOPQ"
    found = compare(before + behind, before + before + behind.replace("q", ""))
    assert found == [*(("extra", [], [index]) for index in range(10, 20)), ("missing", [17], [])]


@pytest.mark.parametrize("index", [0, 1, 13, 24, 25])
def test_diff_finds_one_doubled_batch_and_its_original(index: int) -> None:
    doubled = ALPHABET[: index + 1] + ALPHABET[index:]
    findings = list(diff(stream(ALPHABET), stream(doubled), DECODERS, mirrored_until=ALL))
    assert differences(iter(findings)) == [("extra", [], [index + 1])]
    extra = [finding for finding in findings if isinstance(finding, Finding) and finding.kind is Kind.EXTRA]
    doubled_offsets = [
        finding.copy_of + number
        for finding in extra
        if finding.copy_of is not None
        for number in range(finding.destination[-1].next_offset - finding.destination[0].base_offset)
    ]
    assert doubled_offsets == list(range(index * RECORDS, index * RECORDS + RECORDS))


@pytest.mark.parametrize(("first", "second"), [(0, 1), (13, 14), (24, 25), (0, 2), (3, 9), (0, 25)])
def test_diff_finds_two_swapped_batches_at_any_distance(first: int, second: int) -> None:
    letters = list(ALPHABET)
    letters[first], letters[second] = letters[second], letters[first]
    assert compare(ALPHABET, letters) == [
        ("reordered", [first], [second]),
        ("reordered", [second], [first]),
    ]


def test_diff_of_one_batch_moved_far_reports_only_that() -> None:
    assert compare("abcdefghij", "acdefghbij") == [("reordered", [1], [7])]


def test_diff_keeps_several_differences_apart() -> None:
    # b is missing, f altered, j doubled, n and o swapped.
    destination = [*"acde", "f'", *"ghijjklmonpqr"]
    assert compare("abcdefghijklmnopqr", destination) == [
        ("altered", [5], [4]),
        ("extra", [], [9]),
        ("missing", [1], []),
        ("reordered", [13], [14]),
        ("reordered", [14], [13]),
    ]


def test_diff_of_alternately_altered_batches_stays_in_step() -> None:
    changed = range(1, 26, 2)
    assert compare(ALPHABET, altered(ALPHABET, *changed)) == [("altered", [i], [i]) for i in changed]


def test_diff_of_a_batch_replacing_two_is_an_altered_range() -> None:
    assert compare("abcdefgh", "abXefgh") == [("altered", [2, 3], [2])]


def test_diff_reports_a_lagging_destination_as_not_mirrored_yet() -> None:
    assert compare("abcdef", "abc", mirrored_until=0) == [("not mirrored yet", [3], [])]


def test_diff_reports_records_before_the_position_as_missing() -> None:
    assert compare("abcdef", "abc", mirrored_until=5 * RECORDS) == [
        ("missing", [3], []),
        ("missing", [4], []),
        ("not mirrored yet", [5], []),
    ]


def test_diff_of_a_lagging_destination_finds_faults_in_its_last_batch() -> None:
    lag: tuple[str, list[int], list[int]] = ("not mirrored yet", [3], [])
    assert compare(ALPHABET, ["a", "b", "c'"], 0) == [("altered", [2], [2]), lag]
    assert compare(ALPHABET, "abcc", 0) == [("extra", [], [3]), lag]
    assert compare(ALPHABET, "ac", 0) == [("missing", [1], []), lag]
    assert compare(ALPHABET, "acb", 0) == [lag, ("reordered", [2], [1])]


def test_diff_of_a_lagging_destination_reads_no_further() -> None:
    def endless() -> Iterator[Digest]:
        yield from stream("abcd")
        pytest.fail("the source was read on")

    assert differences(diff(endless(), stream("abc"), DECODERS)) == [("not mirrored yet", [3], [])]


def test_diff_of_an_empty_side_reports_all_of_the_other() -> None:
    assert compare("ab", "") == [("missing", [0], []), ("missing", [1], [])]
    assert compare("", "ab") == [("extra", [], [0]), ("extra", [], [1])]
    assert compare("", "") == []


def test_diff_beyond_the_look_ahead_reports_diverged() -> None:
    source, destination = stream(["a", *range(100)]), stream(["a", *range(1000, 1100)])
    findings = list(diff(source, destination, DECODERS, look_ahead_batches=32, look_ahead_records=320))
    assert findings[1:] == [Finding(Kind.DIVERGED, (), (), RECORDS, RECORDS)]


def test_diff_of_a_long_missing_run_is_one_gap() -> None:
    source = list(range(200))
    assert compare(source, source[:50] + source[150:]) == [("missing", [i], []) for i in range(50, 150)]


def test_diff_findings_have_the_place_on_the_other_side() -> None:
    findings = diff(stream("abcd", 1), stream("abd", 1), DECODERS, mirrored_until=ALL)
    found = [each for each in findings if isinstance(each, Finding) and each.kind is Kind.MISSING]
    assert [(each.source_place, each.destination_place) for each in found] == [(2, 2)]


class CountingLetters(Letters):
    """Counts the batches that are decoded."""

    def __init__(self) -> None:
        self.count = 0

    def decode(self, batch: Digest) -> Decoded:
        self.count += 1
        return super().decode(batch)


@pytest.mark.parametrize("edit", ["missing", "doubled", "swapped"])
def test_diff_of_whole_batches_decodes_only_those_at_which_the_sides_part(edit: str) -> None:
    source = list(range(2000))
    if edit == "missing":
        destination = [number for number in source if number % 10]
    elif edit == "doubled":
        destination = [each for number in source for each in [number] * (1 if number % 10 else 2)]
    else:
        destination = [number + {1: 1, 2: -1}.get(number % 10, 0) for number in source]
    decoders = CountingLetters(), CountingLetters()
    ours, theirs = packed(stream(source), 300), packed(stream(destination), 300)
    found = differences(diff(ours, theirs, decoders, mirrored_until=ALL))
    assert len(found) == (400 if edit == "swapped" else 200)
    assert decoders[0].count + decoders[1].count <= 3 * 200


# Batches that cannot be compared


def undecoded(letters: str) -> list[Digest]:
    """Return recompressed batches that are too large."""
    return [
        one(letter, number * RECORDS, codec=1, undecoded="large") for number, letter in enumerate(letters)
    ]


def test_diff_reports_a_damaged_batch_as_altered() -> None:
    source = stream("abc")
    destination = [*stream("ab"), one("c", 20, damage="its CRC is wrong")]
    assert differences(diff(source, destination, DECODERS)) == [("altered", [2], [2])]


def test_diff_reports_undecodable_batches_as_not_decoded() -> None:
    source = stream("abcd")
    large = [
        one(letter, number * RECORDS, codec=1, undecoded="large") for number, letter in enumerate("abcd")
    ]
    assert differences(diff(source, large, DECODERS)) == [("not decoded", [i], [i]) for i in range(4)]


def test_diff_among_undecodable_batches_finds_a_missing_one_by_times() -> None:
    source = stream("abcdefg")
    large = [
        one(letter, number * RECORDS, codec=1, undecoded="large") for number, letter in enumerate("abdefg")
    ]
    found = differences(diff(source, large, DECODERS, mirrored_until=ALL))
    assert [each for each in found if each[0] != "not decoded"] == [("missing", [2], [])]


def test_diff_counts_an_undecodable_batch_by_its_header() -> None:
    source = [one("a", 0), one("b", 10), one("c", 20)]
    destination = [one("a", 0), one("b", 10, 9, codec=1, undecoded="large"), one("c", 19)]
    found = [each for each in diff(source, destination, DECODERS) if isinstance(each, Finding)]
    assert [each.source[0].base_offset for each in found if each.kind is Kind.MISSING] == [19]
    assert sum(each.kind is Kind.UNDECODED for each in found) == 9


def test_diff_explains_missing_batches_by_a_gap_of_the_destination() -> None:
    destination = [*stream("ab"), one("d", 30, gap=10)]
    assert differences(diff(stream("abcd"), destination, DECODERS)) == [("compacted", [2], [])]


def test_diff_explains_extra_batches_by_a_gap_of_the_source() -> None:
    source = [*stream("ab"), one("d", 30, gap=10)]
    assert differences(diff(source, stream("abcd"), DECODERS)) == [("compacted", [], [2])]


def test_diff_explains_the_last_batches_of_the_destination_by_a_gap_of_the_source() -> None:
    source = [*stream("ab"), one("d", 30, gap=10), one("e", 40)]
    found = differences(diff(source, stream("abc"), DECODERS))
    assert found == [("compacted", [], [2]), ("not mirrored yet", [3], [])]


def test_diff_explains_the_last_batches_by_a_gap_behind_an_altered_one() -> None:
    source = [*stream("abc"), one("e", 40, gap=10), one("f", 50)]
    found = differences(diff(source, stream(["a", "b'", "c", "d"]), DECODERS))
    assert found == [("altered", [1], [1]), ("compacted", [], [3]), ("not mirrored yet", [4], [])]


def test_diff_does_not_explain_an_altered_last_batch_by_a_gap() -> None:
    source = [*stream("ab"), one("d", 30, gap=10), one("e", 40)]
    destination = [*stream("ab"), one("d'", 20)]
    found = differences(diff(source, destination, DECODERS))
    assert found == [("altered", [3], [2]), ("not mirrored yet", [4], [])]


def test_diff_does_not_explain_doubles_by_a_gap() -> None:
    source = [*stream("ab"), one("d", 30, gap=10)]
    assert differences(diff(source, stream("abbd"), DECODERS)) == [("extra", [], [2])]


def test_diff_names_the_size_of_a_gap_that_is_too_small() -> None:
    destination = [*stream("ab"), one("d", 25, gap=5)]
    found = [each for each in diff(stream("abcd"), destination, DECODERS) if isinstance(each, Finding)]
    (gaps,) = {each.gaps for each in found if each.kind is Kind.COMPACTED}
    assert gaps == (Gap(25, 5), None)


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


def offsets(findings: Iterable[AnyFinding], side: int) -> list[int]:
    """Return the offsets of all records in findings, each of which is a batch."""
    found: list[int] = []
    for finding in findings:
        if isinstance(finding, Finding):
            found += [part.base_offset for part in (finding.source, finding.destination)[side]]
        else:
            same = (finding.source, finding.destination)[side]
            found += range(same.base_offset, same.next_offset)
    return found


@given(
    st.one_of(edited(), st.tuples(SMALL_ALPHABET, SMALL_ALPHABET)),
    st.sampled_from([1, 2, 5, 20, 4096]),
    st.sampled_from([0, 10, ALL]),
    st.sampled_from([0, 1, 4, 1000]),
)
def test_diff_puts_every_batch_into_one_finding_and_finds_differences(
    sides: tuple[list[str], list[str]], look_ahead: int, mirrored_until: int, packed_by: int
) -> None:
    source, destination = (stream(side, 1) for side in sides)
    findings = list(
        diff(
            packed(source, packed_by) if packed_by else source,
            packed(destination, 1000) if packed_by else destination,
            DECODERS,
            mirrored_until=mirrored_until,
            look_ahead_batches=look_ahead,
            look_ahead_records=look_ahead,
        )
    )
    kinds = Counter(finding.kind for finding in findings if isinstance(finding, Finding))
    last = findings[-1] if findings else None
    if isinstance(last, Finding) and last.kind in (Kind.NOT_MIRRORED, Kind.DIVERGED):
        findings.pop()
        source = source[: last.source_place]
        if last.kind is Kind.DIVERGED:
            destination = destination[: last.destination_place]
    assert sorted(offsets(findings, 0)) == list(range(len(source)))
    assert sorted(offsets(findings, 1)) == list(range(len(destination)))
    same = [each for each in findings if not isinstance(each, Finding) or each.kind is Kind.SAME]
    for side in (0, 1):
        assert offsets(same, side) == sorted(offsets(same, side))
    for finding in findings:
        if isinstance(finding, Finding) and finding.kind is Kind.REORDERED:
            one_side, other = finding.source[0], finding.destination[0]
            assert are_same(one_side, other)
    is_prefix = sides[0][: len(sides[1])] == sides[1]
    is_whole = is_prefix and len(sides[1]) >= min(mirrored_until, len(sides[0]))
    assert is_whole == (not kinds.keys() & {*DIFFERENCES, Kind.DIVERGED})


@given(st.lists(st.integers(0, 10**6), unique=True, min_size=2, max_size=60), st.data())
def test_diff_classifies_one_edit_of_distinct_batches(letters: list[int], data: st.DataObject) -> None:
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
def test_diff_holds_no_more_than_the_look_ahead(sides: tuple[list[str], list[str]], look_ahead: int) -> None:
    taken = Counter[str]()

    def counted(side: str, batches: list[Digest]) -> Iterator[Digest]:
        for batch in batches:
            taken[side] += 1
            yield batch

    out = Counter[str]()
    source, destination = (stream(side, 1) for side in sides)
    for finding in diff(
        counted("source", source),
        counted("destination", destination),
        DECODERS,
        look_ahead_batches=look_ahead,
        look_ahead_records=look_ahead,
    ):
        out["source"] += len(offsets([finding], 0))
        out["destination"] += len(offsets([finding], 1))
        held = taken - out
        # The look ahead, the records that may turn up elsewhere, one run that is
        # yielded, and a record of each side behind it.
        assert held.total() <= 2 * look_ahead + look_ahead + 2 * look_ahead + 4
