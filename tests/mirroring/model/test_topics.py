"""The topics of a mirror: selection by names and expressions, and renaming."""

import pickle

import pytest

from shoal.client.metadata import TopicMetadata
from shoal.errors import ConfigError
from shoal.mirroring.model.topics import TopicSelection, is_legal_name
from tests.snapshots import Texts


def cluster_with(*names: str, internal: tuple[str, ...] = ()) -> dict[str, TopicMetadata]:
    return {name: TopicMetadata(name, None, name in internal, {}) for name in (*names, *internal)}


def selected(selection: TopicSelection, *names: str) -> list[str]:
    return list(selection.select(cluster_with(*names)))


@pytest.mark.parametrize(
    ("selection", "names", "expected"),
    [
        pytest.param("orders.v1", "orders.v1 orders-v1 orders.v10", "orders.v1", id="a name is one topic"),
        pytest.param(" a, b ,,c", "a b c d", "a b c", id="a list is split at commas without blanks"),
        pytest.param("order.*", "order orders reorder", "order orders", id="expressions match whole names"),
        pytest.param("(orders.v1)", "orders.v1 orders-v1", "orders-v1 orders.v1", id="an expression"),
        pytest.param("a,b.+", "a aa b bb", "a bb", id="names and expressions are mixed"),
        pytest.param("a{1,2}", "a aa aaa", "a aa", id="a comma in braces is the expression's"),
        pytest.param("[a,b]{1,2}", "a aa aaa", "a aa", id="a comma in brackets is the expression's"),
        pytest.param("(a{1,2}|c)", "a aa aaa", "a aa", id="a comma in parentheses is the expression's"),
        pytest.param("a{1,2},b[x,y]", "a aa bx by bz", "a aa bx by", id="a comma between expressions splits"),
        pytest.param("__mine", "__mine", "__mine", id="a name like an internal one is selected"),
        pytest.param(".*", "heartbeats", "heartbeats", id="heartbeats is selected like any name"),
        pytest.param(".*", "__consumer_offsets a", "a", id="no expression matches __consumer_offsets"),
        pytest.param(".*", "__mine a", "a", id="no expression matches two underscores"),
        pytest.param(".*", "mm2-offset-syncs.west.internal a", "a", id="no expression matches offset syncs"),
        pytest.param(".*", "west.checkpoints.internal a", "a", id="no expression matches checkpoints"),
    ],
)
def test_selection_returns_matching_names(selection: str, names: str, expected: str) -> None:
    assert selected(TopicSelection(selection), *names.split()) == expected.split()


def test_exclude_overrides_names_and_expressions() -> None:
    assert selected(TopicSelection("a,b.*", exclude="a|b1"), "a", "b1", "b2") == ["b2"]


def test_expression_never_matches_a_topic_marked_internal() -> None:
    assert TopicSelection(".*").select(cluster_with("a", internal=("state",))) == {"a": "a"}


def test_topic_marked_internal_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'__consumer_offsets'"):
        TopicSelection("__consumer_offsets").select(cluster_with("a", internal=("__consumer_offsets",)))


def test_missing_returns_absent_names() -> None:
    assert TopicSelection("b,a,c.*").missing(["a", "x"]) == ["b"]


@pytest.mark.parametrize("topics", ["", " , "])
def test_empty_selection_is_refused(topics: str) -> None:
    with pytest.raises(ConfigError, match=r"topics.*topic"):
        TopicSelection(topics)


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "a(b"},
        {"topics": "a", "exclude": "*"},
        {"topics": "a", "rename": "*=b"},
        {"topics": "a", "rename": "b"},
        {"topics": "a", "rename": "b="},
        {"topics": "a", "rename": r"b=\1"},
        {"topics": "a", "rename": r"b=\g<n>"},
    ],
)
def test_invalid_expression_is_named_with_its_option(options: dict[str, str], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        TopicSelection(**options)
    texts(str(refused.value))


def test_names_without_rename_are_kept() -> None:
    assert TopicSelection("a").destination_of("a") == "a"


@pytest.mark.parametrize(
    ("rename", "source", "destination"),
    [
        (r"(.*)=west.\1", "orders", "west.orders"),
        (r"(?P<name>.*)\.v1=\g<name>", "orders.v1", "orders"),
        (r"(?=o)(.*)=x\1", "orders", "xorders"),
        ("orders=sales", "orders", "sales"),
        ("orders=sales", "orders2", "orders2"),
        ("order=sales", "orders", "orders"),
    ],
)
def test_rename_maps_only_whole_names(rename: str, source: str, destination: str) -> None:
    assert TopicSelection(".*", rename=rename).destination_of(source) == destination


def test_two_topics_with_one_destination_name_are_refused() -> None:
    selection = TopicSelection(".*", rename="a|b=c")
    with pytest.raises(ConfigError, match=r"'a\|b=c'.*topics"):
        selection.select(cluster_with("a", "b"))


def test_rename_to_the_name_of_another_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"topics.*name"):
        TopicSelection(".*", rename="a=b").select(cluster_with("a", "b"))


def test_names_can_be_swapped() -> None:
    selection = TopicSelection("a", rename="a=b")
    assert selection.select(cluster_with("a", "b")) == {"a": "b"}


@pytest.mark.parametrize("rename", ["a=b c", "a=" + "b" * 250, "a=..", "(a)=$1"])
def test_illegal_destination_name_is_refused(rename: str) -> None:
    with pytest.raises(ConfigError, match=r"topic.*legal"):
        TopicSelection("a", rename=rename).destination_of("a")


def test_java_group_reference_is_refused_with_python_s() -> None:
    with pytest.raises(ConfigError, match=r"groups.*\\1.*\$1"):
        TopicSelection("a", rename="(a)=$1").destination_of("a")


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("a.b_c-D9", True),
        ("", False),
        (".", False),
        ("..", False),
        ("a" * 249, True),
        ("a" * 250, False),
        ("a b", False),
    ],
)
def test_legal_names_are_those_of_kafka(name: str, legal: bool) -> None:
    assert is_legal_name(name) is legal


def test_selection_can_be_pickled() -> None:
    selection = TopicSelection("a.*,b", "ab", r"(a.*)=x\1")
    copy = pickle.loads(pickle.dumps(selection))
    assert copy == selection
    assert copy.select(cluster_with("ac", "ab")) == {"ac": "xac"}
