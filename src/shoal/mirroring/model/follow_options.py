"""The options for what follows the records: configurations of topics, ACLs, and consumer groups."""

from __future__ import annotations

import enum
import re
from dataclasses import MISSING, dataclass
from functools import cached_property
from typing import Any

from ... import kinds
from ...declare import option
from ...option_values import parse_text
from .topics import compile_expression

__all__ = [
    "KEPT_CONFIGS",
    "NOTHING_FOLLOWS",
    "FollowOptions",
    "Follower",
    "GroupSelection",
    "Sync",
    "groups_option",
]

#: The configurations of copies that stay. MirrorMaker 2's ``config.properties.exclude`` has the first three.
#: The source limited timestamps of records that were new then, and are old now. The last ones concern the
#: disks of a broker.
KEPT_CONFIGS = re.compile(
    r"(leader|follower)\.replication\.throttled\.replicas|min\.insync\.replicas|"
    r"unclean\.leader\.election\.enable|message\.(timestamp|format)\..*|"
    r"flush\..*|preallocate|file\.delete\.delay\.ms|(local|remote)\..*"
)


class Follower(enum.Enum):
    """A kind of settings that follows the records. The value is the word on the page and in labels."""

    CONFIGS = "configurations"
    ACLS = "ACLs"


class Sync(enum.Enum):
    """The settings that a mirror keeps in step. The value is that of the option."""

    CONFIGS = "configs"
    ACLS = "acls"
    ALL_ACLS = "all-acls"


#: The values of the option that let the mirror change settings of a kind.
_CHANGING = {Follower.CONFIGS: {Sync.CONFIGS}, Follower.ACLS: {Sync.ACLS, Sync.ALL_ACLS}}


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """The options for what follows the records."""

    sync: frozenset[Sync] = option(
        kinds.choices(Sync),
        "keep settings of the destination in step, at the start and at each --refresh. configs: give copies "
        "the configurations that are set on their source topics, and the source's retention, cleanup policy "
        "and largest batch. compression.type stays. acls: create the ACLs that consumers need, READ and "
        "DESCRIBE of mirrored topics and of the groups of --groups. all-acls: those of each operation on "
        "topics. No ACL is deleted",
        default=frozenset(),
        group="what follows the records",
    )

    def has(self, follower: Follower) -> bool:
        """Whether the mirror changes these settings at the destination; otherwise it only compares them."""
        return not self.sync.isdisjoint(_CHANGING[follower])

    @property
    def has_all_acls(self) -> bool:
        """Whether ACLs of all operations on topics are compared; otherwise READ and DESCRIBE."""
        return Sync.ALL_ACLS in self.sync


NOTHING_FOLLOWS = FollowOptions()


def groups_option(default: Any = MISSING) -> Any:
    """Declare ``--groups``; without a default, the option is required."""
    return option(
        kinds.text("REGEX"),
        "consumer groups whose committed offsets follow the records to the destination. The expression must "
        "match a whole name: '(?!test-).*' selects all but those of tests. The mirror's own group never "
        "follows",
        default=default,
        group="consumer groups",
    )


@dataclass(frozen=True)
class GroupSelection:
    """The groups by their names."""

    groups: str = groups_option()

    def __post_init__(self) -> None:
        parse_text("--groups", self.groups)
        _ = self._selected  # now, so that an invalid expression is an error at construction

    @cached_property
    def _selected(self) -> re.Pattern[str]:
        return compile_expression("--groups", self.groups)

    def matches(self, name: str) -> bool:
        """Whether a group of this name is selected."""
        return self._selected.fullmatch(name) is not None
