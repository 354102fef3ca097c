"""The soak of `make soak`, in three minutes from start to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.soak.plan import Setup, draw
from tests.campaigns.soak.report import lag, markdown, undisturbed
from tests.campaigns.soak.run import soak

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
