r"""
Select the topics to mirror, and name them at the destination.

``--topics`` is a comma-separated list. If an entry could be a topic's name (letters, digits, ``.``, ``_`` and
``-``), it selects only the topic of this name. Any other entry is a regular expression (Python's ``re``) that
must match a whole name. So ``orders.v1`` is one topic, and ``orders\\..*`` is many. One list may have both.
A comma inside ``{}`` or ``[]`` belongs to the expression. If an expression looks like a name, write it in
parentheses: ``(orders.v1)``.

``--exclude`` is one regular expression, and takes precedence over ``--topics``.

A regular expression never matches an internal topic: see :func:`is_internal`.

``--rename REGEX=REPLACEMENT`` names the copy of each topic whose whole name matches. The replacement may use
groups (``\\1``, ``\\g<name>``). If a topic does not match, it keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ... import kinds
from ...client.metadata import TopicMetadata
from ...declare import option
from ...errors import ConfigError

__all__ = [
    "TopicSelection",
    "compile_expression",
    "entries_of",
    "is_internal",
    "is_legal_name",
    "regex_of_glob",
]

#: ``org.apache.kafka.common.internals.Topic``.
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: Internal topics of Kafka and its ecosystem begin with two underscores (MirrorMaker 2 excludes ``__.*``,
#: too). The others are MirrorMaker 2's own. Its ``heartbeats`` are not internal here: a user may have a topic
#: of this name, and a copy does no harm.
_INTERNAL_NAME = re.compile(r"__.*|mm2-.*\.internal|.*\.checkpoints\.internal")

_OF_GLOB = {"*": ".*", "?": "."}

#: A comma that is not inside {} or [].
_COMMA = re.compile(r",(?![^{}\[\]]*[}\]])")


def entries_of(text: str) -> list[str]:
    """Return the entries of a comma-separated list: names and regular expressions."""
    return [entry.strip() for entry in _COMMA.split(text) if entry.strip()]


def is_legal_name(topic: str) -> bool:
    """Whether Kafka would create a topic with this name."""
    return _LEGAL_NAME.fullmatch(topic) is not None and topic not in (".", "..")


def is_internal(topic: TopicMetadata) -> bool:
    """
    Whether a topic holds the state of a program, which has no meaning in another cluster.

    These are the topics that Kafka calls internal, names that begin with ``__``, and MirrorMaker 2's
    ``mm2-*.internal`` and ``*.checkpoints.internal``.
    """
    return topic.internal or _INTERNAL_NAME.fullmatch(topic.name) is not None


def regex_of_glob(text: str) -> str | None:
    """Return the regular expression that means the same as a glob, or None if the text is not a glob."""
    if "*" not in text and "?" not in text:
        return None
    return "".join(_OF_GLOB.get(each) or _escaped(each) for each in text)


def _escaped(character: str) -> str:
    # re.escape would also escape the dash, which needs it only in brackets.
    return character if character == "-" else re.escape(character)


@dataclass(frozen=True)
class TopicSelection:
    """
    The topics of a mirror, and the one mapping of their names.

    Examples:
        >>> import shoal
        >>> shoal.TopicSelection("orders.*", rename="(.*)=copy.of").destination_of("orders.eu")
        'copy.of'

    Raises:
        ConfigError: One of the options is invalid. The error names it.

    """

    topics: str = option(
        kinds.names("TOPIC[,TOPIC...]", lambda _, value: str(value)),
        "names and regular expressions, separated by commas. An expression must match a whole name, and "
        "never matches an internal topic",
        group="topics",
    )
    exclude: str | None = option(
        kinds.text("REGEX"), "topics to leave out. Wins over --topics", default=None, group="topics"
    )
    rename: str | None = option(
        kinds.text("REGEX=REPLACEMENT"),
        r"names at the destination, as '(.*)=west.\1'. A topic that does not match keeps its name",
        default=None,
        group="topics",
    )

    def __post_init__(self) -> None:
        # Compile all of them now, so that an invalid one is an error at construction.
        if not self._entries:
            raise ConfigError("--topics names no topic")
        _ = self._patterns, self._excluded, self._rename

    @cached_property
    def _entries(self) -> list[str]:
        return entries_of(self.topics)

    @cached_property
    def names(self) -> frozenset[str]:
        """The topics that ``--topics`` names."""
        return frozenset(filter(is_legal_name, self._entries))

    @property
    def expressions(self) -> list[str]:
        """The entries of ``--topics`` that are regular expressions."""
        return [entry for entry in self._entries if entry not in self.names]

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [compile_expression("--topics", each) for each in self.expressions]

    @cached_property
    def _excluded(self) -> re.Pattern[str] | None:
        return compile_expression("--exclude", self.exclude) if self.exclude else None

    @cached_property
    def _rename(self) -> tuple[re.Pattern[str], str] | None:
        if not self.rename:
            return None
        # The last "=": a topic's name cannot have one, but an expression can: (?=…).
        regex, equals, replacement = self.rename.rpartition("=")
        if not equals or not regex or not replacement:
            raise ConfigError(f"--rename '{self.rename}' is not REGEX=REPLACEMENT")
        pattern = compile_expression("--rename", regex)
        _check_template(pattern, replacement, self.rename)
        return pattern, replacement

    def matches(self, topic: TopicMetadata) -> bool:
        """
        Whether a topic is selected.

        Raises:
            ConfigError: ``--topics`` names the topic, and Kafka calls it internal.

        """
        if self._excluded and self._excluded.fullmatch(topic.name):
            return False
        if topic.name in self.names:
            if topic.internal:
                raise ConfigError(
                    f"--topics '{topic.name}' is internal to its cluster, and has no meaning in another. "
                    "Remove it"
                )
            return True
        return not is_internal(topic) and any(pattern.fullmatch(topic.name) for pattern in self._patterns)

    def destination_of(self, topic: str) -> str:
        """
        Return the destination's name of a source topic.

        Raises:
            ConfigError: The name is not legal for a topic.

        """
        if self._rename is None:
            return topic
        pattern, replacement = self._rename
        match = pattern.fullmatch(topic)
        if match is None:
            return topic
        name = match.expand(replacement)
        if not is_legal_name(name):
            hint = ". Write groups as \\1, not as $1" if "$" in name else ""
            raise ConfigError(
                f"--rename '{self.rename}': topic {topic} would have the name {name!r} at the destination, "
                f"which is not a legal name of a topic{hint}"
            )
        return name

    def select(self, topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
        """
        Return the destination's name of each selected topic, by source name, sorted.

        Args:
            topics: The source cluster's topics, as in :attr:`Metadata.topics`.

        Raises:
            ConfigError: Two topics would have one name, or a name is not legal.

        """
        selected: dict[str, str] = {}
        taken: dict[str, str] = {}
        for source in sorted(name for name, topic in topics.items() if self.matches(topic)):
            destination = self.destination_of(source)
            if destination in taken:
                first = taken[destination]
                raise ConfigError(
                    f"--rename '{self.rename}': topics {first} and {source} would both have the name "
                    f"{destination} at the destination. Choose another replacement"
                )
            selected[source] = destination
            taken[destination] = source
        return selected

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that ``--topics`` names and ``topics`` does not have, sorted."""
        return sorted(self.names.difference(topics))


def compile_expression(option: str, regex: str) -> re.Pattern[str]:
    """
    Compile the regular expression of an option.

    Raises:
        ConfigError: The text is not a regular expression; if it is a glob, the message names what it means.

    """
    try:
        return re.compile(regex)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        meant = regex_of_glob(regex)
        hint = f". Did you mean '{meant}'?" if meant else ""
        raise ConfigError(f"{option} '{regex}' is not a regular expression: {error}{hint}") from None


def _check_template(pattern: re.Pattern[str], replacement: str, rename: str) -> None:
    """Refuse a replacement with groups that the expression does not have."""
    try:
        # Python parses the replacement before it matches, so any text will do.
        pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise ConfigError(f"--rename '{rename}': {error}") from None
