"""The soak of `make soak`, in three minutes from start to end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.campaigns.soak.memory import MemorySample, Role, growth_per_hour
from tests.campaigns.soak.plan import Setup, draw
from tests.campaigns.soak.report import lag, markdown, undisturbed
from tests.campaigns.soak.world import soak

#: Of load; the third minute is for starting six brokers and Spark, and for the comparison.
MINUTES = 2.0
REFRESH_S = 5

#: Loose, since a busy machine of two cores cannot measure lag. The benchmark does.
LAG_MS = 3_000
ENDS_WITHIN_S = 20.0
NOTICED_WITHIN_S = 45.0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_mirror_under_constant_disturbances_is_exact(tmp_path: Path) -> None:
    said: list[str] = []
    setup = Setup(
        seconds=MINUTES * 60,
        refresh_s=REFRESH_S,
        ends_within_s=ENDS_WITHIN_S,
        noticed_within_s=NOTICED_WITHIN_S,
    )
    plan = draw(0, setup)
    outcome = soak(plan, tmp_path / "logs", said.append)
    assert outcome.problems == [], "\n".join(said)
    assert outcome.comparison.is_exact
    assert outcome.comparison.due > 100 * MINUTES * 60
    assert outcome.verified == 0
    assert outcome.transactions["committed"] > 0
    assert outcome.transactions["aborted"] > 0
    assert len(outcome.windows) == 6
    assert lag(undisturbed(outcome)).p50 < LAG_MS
    assert "| lost | 0 |" in markdown(outcome)


def growth_of(*sizes: float) -> float:
    """Return the growth in an hour of samples ten seconds apart."""
    samples = [
        MemorySample(10.0 * each, 1, dict.fromkeys(Role, int(size))) for each, size in enumerate(sizes)
    ]
    return growth_per_hour(samples, Role.WORKERS)


def test_growth_of_memory_is_distinguished_from_noise_and_from_a_short_lived_worker() -> None:
    dice = Random(0)
    grows = (1e8 + second * 10 / 3600 * 5e7 + dice.gauss(0, 2e6) for second in range(180))
    assert growth_of(*grows) == pytest.approx(5e7, rel=0.1)
    assert growth_of(*(1e8 + 6e7 * (100 < number < 110) for number in range(180))) == 0
