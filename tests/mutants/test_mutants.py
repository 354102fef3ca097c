"""The mutants' own tests; the last one runs pytest against mutants of this package."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.mutants.__main__ import Share
from tests.mutants.areas import AREAS, ROOT, module_named, modules_of, name_of
from tests.mutants.equivalent import EQUIVALENT, reason_for
from tests.mutants.mutations import Site, mutate, sites
from tests.mutants.trial import Survey, Verdict, draw, survey, try_mutant


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


def test_equivalent_mutants_are_each_in_one_line() -> None:
    for each in EQUIVALENT:
        module, within = each.within.split("::")
        found = sites(module_named(module).read_text(encoding="utf-8"))
        lines = {
            site.line for site in found if (site.within, site.before, site.after) == (within, *each[1:3])
        }
        assert len(lines) == 1, each


def test_equal_expression_in_another_function_is_not_equivalent() -> None:
    module, within = EQUIVALENT[0].within.split("::")
    site = Site(0, 1, EQUIVALENT[0].before, EQUIVALENT[0].after, within)
    assert reason_for(module, site) == EQUIVALENT[0].reason
    assert reason_for(module, site._replace(within="another")) is None


@pytest.mark.parametrize(
    ("verdicts", "least", "exit_code"),
    [
        ({"killed": 4, "timed out": 2, "survived": 1, "not run": 2, "equivalent": 1}, 66, 0),
        ({"killed": 4, "timed out": 2, "survived": 1, "not run": 2, "equivalent": 1}, 67, 1),
        ({"killed": 3, "equivalent": 5}, 100, 0),
        ({"survived": 3}, 0, 0),
        ({}, 0, 0),
        ({"equivalent": 2}, 1, 1),
    ],
)
def test_share_below_the_least_is_exit_code_1(verdicts: dict[str, int], least: int, exit_code: int) -> None:
    share = Share(Counter({Verdict(name): count for name, count in verdicts.items()}), least)
    assert share.exit_code == exit_code
    assert re.search(rf"{share.percent:.1f} % of {share.judged}\b.*\b{least} %", share.sentence)
    assert f" {verdicts.get('survived', 0) + verdicts.get('not run', 0)} survived" in share.sentence


def test_tests_of_each_area_exist() -> None:
    assert [test for area in AREAS.values() for test in area.tests if not (ROOT / test).exists()] == []


def test_draw_depends_on_its_seed_alone_and_takes_lines_that_no_test_executes() -> None:
    modules = modules_of(["records"])
    executed = {name_of(module): {line: ["slow", "quick"] for line in range(1, 200)} for module in modules}
    seconds = {"slow": 2.0, "quick": 1.0}
    surveyed = Survey(seconds, executed)
    drawn, executed_count, count = draw(surveyed, modules, 1, 30)
    assert len(drawn) == 30 < executed_count < count
    assert {mutant.tests for mutant in drawn} == {("quick", "slow"), ()}
    assert all((mutant.site.line < 200) == bool(mutant.tests) for mutant in drawn)
    assert draw(surveyed, modules, 1, 4)[0] == drawn[:4]
    assert draw(surveyed, modules, 2, 30)[0] != drawn
    among_others = draw(surveyed, modules_of(["records", "protocol"]), 1, 100_000)[0]
    assert [each for each in among_others if each.module in executed][:30] == drawn
    assert {mutant.tests for mutant in draw(surveyed, modules, 1, 30, 1)[0]} == {("quick",), ()}
    nothing = draw(Survey(seconds, {}), modules, 1, 30)[0]
    assert [mutant.site for mutant in nothing] == [mutant.site for mutant in drawn]


@pytest.mark.long
def test_mutant_is_killed_by_a_test_of_its_line_and_survives_the_others() -> None:
    """Run pytest against a mutant of a small module."""
    surveyed = survey(["tests/net/test_address.py"])
    mutants, _, _ = draw(surveyed, [module_named("shoal/net/address.py")], 0, 100)
    mutant = next(each for each in mutants if each.site.before == "not addresses")
    killed = try_mutant(surveyed, mutant)
    assert (killed.verdict, killed.said.split(" - ")[0] in mutant.tests) == (Verdict.KILLED, True)
    others = tuple(sorted(surveyed.seconds.keys() - set(mutant.tests)))
    assert others
    assert try_mutant(surveyed, replace(mutant, tests=others)).verdict is Verdict.SURVIVED


@pytest.mark.long
def test_mutant_of_the_broker_is_killed_by_its_own_test() -> None:
    """The unmutated broker must not be the one that Python finds first."""
    surveyed = survey(["tests/broker/storage/test_walk.py"])
    mutants, _, _ = draw(surveyed, [module_named("shoal_broker/storage/walk.py")], 0, 100)
    assert Verdict.KILLED in {
        try_mutant(surveyed, each).verdict for each in [each for each in mutants if each.tests][:3]
    }
