"""The events of a soak are drawn from its seed."""

from __future__ import annotations

import itertools
from collections import Counter

from tests.campaigns.soak.plan import EVENTS, Setup, draw


def test_plan_depends_only_on_its_seed() -> None:
    assert str(draw(1, Setup(3600))) == str(draw(1, Setup(3600)))
    assert str(draw(1, Setup(3600))) != str(draw(2, Setup(3600)))


def test_short_soak_has_the_required_events() -> None:
    assert Counter(draw(0, Setup(120)).events) == {
        "leaders of the source move": 1,
        "leaders of the destination move": 1,
        "broker of the source restarts": 1,
        "broker of the destination restarts": 1,
        "topic is created": 1,
        "partition is added": 1,
    }


def test_long_soak_repeats_all_events_and_ends_quietly() -> None:
    for seed in range(10):
        plan = draw(seed, Setup(3600))
        # Each step ends at the moment of the next one's event, and the last one at the end of the load.
        moments = [float(step.run.name.split()[1]) for step in plan.steps]
        gaps = [after - before for before, after in itertools.pairwise(moments)]
        assert set(plan.events) == set(EVENTS)
        assert 60 < min(gaps[:-1]) <= max(gaps[:-1]) < 180
        assert moments[-2] < moments[-1] - 120
        restarts = [
            at_s
            for at_s, step in zip(moments, plan.steps[1:], strict=False)
            if "mirror is restarted" in str(step)
        ]
        assert [300 < at_s < 900 for at_s in restarts] == [True]
