import pickle

import pytest

from shoal.client.metadata import TopicMetadata
from shoal.errors import ConfigError
from shoal.mirroring.model.topics import TopicSelection, is_legal_name


def cluster_with(*names: str, internal: tuple[str, ...] = ()) -> dict[str, TopicMetadata]:
    return {name: TopicMetadata(name, None, name in internal, {}) for name in (*names, *internal)}


def selected(selection: TopicSelection, *names: str) -> list[str]:
    return list(selection.select(cluster_with(*names)))


def test_name_selects_only_that_topic() -> None:
    assert selected(TopicSelection("orders.v1"), "orders.v1", "orders-v1", "orders.v10") == ["orders.v1"]


def test_list_is_split_at_commas_without_blanks() -> None:
    assert selected(TopicSelection(" a, b ,,c"), "a", "b", "c", "d") == ["a", "b", "c"]


def test_expression_matches_whole_names() -> None:
    assert selected(TopicSelection("order.*"), "order", "orders", "reorder") == ["order", "orders"]


def test_name_in_parentheses_is_an_expression() -> None:
    assert selected(TopicSelection("(orders.v1)"), "orders.v1", "orders-v1") == ["orders-v1", "orders.v1"]


def test_names_and_expressions_can_be_mixed() -> None:
    assert selected(TopicSelection("a,b.+"), "a", "aa", "b", "bb") == ["a", "bb"]


@pytest.mark.parametrize("topics", ["a{1,2}", "[a,b]{1,2}", "(a{1,2}|c)"])
def test_comma_in_braces_or_brackets_belongs_to_the_expression(topics: str) -> None:
    assert selected(TopicSelection(topics), "a", "aa", "aaa") == ["a", "aa"]


def test_comma_between_two_expressions_with_braces_splits() -> None:
    assert selected(TopicSelection("a{1,2},b[x,y]"), "a", "aa", "bx", "by", "bz") == ["a", "aa", "bx", "by"]


def test_exclude_overrides_names_and_expressions() -> None:
    assert selected(TopicSelection("a,b.*", exclude="a|b1"), "a", "b1", "b2") == ["b2"]


@pytest.mark.parametrize(
    "name",
    ["__consumer_offsets", "__mine", "mm2-offset-syncs.west.internal", "west.checkpoints.internal"],
)
def test_expression_never_matches_an_internal_name(name: str) -> None:
    assert selected(TopicSelection(".*"), name, "a") == ["a"]


def test_expression_never_matches_a_topic_marked_internal() -> None:
    assert TopicSelection(".*").select(cluster_with("a", internal=("state",))) == {"a": "a"}


def test_topic_marked_internal_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"topics '__consumer_offsets' is internal"):
        TopicSelection("__consumer_offsets").select(cluster_with("a", internal=("__consumer_offsets",)))


def test_topic_named_like_an_internal_one_is_selected_by_name() -> None:
    assert selected(TopicSelection("__mine"), "__mine") == ["__mine"]


def test_heartbeats_is_selected_like_any_name() -> None:
    assert selected(TopicSelection(".*"), "heartbeats") == ["heartbeats"]


def test_missing_returns_absent_names() -> None:
    assert TopicSelection("b,a,c.*").missing(["a", "x"]) == ["b"]


@pytest.mark.parametrize("topics", ["", " , "])
def test_empty_selection_is_refused(topics: str) -> None:
    with pytest.raises(ConfigError, match="topics names no topic"):
        TopicSelection(topics)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "a(b"}, r"^topics 'a\(b' is not a regular expression: .*position 1"),
        ({"topics": "a", "exclude": "*"}, r"^exclude '\*' is not a regular expression: nothing to repeat"),
        ({"topics": "a", "rename": "*=b"}, r"^rename '\*' is not a regular expression"),
        ({"topics": "a", "rename": "b"}, r"^rename 'b' is not REGEX=REPLACEMENT"),
        ({"topics": "a", "rename": "b="}, r"^rename 'b=' is not REGEX=REPLACEMENT"),
        ({"topics": "a", "rename": r"b=\1"}, r"^rename 'b=\\1': invalid group reference 1"),
        ({"topics": "a", "rename": r"b=\g<n>"}, r"^rename 'b=\\g<n>': unknown group name 'n'"),
    ],
)
def test_invalid_expression_is_named_with_its_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TopicSelection(**options)


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
    with pytest.raises(ConfigError, match=r"rename 'a\|b=c': topics a and b would both have the name c"):
        selection.select(cluster_with("a", "b"))


def test_rename_to_the_name_of_another_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="topics a and b would both have the name b"):
        TopicSelection(".*", rename="a=b").select(cluster_with("a", "b"))


def test_names_can_be_swapped() -> None:
    selection = TopicSelection("a", rename="a=b")
    assert selection.select(cluster_with("a", "b")) == {"a": "b"}


@pytest.mark.parametrize("rename", ["a=b c", "a=" + "b" * 250, "a=..", "(a)=$1"])
def test_illegal_destination_name_is_refused(rename: str) -> None:
    with pytest.raises(ConfigError, match=r"topic a would have the name .* which is not a legal name"):
        TopicSelection("a", rename=rename).destination_of("a")


def test_java_group_reference_is_refused_with_python_s() -> None:
    with pytest.raises(ConfigError, match=r"write groups as \\1, not as \$1"):
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
