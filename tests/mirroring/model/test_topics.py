import pickle

import pytest

from shoal.client.metadata import TopicMetadata
from shoal.errors import ConfigError
from shoal.mirroring.model.topics import TopicSelection, is_legal_name


def cluster_with(*names: str, internal: tuple[str, ...] = ()) -> dict[str, TopicMetadata]:
    return {name: TopicMetadata(name, None, name in internal, {}) for name in (*names, *internal)}


def selected(selection: TopicSelection, *names: str) -> list[str]:
    return list(selection.select(cluster_with(*names)))


def test_a_name_is_that_topic_and_no_other() -> None:
    assert selected(TopicSelection("orders.v1"), "orders.v1", "orders-v1", "orders.v10") == ["orders.v1"]


def test_a_list_is_split_at_commas_and_blanks_do_not_count() -> None:
    assert selected(TopicSelection(" a, b ,,c"), "a", "b", "c", "d") == ["a", "b", "c"]


def test_an_expression_matches_whole_names() -> None:
    assert selected(TopicSelection("order.*"), "order", "orders", "reorder") == ["order", "orders"]


def test_parentheses_make_an_expression_of_what_could_be_a_name() -> None:
    assert selected(TopicSelection("(orders.v1)"), "orders.v1", "orders-v1") == ["orders-v1", "orders.v1"]


def test_names_and_expressions_may_be_mixed() -> None:
    assert selected(TopicSelection("a,b.+"), "a", "aa", "b", "bb") == ["a", "bb"]


@pytest.mark.parametrize("topics", ["a{1,2}", "[a,b]{1,2}", "(a{1,2}|c)"])
def test_a_comma_in_braces_or_brackets_belongs_to_the_expression(topics: str) -> None:
    assert selected(TopicSelection(topics), "a", "aa", "aaa") == ["a", "aa"]


def test_a_comma_between_two_expressions_with_braces_splits() -> None:
    assert selected(TopicSelection("a{1,2},b[x,y]"), "a", "aa", "bx", "by", "bz") == ["a", "aa", "bx", "by"]


def test_exclude_wins_over_names_and_expressions() -> None:
    assert selected(TopicSelection("a,b.*", exclude="a|b1"), "a", "b1", "b2") == ["b2"]


@pytest.mark.parametrize(
    "name",
    ["__consumer_offsets", "__mine", "mm2-offset-syncs.west.internal", "west.checkpoints.internal"],
)
def test_an_expression_never_matches_an_internal_name(name: str) -> None:
    assert selected(TopicSelection(".*"), name, "a") == ["a"]


def test_an_expression_never_matches_what_the_cluster_calls_internal() -> None:
    assert TopicSelection(".*").select(cluster_with("a", internal=("state",))) == {"a": "a"}


def test_a_topic_that_the_cluster_calls_internal_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"--topics: __consumer_offsets is internal"):
        TopicSelection("__consumer_offsets").select(cluster_with("a", internal=("__consumer_offsets",)))


def test_a_topic_that_only_looks_internal_is_selected_by_name() -> None:
    assert selected(TopicSelection("__mine"), "__mine") == ["__mine"]


def test_heartbeats_is_an_ordinary_name() -> None:
    assert selected(TopicSelection(".*"), "heartbeats") == ["heartbeats"]


def test_missing_tells_the_names_that_are_not_there() -> None:
    assert TopicSelection("b,a,c.*").missing(["a", "x"]) == ["b"]


@pytest.mark.parametrize("topics", ["", " , "])
def test_no_topic_is_refused(topics: str) -> None:
    with pytest.raises(ConfigError, match="--topics names no topic"):
        TopicSelection(topics)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "a(b"}, r"^--topics a\(b: not a regular expression: .*position 1"),
        ({"topics": "a", "exclude": "*"}, r"^--exclude \*: not a regular expression: nothing to repeat"),
        ({"topics": "a", "rename": "*=b"}, r"^--rename \*: not a regular expression"),
        ({"topics": "a", "rename": "b"}, r"^--rename b: not REGEX=REPLACEMENT"),
        ({"topics": "a", "rename": "b="}, r"^--rename b=: not REGEX=REPLACEMENT"),
        ({"topics": "a", "rename": r"b=\1"}, r"^--rename b=\\1: invalid group reference 1"),
        ({"topics": "a", "rename": r"b=\g<n>"}, r"^--rename b=\\g<n>: unknown group name 'n'"),
    ],
)
def test_a_mistake_is_named_with_its_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TopicSelection(**options)


def test_without_a_rename_names_are_kept() -> None:
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
def test_rename_maps_whole_names_and_leaves_the_others(rename: str, source: str, destination: str) -> None:
    assert TopicSelection(".*", rename=rename).destination_of(source) == destination


def test_two_topics_with_one_name_at_the_destination_are_refused() -> None:
    selection = TopicSelection(".*", rename="a|b=c")
    with pytest.raises(ConfigError, match=r"--rename a\|b=c: topics a and b would both be called c"):
        selection.select(cluster_with("a", "b"))


def test_a_renamed_topic_may_not_take_the_name_of_another_one() -> None:
    with pytest.raises(ConfigError, match="topics a and b would both be called b"):
        TopicSelection(".*", rename="a=b").select(cluster_with("a", "b"))


def test_names_may_be_swapped_round() -> None:
    selection = TopicSelection("a", rename="a=b")
    assert selection.select(cluster_with("a", "b")) == {"a": "b"}


@pytest.mark.parametrize("rename", ["a=b c", "a=" + "b" * 250, "a=..", "(a)=$1"])
def test_an_illegal_name_at_the_destination_is_refused(rename: str) -> None:
    with pytest.raises(ConfigError, match=r"topic a would be called .* which is no legal name"):
        TopicSelection("a", rename=rename).destination_of("a")


def test_a_group_in_javas_manner_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"groups are written \\1, not \$1"):
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
def test_legal_names_are_kafkas(name: str, legal: bool) -> None:
    assert is_legal_name(name) is legal


def test_a_selection_can_be_pickled() -> None:
    selection = TopicSelection("a.*,b", "ab", r"(a.*)=x\1")
    copy = pickle.loads(pickle.dumps(selection))
    assert copy == selection
    assert copy.select(cluster_with("ac", "ab")) == {"ac": "xac"}
