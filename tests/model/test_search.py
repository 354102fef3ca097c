"""The search finds each state once, shortest histories, and states from which nothing ends."""

from __future__ import annotations

import pytest

from tests.model.search import Found, search

#: 0 leads to 1 and 2, 1 ends at 3, and 2 and 4 lead only to each other.
STEPS = {0: (1, 2), 1: (3,), 2: (4,), 3: (), 4: (2,)}


def found(steps: dict[int, tuple[int, ...]]) -> Found[int]:
    return search(
        0,
        lambda state: ((f"to {following}", following) for following in steps[state]),
        lambda state: None,
        lambda state: "end" if state == 3 else None,
        must_end=True,
    )


def test_search_names_the_first_state_that_cannot_end() -> None:
    result = found(STEPS)
    assert (result.states, result.endings) == (5, {"end": ("to 1", "to 3")})
    assert result.trapped == ("to 2",)


@pytest.mark.parametrize("way_out", [1, 3])
def test_search_finds_no_trap_if_each_state_can_end(way_out: int) -> None:
    assert found({**STEPS, 4: (2, way_out)}).trapped is None
