"""Everything is killed in the middle of archive and restore by ``shoal mirror``, and the copy is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig import two_clusters
from rig.shoal import serve_broker

from .archives import ArchiveTrial

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

#: The seeds of `make test-clusters`, and those of the nights.
_SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1_000, 1_030))]


@pytest.fixture(scope="module")
def embedded() -> Iterator[tuple[str, str]]:
    with serve_broker() as source, serve_broker() as destination:
        yield source.address, destination.address


@pytest.fixture(scope="module")
def real() -> Iterator[tuple[str, str]]:
    with two_clusters() as (source, destination):
        yield source.bootstrap, destination.bootstrap


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", ["real", pytest.param("embedded", marks=pytest.mark.long)])
def test_archive_and_restore_are_exact_after_kills_of_every_process(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, seed: int
) -> None:
    source, destination = request.getfixturevalue(kind)
    trial = ArchiveTrial(seed, source, destination, tmp_path)
    verdict = trial.run()
    assert verdict.is_exact, (verdict, verdict.details)
    assert verdict.due > 0
    assert trial.killed > 0
    assert trial.differences() == []
