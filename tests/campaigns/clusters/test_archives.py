"""Everything is killed in the middle of archive and restore by ``shoal mirror``, and the copy is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig import two_clusters
from rig.shoal import serve_broker
from tests.campaigns.report import line_of
from tests.nights import night_seeds

from .archives import ARCHIVES, draw_archive, run_archive

#: The seeds of `make test-clusters`, and those of the nights.
_SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in night_seeds(30))]


@pytest.fixture(scope="module", params=["real", pytest.param("embedded", marks=pytest.mark.long)])
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    if request.param == "embedded":
        with serve_broker() as source, serve_broker() as destination:
            yield source.address, destination.address
        return
    with two_clusters() as (source, destination):
        yield source.bootstrap, destination.bootstrap


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", _SEEDS)
def test_archive_and_restore_are_exact_after_kills(
    clusters: tuple[str, str], tmp_path: Path, seed: int
) -> None:
    outcome = run_archive(draw_archive(seed), *clusters, tmp_path)
    assert outcome.is_exact, line_of(outcome)
    assert outcome.comparison.due > 0


def test_plans_of_archives_have_all_kills_and_both_ways() -> None:
    plans = [draw_archive(seed) for seed in range(20)]
    assert {name for plan in plans for name in plan.events} == set(ARCHIVES.events)
    assert all({step.run.name for step in plan.steps} == set(ARCHIVES.ways) for plan in plans)
