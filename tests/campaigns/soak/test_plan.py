"""The disturbances of a soak are drawn from its seed."""

from __future__ import annotations

import itertools
from collections import Counter

from tests.campaigns.soak.plan import Kind, draw


def test_plan_depends_only_on_its_seed() -> None:
    assert draw(1, 60) == draw(1, 60)
    assert draw(1, 60) != draw(2, 60)


def test_short_soak_has_the_required_disturbances() -> None:
    kinds = Counter(str(each) for each in draw(0, 2).disturbances)
    assert kinds == {
        "leaders move (source)": 1,
        "leaders move (destination)": 1,
        "clean restart of a broker (source)": 1,
        "clean restart of a broker (destination)": 1,
        "new topic (source)": 1,
        "new partition (source)": 1,
    }


def test_long_soak_repeats_all_disturbances_and_ends_quietly() -> None:
    for seed in range(10):
        plan = draw(seed, 60)
        moments = [each.at_s for each in plan.disturbances]
        gaps = [after - before for before, after in itertools.pairwise(moments)]
        assert {each.kind for each in plan.disturbances} == set(Kind)
        assert 60 < min(gaps) <= max(gaps) < 180
        assert moments[-1] < plan.seconds - 120
        restarts = [each.at_s for each in plan.disturbances if each.kind is Kind.RESTART_MIRROR]
        assert [300 < at_s < 900 for at_s in restarts] == [True]
