"""``--topics`` that selects nothing: the error names the expression to write instead."""

from __future__ import annotations

import pytest

from shoal.client.metadata import TopicMetadata
from shoal.errors import ConfigError
from shoal.mirroring.model.topics import TopicSelection, regex_of_glob
from shoal.mirroring.prepare.unmatched import glob_warnings, why_nothing_matches

TOPICS = {
    name: TopicMetadata(name, None, name == "__consumer_offsets", {})
    for name in ("h_none", "h_zstd", "a.b-c", "__consumer_offsets")
}


def why(topics: str, exclude: str | None = None) -> str:
    selection = TopicSelection(topics, exclude)
    assert selection.select(TOPICS) == {}
    return why_nothing_matches(selection, TOPICS, "the source cluster")


@pytest.mark.parametrize(
    ("topics", "meant"), [("h_*", "h_.*"), ("x.*,h_*", "h_.*"), ("a.?-*", r"a\..-.*"), ("h_zst?", "h_zst.")]
)
def test_unmatched_glob_suggests_its_regular_expression(topics: str, meant: str) -> None:
    assert all(each in why(topics) for each in (f"selection '{topics}'", f"mean '{meant}' by"))


@pytest.mark.parametrize(("topics", "meant"), [("*", ".*"), ("*.v1", r".*\.v1"), ("h_**", "h_.*.*")])
def test_invalid_expression_that_is_a_glob_suggests_its_expression(topics: str, meant: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TopicSelection(topics)
    assert all(each in str(raised.value) for each in (f"'{topics}'", "expression"))
    assert all(each in str(raised.value) for each in ("mean", f"'{meant}'?"))


def test_invalid_expression_without_wildcards_has_no_suggestion() -> None:
    with pytest.raises(ConfigError) as raised:
        TopicSelection("a(b")
    assert "Did you mean" not in str(raised.value)


def test_exclusion_that_leaves_nothing_is_named() -> None:
    found = why("h_.*", ".*")
    assert ("selection 'h_.*'" in found, "exclusion '.*'" in found, "mean" in found) == (True, True, False)


def test_cluster_without_visible_topics_is_named() -> None:
    assert "allow DESCRIBE" in why_nothing_matches(TopicSelection(".*"), {}, "the cluster")


def test_text_without_wildcards_has_no_glob_suggestion() -> None:
    assert regex_of_glob("orders") is None


@pytest.mark.parametrize(
    ("topics", "exclude", "meant"),
    [
        (".*", "h_*", ["'h_.*' by 'h_*'"]),
        (".*", "x_*", []),  # such a topic may come
        (".*", "h_.*", []),
        ("a.b-c,h_*", None, ["'h_.*' by 'h_*'"]),
        ("h_.*,x.*", None, []),
    ],
)
def test_glob_that_would_match_topics_is_a_warning(
    topics: str, exclude: str | None, meant: list[str]
) -> None:
    selection = TopicSelection(topics, exclude)
    assert selection.select(TOPICS)
    warnings = glob_warnings(selection, TOPICS)
    assert [
        (each in warning, "h_none, h_zstd" in warning) for each, warning in zip(meant, warnings, strict=True)
    ] == [(True, True)] * len(meant)
