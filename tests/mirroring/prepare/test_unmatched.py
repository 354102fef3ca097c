"""``--topics`` that selects nothing: the error names the expression to write instead."""

from __future__ import annotations

import re

import pytest

from shoal.client.metadata import TopicMetadata
from shoal.errors import ConfigError
from shoal.mirroring.model.topics import TopicSelection, regex_of_glob
from shoal.mirroring.prepare.unmatched import idle_expressions, near_topics, why_nothing_matches

TOPICS = {
    name: TopicMetadata(name, None, name == "__consumer_offsets", {})
    for name in ("h_none", "h_zstd", "a.b-c", "__consumer_offsets")
}


def why(topics: str, exclude: str | None = None) -> str:
    selection = TopicSelection(topics, exclude)
    assert selection.select(TOPICS) == {}
    return why_nothing_matches(selection, TOPICS, "the source cluster")


@pytest.mark.parametrize(
    ("topics", "meant"),
    [("h_*", "h_.*"), ("x.*,h_*", "h_.*"), ("a.?-*", r"a\..-.*"), ("h_zst?", "h_zst.")],
)
def test_unmatched_glob_suggests_its_regular_expression(topics: str, meant: str) -> None:
    assert all(each in why(topics) for each in (f"selection '{topics}'", f"mean '{meant}'?", "globs"))


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


def test_exclusion_of_all_matches_is_named() -> None:
    found = why("h_.*", ".*")
    assert all(each in found for each in ("exclusion '.*'", "'h_.*'", "(h_none, h_zstd)"))
    assert "exclusion 'h_.*'" in why("h_none", "h_.*")


def test_ineffective_exclusion_is_not_named() -> None:
    found = why("x.*", ".*")
    assert ("selection 'x.*'" in found, "exclusion" in found) == (True, False)


def test_expression_that_matches_only_internal_topics_is_explained() -> None:
    assert all(each in why("__.*") for each in ("internal topic", "__consumer_offsets"))


def test_cluster_without_visible_topics_is_named() -> None:
    assert "allow DESCRIBE" in why_nothing_matches(TopicSelection(".*"), {}, "the cluster")


def test_prefix_of_names_suggests_an_expression() -> None:
    assert re.findall(r"'.*'|h_\w+", near_topics("h_", TOPICS)) == ["'h_.*'", "h_none", "h_zstd"]
    assert re.findall(r"'.*'|a\.\w.*", near_topics("a.", TOPICS)) == [r"'a\..*'", "a.b-c"]


def test_mistyped_name_suggests_the_nearest() -> None:
    assert re.findall(r"h_\w+", near_topics("h_nome", TOPICS)) == ["h_none"]
    assert near_topics("payments", TOPICS) == ""


def test_text_without_wildcards_has_no_glob_suggestion() -> None:
    assert regex_of_glob("orders") is None


H_MEANT = ". Did you mean 'h_.*'? It matches h_none, h_zstd"


@pytest.mark.parametrize(
    ("topics", "exclude", "warnings"),
    [
        (
            ".*",
            "h_*",
            ["the exclusion 'h_*' excludes no topic" + H_MEANT],
        ),
        (".*", "x_*", []),  # such a topic may come
        (".*", "h_.*", []),
        (
            "a.b-c,h_*",
            None,
            [
                f"the expression 'h_*' matches no topic now, but may match later ones{H_MEANT}",
            ],
        ),
        ("h_.*,x.*", None, ["the expression 'x.*' matches no topic now, but may match later ones"]),
    ],
)
def test_unmatched_expression_among_several_warns(
    topics: str, exclude: str | None, warnings: list[str]
) -> None:
    selection = TopicSelection(topics, exclude)
    assert selection.select(TOPICS)
    assert idle_expressions(selection, TOPICS) == warnings
