"""The mutants' own tests; the last one runs pytest against mutants of this package."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.areas import AREAS, ROOT, module_named, modules_of, name_of
from tests.mutants.mutations import Site, mutate, sites
from tests.mutants.report import share_of, table_of, write_json
from tests.mutants.run import BrokenRun, Outcome, Runs
from tests.mutants.survey import Survey, survey
from tests.mutants.trial import Mutant, Result, Verdict, draw, judge, try_mutant

MUTANT = Mutant("shoal/records/batch.py", Site(0, 7, "a < b", "a <= b"), ("one", "two"))


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


def test_site_names_its_line_and_both_expressions() -> None:
    source = "def f(a):\n    # a comment\n    return (\n        a <\n        3)\n"
    assert sites(source) == [Site(0, 4, "a < 3", "a <= 3")]


def test_mutants_of_each_area_differ_from_the_source_in_one_place() -> None:
    for area in AREAS:
        modules = modules_of([area])
        source, site = next(
            (source, found[-1])
            for module in modules
            if (found := sites(source := module.read_text(encoding="utf-8")))
        )
        before, after = ast.unparse(ast.parse(source)), mutate(source, site.number)
        changed = [
            pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]
        ]
        assert len(changed) == 1, area


def test_tests_of_each_area_exist() -> None:
    assert [test for area in AREAS.values() for test in area.tests if not (ROOT / test).exists()] == []


@pytest.mark.parametrize(
    ("outcome", "verdict", "killer"),
    [
        (Outcome(1, {"one": 0.1}, {"two": "AssertionError"}, None), Verdict.KILLED, "two"),
        (Outcome(1, {"one": 0.1}, {}, "two"), Verdict.TIMED_OUT, "two"),
        (Outcome(None, {}, {}, "one"), Verdict.TIMED_OUT, "one"),
        (Outcome(-11, {}, {}, "one"), Verdict.KILLED, "one"),
        (Outcome(4, {}, {}, None), Verdict.KILLED, "(import)"),
        (Outcome(0, {"one": 0.1, "two": 0.1}, {}, None), Verdict.SURVIVED, None),
    ],
)
def test_verdict_follows_from_the_run(outcome: Outcome, verdict: Verdict, killer: str | None) -> None:
    result = judge(MUTANT, outcome)
    assert (result.verdict, result.killer) == (verdict, killer)


def test_run_that_left_out_a_test_has_no_verdict() -> None:
    with pytest.raises(BrokenRun, match="two"):
        judge(MUTANT, Outcome(0, {"one": 0.1}, {}, None))


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
    assert {mutant.tests for mutant in draw(surveyed, modules, 1, 30, 1)[0]} == {("quick",), ()}
    nothing = draw(Survey("", seconds, {}, {}), modules, 1, 30)[0]
    assert [mutant.site for mutant in nothing] == [mutant.site for mutant in drawn]


def test_mutant_that_no_test_executes_is_not_run_and_not_killed() -> None:
    result = try_mutant(Runs(), Survey("", {}, {}, {}), replace(MUTANT, tests=()))
    assert result == Result(replace(MUTANT, tests=()), Verdict.NOT_RUN)
    assert share_of([result]) == "0 of 1 killed, 0 of them by time; 1 in lines that no test runs"


def test_report_lists_survivors_first_and_counts_the_killed(tmp_path: Path) -> None:
    killed = Result(MUTANT, Verdict.KILLED, "one", "AssertionError")
    survived = Result(MUTANT, Verdict.SURVIVED)
    lines = table_of([killed, survived]).splitlines()
    assert lines[2] == "| shoal/records/batch.py:7 | `a < b → a <= b` | **survived** 2 tests |"
    assert lines[3].endswith("| killed by one |")
    assert share_of([killed, survived]) == "1 of 2 killed, 0 of them by time; 0 in lines that no test runs"
    write_json(tmp_path / "results", [killed, survived], seed=3)
    written = json.loads((tmp_path / "results").read_text(encoding="utf-8"))
    assert written["seed"] == 3
    assert [each["verdict"] for each in written["mutants"]] == ["killed", "survived"]


def test_run_without_the_chosen_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenRun):
        Runs().run(tmp_path / "nothing", ["tests/test_printable.py"], tmp_path)


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


def test_mutant_of_the_broker_is_killed_by_its_own_test(tmp_path: Path) -> None:
    """The unmutated broker must not be the one that Python finds first."""
    runs, tests = Runs(), ["tests/broker/storage/test_walk.py"]
    surveyed = survey(runs, tests, None)
    mutants, _, _ = draw(surveyed, [module_named("shoal_broker/storage/walk.py")], 0, 100)
    assert Verdict.KILLED in {
        try_mutant(runs, surveyed, each).verdict for each in [each for each in mutants if each.tests][:3]
    }
