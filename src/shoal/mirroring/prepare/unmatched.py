"""Why ``--topics`` selects nothing, and the usual mistake: a glob (``orders_*``) for an expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...client.metadata import TopicMetadata
from ...errors import ConfigError
from ..model.text import first_few
from ..model.topics import TopicSelection, regex_of_glob

__all__ = ["glob_warnings", "select_topics", "unmatched_warnings", "why_nothing_matches"]


def select_topics(
    selection: TopicSelection,
    topics: Mapping[str, TopicMetadata],
    cluster: object,
    *,
    with_missing: bool = False,
) -> dict[str, str]:
    """
    Return the selected topics: their names at the destination, by those at the source.

    Args:
        selection: The selection.
        topics: All topics of the source cluster.
        cluster: The cluster, for the error.
        with_missing: Whether topics that are given by name may be missing.

    Raises:
        ConfigError: No topic matches.

    """
    found = selection.select(topics)
    if with_missing:
        found |= {name: selection.destination_of(name) for name in selection.missing(topics)}
    if not found:
        raise ConfigError(why_nothing_matches(selection, topics, str(cluster)))
    return found


def why_nothing_matches(selection: TopicSelection, topics: Mapping[str, TopicMetadata], cluster: str) -> str:
    """
    Return why no topic is selected, as a sentence that names the option.

    Args:
        selection: One that selects none of ``topics``.
        topics: All topics of the source cluster.
        cluster: The name of the cluster in the sentence.

    """
    excluded = f" without the exclusion '{selection.exclude}'" if selection.exclude else ""
    found = f"the selection '{selection.topics}'{excluded} matches no topic of {cluster}"
    if not topics:
        return f"{found}, which shows no topics. Check the address, and allow DESCRIBE on those of a cluster"
    return found + "".join(_meant(selection, topics)[:1])


def glob_warnings(selection: TopicSelection, topics: Iterable[str]) -> list[str]:
    """Return a warning for each expression that matches no topic, and as a glob would match some."""
    return [f"an expression matches no topic{each}" for each in _meant(selection, topics)]


def unmatched_warnings(selection: TopicSelection, topics: Iterable[str]) -> list[str]:
    """Return a warning for each expression that matches no topic: a result would seem to cover it."""
    names = list(topics)
    return [
        f"the expression '{each}' of --topics matches no topic of the source"
        for each in selection.expressions
        if not _matching(each, names)
    ]


def _meant(selection: TopicSelection, topics: Iterable[str]) -> list[str]:
    """Return ``. Did you mean …?`` for each expression that is a glob of topics."""
    sentences = []
    for expression in filter(None, (*selection.expressions, selection.exclude)):
        meant = regex_of_glob(expression)
        matching = [] if meant is None else _matching(meant, topics)
        if matching and not _matching(expression, topics):
            sentences.append(
                f". Did you mean '{meant}' by '{expression}'? It matches {first_few(sorted(matching))}"
            )
    return sentences


def _matching(expression: str, names: Iterable[str]) -> list[str]:
    pattern = re.compile(expression)
    return [name for name in names if pattern.fullmatch(name)]
