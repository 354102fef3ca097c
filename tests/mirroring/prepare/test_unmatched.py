"""``--topics`` that selects nothing: the sentence says what to write instead."""

from __future__ import annotations

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
def test_a_glob_that_matches_nothing_gets_the_regular_expression_that_it_means(
    topics: str, meant: str
) -> None:
    assert why(topics) == (
        f"--topics {topics}: matches no topic of the source cluster; did you mean '{meant}'? "
        "Topics are regular expressions, not globs"
    )


@pytest.mark.parametrize(("topics", "meant"), [("*", ".*"), ("*.v1", r".*\.v1"), ("h_**", "h_.*.*")])
def test_a_glob_that_is_no_expression_gets_the_one_that_it_means(topics: str, meant: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TopicSelection(topics)
    assert str(raised.value).startswith(f"--topics {topics}: not a regular expression: ")
    assert str(raised.value).endswith(f"; did you mean '{meant}'?")


def test_a_broken_expression_without_wildcards_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError) as raised:
        TopicSelection("a(b")
    assert "did you mean" not in str(raised.value)


def test_an_exclusion_of_everything_is_named_as_the_reason() -> None:
    assert why("h_.*", ".*") == (
        "--exclude .*: leaves out every topic that --topics h_.* matches on the source cluster "
        "(h_none, h_zstd)"
    )
    assert why("h_none", "h_.*").startswith("--exclude h_.*: leaves out every topic")


def test_an_exclusion_that_leaves_out_nothing_is_not_the_reason() -> None:
    assert why("x.*", ".*") == "--topics x.*: matches no topic of the source cluster"


def test_an_expression_that_matches_internal_topics_only_is_told_so() -> None:
    assert why("__.*").endswith("; an expression never matches an internal topic, such as __consumer_offsets")


def test_a_cluster_that_shows_no_topics_is_the_reason() -> None:
    assert "shows no topics to this principal" in why_nothing_matches(TopicSelection(".*"), {}, "the cluster")


def test_the_beginning_of_names_gets_an_expression() -> None:
    assert near_topics("h_", TOPICS) == "; did you mean 'h_.*'? It matches h_none, h_zstd"
    assert near_topics("a.", TOPICS) == r"; did you mean 'a\..*'? It matches a.b-c"


def test_a_mistyped_name_gets_the_nearest() -> None:
    assert near_topics("h_nome", TOPICS) == "; did you mean h_none?"
    assert near_topics("payments", TOPICS) == ""


def test_a_text_without_wildcards_is_no_glob() -> None:
    assert regex_of_glob("orders") is None


H_MEANT = "; did you mean 'h_.*'? It matches h_none, h_zstd"


@pytest.mark.parametrize(
    ("topics", "exclude", "warnings"),
    [
        (
            ".*",
            "h_*",
            ["--exclude: 'h_*' leaves out no topic" + H_MEANT],
        ),
        (".*", "x_*", []),  # such a topic may come
        (".*", "h_.*", []),
        (
            "a.b-c,h_*",
            None,
            [
                f"--topics: 'h_*' matches no topic{H_MEANT}; topics that come may match",
            ],
        ),
        ("h_.*,x.*", None, ["--topics: 'x.*' matches no topic; topics that come may match"]),
    ],
)
def test_expression_that_matches_nothing_is_warned_of(
    topics: str, exclude: str | None, warnings: list[str]
) -> None:
    selection = TopicSelection(topics, exclude)
    assert selection.select(TOPICS)
    assert idle_expressions(selection, TOPICS) == warnings
