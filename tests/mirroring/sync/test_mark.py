"""The mark in the metadata of a translated offset."""

from __future__ import annotations

from shoal.client.group_offsets import CommittedValue
from shoal.mirroring.model.offset_map import Exactness, Translation
from shoal.mirroring.sync.report import LARGEST_METADATA, Mark


def value(offset: int, metadata: str = "") -> CommittedValue:
    return CommittedValue(offset, metadata, 0)


def test_mark_of_a_marked_offset_passes_on_the_consumers_metadata_alone() -> None:
    first = Mark.of("A", value(7, "mine"), Translation(5, Exactness.EXACT))
    second = Mark.of("B", value(5, first.to_metadata()), Translation(3, Exactness.EXACT))
    assert second.to_metadata() == "translated-by-shoal/1 B 5 3 exact mine"


def test_metadata_that_does_not_fit_is_left_out() -> None:
    mark = Mark.of("A", value(7), Translation(5, Exactness.EXACT))
    most = LARGEST_METADATA - len(mark.alone) - 1
    fits = Mark.of("A", value(7, "x" * most), Translation(5, Exactness.EXACT))
    assert len(fits.to_metadata()) == LARGEST_METADATA
    assert fits.was_committed_as(fits)
    longer = Mark.of("A", value(7, "x" * (most + 1)), Translation(5, Exactness.EXACT))
    found = Mark.read(value(5, longer.to_metadata()), "A")
    assert found is not None
    assert found.passed_on == ""
    assert longer.was_committed_as(found)
    moved = Mark.of("A", value(8, "x" * (most + 1)), Translation(6, Exactness.EXACT))
    assert not moved.was_committed_as(found)
