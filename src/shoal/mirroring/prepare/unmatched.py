"""
Why ``--topics`` selects nothing, or a part of the selection means nothing, and what to write instead.

The usual mistakes are globs (``orders_*``, ``*``), the beginning of a name
(``orders_``) and a ``--exclude`` that is too wide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...client.metadata import TopicMetadata
from ...nearest import did_you_mean
from ..model.text import first_few
from ..model.topics import TopicSelection, is_internal, regex_of_glob

__all__ = ["idle_expressions", "near_topics", "why_nothing_matches"]


def why_nothing_matches(selection: TopicSelection, topics: Mapping[str, TopicMetadata], cluster: str) -> str:
    """
    Return why no topic is selected, as a sentence that names the option.

    Args:
        selection: One that selects none of ``topics``.
        topics: All topics of the source cluster.
        cluster: The name of the cluster in the sentence.

    """
    included = replace(selection, exclude=None)
    excluded = [name for name, topic in topics.items() if included.matches(topic)]
    if excluded:
        return (
            f"the exclusion '{selection.exclude}' excludes every topic that '{selection.topics}' matches on "
            f"{cluster} ({first_few(sorted(excluded))})"
        )
    return f"the selection '{selection.topics}' matches no topic of {cluster}{_hint(selection, topics)}"


def idle_expressions(selection: TopicSelection, topics: Mapping[str, TopicMetadata]) -> list[str]:
    """
    Return a warning for each part of ``--topics`` that matches nothing, and for a glob in ``--exclude``.

    An ``--exclude`` that matches nothing yet may be meant for topics that come. But if it is a glob that
    would leave out topics, these are mirrored against the user's will.

    Args:
        selection: One that selects some of ``topics``.
        topics: All topics of the source cluster.

    """
    warnings = []
    if len(selection.expressions) + len(selection.names) > 1:
        for each in selection.expressions:
            if not _matching(each, topics):
                warnings.append(
                    f"the expression '{each}' matches no topic now, but may match later ones"
                    f"{_meant(each, topics)}"
                )
    exclude = selection.exclude
    if exclude and not _matching(exclude, topics) and (meant := _meant(exclude, topics)):
        warnings.append(f"the exclusion '{exclude}' excludes no topic{meant}")
    return warnings


def _meant(expression: str, topics: Mapping[str, TopicMetadata]) -> str:
    """Return ``. Did you mean …?`` if the expression is a glob that matches topics, else nothing."""
    meant = regex_of_glob(expression)
    found = _matching(meant, topics) if meant is not None else []
    if not found:
        return ""
    return f". Did you mean '{meant}'? It matches {first_few(sorted(found))}"


def _hint(selection: TopicSelection, topics: Mapping[str, TopicMetadata]) -> str:
    if not topics:
        return ", which shows no topics to this principal. Check the address, and allow DESCRIBE on them"
    for expression in selection.expressions:
        meant = regex_of_glob(expression)
        if meant is not None and _matching(meant, topics):
            return f". Did you mean '{meant}'? Topics are regular expressions, not globs"
        if internal := [name for name in _matching(expression, topics) if is_internal(topics[name])]:
            return f". An expression never matches an internal topic, such as {min(internal)}"
    return ""


def near_topics(name: str, topics: Iterable[str]) -> str:
    """Return ``. Did you mean …?`` for a name that no topic has, or nothing if no name is near."""
    topics = list(topics)
    begun = [each for each in topics if each.startswith(name)]
    if begun:
        return f". Did you mean '{regex_of_glob(f'{name}*')}'? It matches {first_few(sorted(begun))}"
    return did_you_mean(name, topics)


def _matching(expression: str, names: Iterable[str]) -> list[str]:
    pattern = re.compile(expression)
    return [name for name in names if pattern.fullmatch(name)]
