"""Where two logs have the same in common first, found by content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from digests import RECORDS, stream
from hypothesis import given
from hypothesis import strategies as st

from shoal.mirroring.verify.common_start import HEAD_BATCHES, CommonStart, common_start
from shoal.mirroring.verify.diff import diff
from shoal.mirroring.verify.digest import Digest
from shoal.mirroring.verify.finding import Kind


def start(source: Sequence[Digest], destination: Sequence[Digest], **options: bool) -> CommonStart | None:
    return common_start(source[:HEAD_BATCHES], destination[:HEAD_BATCHES], source, destination, **options)


def numbers(found: CommonStart | None) -> tuple[int, int] | None:
    return found and (found.source // RECORDS, found.destination // RECORDS)


@given(st.integers(1, 200), st.data())
def test_a_mirror_is_found_whatever_was_deleted_on_either_side(length: int, data: st.DataObject) -> None:
    source = stream(range(length))
    mirrored_from = data.draw(st.integers(0, length - 1))
    destination = stream(range(mirrored_from, length))
    source = source[data.draw(st.integers(0, length - 1)) :]
    destination = destination[data.draw(st.integers(0, len(destination) - 1)) :]
    found = start(source, destination)
    assert found is not None
    ours = [batch for batch in source if batch.base_offset >= found.source]
    theirs = [batch for batch in destination if batch.base_offset >= found.destination]
    assert {finding.kind for finding in diff(ours, theirs)} == {Kind.SAME}
    # All that both sides have, and nothing else.
    assert len(ours) == len(theirs) == min(len(source), len(destination))


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        # The first batch is in the source twice: that counts from which on the rest follows.
        ("aabcdefghij", "abcdefghij", (1, 0)),
        # Altered, missing, doubled, reordered at the very beginning.
        ("zabcdefghijklm", ["a'", *"bcdefghijklm"], (1, 0)),
        ("zabcdefghijklm", "acdefghijklm", (1, 0)),
        ("zabcdefghijklm", "aabcdefghijklm", (1, 0)),
        ("zabcdefghijklm", "bacdefghijklm", (1, 0)),
        # Somebody else's batch in front.
        ("zabcdefghijklm", "Xabcdefghijklm", (1, 0)),
        # Too short for a proof.
        ("zabc", "bc", (2, 0)),
        ("zabc", "c", (3, 0)),
        ("abcdefghijklm", "xyz", None),
        ("", "a", None),
        ("a", "", None),
    ],
)
def test_beginnings_that_are_not_simple(
    source: Sequence[str], destination: Sequence[str], expected: tuple[int, int] | None
) -> None:
    assert numbers(start(stream(source), stream(destination))) == expected


def test_what_only_the_destination_has_first_was_deleted_in_the_source_or_is_extra() -> None:
    source, destination = stream("bcdefghijklm"), stream("abcdefghijklm")
    assert numbers(start(source, destination)) == (0, 1)
    assert numbers(start(source, destination, source_is_whole=True)) == (0, 0)


def test_from_the_middle_only_the_whole_head_is_found() -> None:
    source, destination = stream("bcdefghijklm"), stream("abcdefghijklm")
    assert start(source, destination, from_the_start=False) == CommonStart(0, RECORDS)
    assert start(stream("bcdefghijklm"), stream("xcdefghijklm"), from_the_start=False) is None


def test_no_more_is_read_than_needed() -> None:
    taken = []

    def counted(side: str, batches: Sequence[Digest]) -> Iterator[Digest]:
        for batch in batches:
            taken.append(side)
            yield batch

    source, destination = stream(range(1000)), stream(range(100, 1000))
    found = common_start(
        source[:HEAD_BATCHES],
        destination[:HEAD_BATCHES],
        counted("source", source),
        counted("destination", destination),
    )
    assert numbers(found) == (100, 0)
    assert taken.count("source") <= 100 + 8
    assert taken.count("destination") <= 100 + 8
