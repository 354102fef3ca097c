"""A ratio is quoted only if its turns repeat; an aim is met, missed, not measured or undecided."""

import pytest

from bench.aims import AIMS, Bound, Times, against_before, for_readme, table, verdict
from bench.figures import Figure, Figures, Key, Ratio

CHEAP, DEAR = Key("b16_lz4", "shoal, native", "CPU-s/GB"), Key("b16_lz4", "MirrorMaker 2, tuned", "CPU-s/GB")


def test_figure_prints_its_median_and_its_extremes() -> None:
    assert f"{Figure([3.0, 1.0, 2.0]):.1f}" == "2.0 (1.0 to 3.0)"
    assert f"{Figure([2.01, 2.02, 2.04]):.1f}" == "2.0"


@pytest.mark.parametrize(
    ("turns", "is_quotable"),
    [
        pytest.param([20.0, 21.0, 22.9], True, id="three within 15 percent"),
        pytest.param([20.0, 21.0, 23.1], False, id="three that differ by more"),
        pytest.param([20.0, 20.0], False, id="two"),
        pytest.param([-1.0, 20.0, 20.0], False, id="one is negative"),
    ],
)
def test_ratio_is_quotable_if_three_turns_repeat_within_15_percent(
    turns: list[float], is_quotable: bool
) -> None:
    ratio = Ratio(turns)
    assert ratio.is_quotable is is_quotable
    assert str(ratio).startswith("not quoted") is not is_quotable


def test_ratio_divides_the_figures_turn_by_turn() -> None:
    assert Ratio.of(Figure([10.0, 30.0]), Figure([1.0, 2.0])).turns == [10.0, 15.0]


@pytest.mark.parametrize(
    ("dear", "found"),
    [
        pytest.param([20.0, 21.0, 22.0], "met", id="repeats above"),
        pytest.param([17.0, 18.0, 19.0], "**missed**", id="repeats below"),
        pytest.param([20.0, 30.0, 40.0], "met", id="does not repeat, but all are above"),
        pytest.param([10.0, 30.0, 40.0], "undecided: too few runs, or they differ", id="does not repeat"),
        pytest.param([30.0, 30.0], "undecided: too few runs, or they differ", id="two runs"),
        pytest.param(None, "not measured", id="not measured"),
    ],
)
def test_ratio_aim_is_judged_by_repeated_runs(dear: list[float] | None, found: str) -> None:
    aim = Times("1/20", DEAR, CHEAP, at_least=20)
    figures = {CHEAP: Figure([1.0, 1.0, 1.0])}
    if dear is not None:
        figures[DEAR] = Figure(dear)
    assert verdict(aim, figures) == found


def test_bound_is_judged_by_the_median() -> None:
    figures = {CHEAP: Figure([0.8, 0.9, 5.0])}
    assert verdict(Bound("at most 0.9", CHEAP, at_most=0.9), figures) == "met"
    assert verdict(Bound("at least 1", CHEAP, at_least=1), figures) == "**missed**"


def test_table_has_every_aim_once() -> None:
    texts = [aim.text for aim in AIMS]
    assert len(set(texts)) == len(texts)
    assert len(table({}).splitlines()) == 2 + len(AIMS)


def test_readme_omits_a_ratio_that_does_not_repeat() -> None:
    figures: Figures = {DEAR: Figure([20.0, 20.0, 20.0]), CHEAP: Figure([1.0, 1.0, 1.0])}
    assert "1.00 (1/20)" in for_readme(figures)
    figures[DEAR] = Figure([20.0, 30.0, 20.0])
    assert "(1/" not in for_readme(figures)


@pytest.mark.parametrize(
    ("quantity", "before", "now", "change"),
    [
        ("CPU-s/GB", [1.0, 1.0, 1.0], [1.2, 1.1, 1.3], "**worse**"),
        ("CPU-s/GB", [1.0, 1.0, 1.0], [1.2, 0.9, 1.3], "the same"),
        ("CPU-s/GB", [1.0, 1.0, 1.0], [0.5, 0.6, 0.5], "better"),
        ("CPU-s/GB", [1.0], [2.0], "too few runs"),
        ("wire MB/s a core", [100.0, 100.0, 100.0], [80.0, 80.0, 80.0], "**worse**"),
    ],
)
def test_change_is_worse_if_every_turn_is(
    quantity: str, before: list[float], now: list[float], change: str
) -> None:
    keys = [Key("row", f"shoal, {each}", quantity) for each in ("before", "native")]
    figures = dict(zip(keys, map(Figure, (before, now)), strict=True))
    assert f"| {change} |" in against_before(figures)
