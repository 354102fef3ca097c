"""The mutants' own tests; the last one runs pytest against mutants of this package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.areas import AREAS, ROOT, module_named, modules_of, name_of
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import mutate, sites
from tests.mutants.run import Runs
from tests.mutants.survey import Survey, survey
from tests.mutants.trial import Verdict, draw, try_mutant


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", ["a <= b"]),
        ("a >= b", ["a > b"]),
        ("a == b", ["a != b"]),
        ("a is not None", ["a is None"]),
        ("a not in b", ["a in b"]),
        ("a < b < c", ["a <= b < c", "a < b <= c"]),
        ("a and b and c", ["a or b or c"]),
        ("not a", ["a"]),
        ("a_at < b", ["a_at >= b"]),
        ("time.monotonic() - a >= b", ["time.monotonic() + a >= b", "time.monotonic() - a < b"]),
        ("a_s == b", ["a_s != b"]),
        ("a + b", ["a - b"]),
        ("a -= 1", ["a += 1"]),
        ("f(a + 1, not b)", ["f(a - 1, not b)", "f(a + 1, b)"]),
        ("assert a < b", []),
        ("a * -b", []),
        ("a + 'text'", []),
        ("a + b + ['entry']", ["a - b + ['entry']"]),
    ],
)
def test_each_place_is_mutated_alone(before: str, after: list[str]) -> None:
    assert [mutate(before, site.number) for site in sites(before)] == after


def test_equivalent_mutants_exist() -> None:
    for module, before, after in EQUIVALENT:
        found = sites(module_named(module).read_text(encoding="utf-8"))
        assert (before, after) in [(site.before, site.after) for site in found], module


def test_tests_of_each_area_exist() -> None:
    assert [test for area in AREAS.values() for test in area.tests if not (ROOT / test).exists()] == []


def test_draw_depends_on_its_seed_alone_and_takes_lines_that_no_test_executes() -> None:
    modules = modules_of(["records"])
    executed = {name_of(module): {line: ["slow", "quick"] for line in range(1, 200)} for module in modules}
    seconds = {"slow": 2.0, "quick": 1.0}
    surveyed = Survey("", seconds, {}, executed)
    drawn, executed_count, count = draw(surveyed, modules, 1, 30)
    assert len(drawn) == 30 < executed_count < count
    assert {mutant.tests for mutant in drawn} == {("quick", "slow"), ()}
    assert all((mutant.site.line < 200) == bool(mutant.tests) for mutant in drawn)
    assert draw(surveyed, modules, 1, 4)[0] == drawn[:4]
    assert draw(surveyed, modules, 2, 30)[0] != drawn
    among_others = draw(surveyed, modules_of(["records", "protocol"]), 1, 100_000)[0]
    assert [each for each in among_others if each.module in executed][:30] == drawn
    assert {mutant.tests for mutant in draw(surveyed, modules, 1, 30, 1)[0]} == {("quick",), ()}
    nothing = draw(Survey("", seconds, {}, {}), modules, 1, 30)[0]
    assert [mutant.site for mutant in nothing] == [mutant.site for mutant in drawn]


@pytest.mark.long
def test_mutant_is_killed_by_a_test_of_its_line_and_survives_the_others(tmp_path: Path) -> None:
    """Run pytest against mutants of a small module."""
    runs, kept, tests = Runs(), tmp_path / "survey", ["tests/net/test_address.py"]
    surveyed = survey(runs, tests, kept)
    assert surveyed.failed == {}
    assert survey(runs, tests, kept) == surveyed
    mutants, _, _ = draw(surveyed, [module_named("shoal/net/address.py")], 0, 100)
    mutant = next(each for each in mutants if each.site.before == "not addresses")
    killed = try_mutant(runs, surveyed, mutant)
    assert (killed.verdict, killed.killer in mutant.tests) == (Verdict.KILLED, True)
    others = tuple(sorted(surveyed.seconds.keys() - set(mutant.tests)))
    assert others
    assert try_mutant(runs, surveyed, replace(mutant, tests=others)).verdict is Verdict.SURVIVED


@pytest.mark.long
def test_mutant_of_the_broker_is_killed_by_its_own_test(tmp_path: Path) -> None:
    """The unmutated broker must not be the one that Python finds first."""
    runs, tests = Runs(), ["tests/broker/storage/test_walk.py"]
    surveyed = survey(runs, tests, None)
    mutants, _, _ = draw(surveyed, [module_named("shoal_broker/storage/walk.py")], 0, 100)
    assert Verdict.KILLED in {
        try_mutant(runs, surveyed, each).verdict for each in [each for each in mutants if each.tests][:3]
    }
