"""The options for what follows the records: configurations of topics, and ACLs."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ... import kinds
from ...declare import option
from ...option_values import parse_choice

__all__ = ["KEPT_CONFIGS", "NOTHING_FOLLOWS", "FollowOptions", "Follower", "Sync"]

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


def _parse_sync(option: str, value: str | Iterable[str | Sync]) -> frozenset[Sync]:
    found = value.split(",") if isinstance(value, str) else value
    return frozenset(
        parse_choice(option, each.strip() if isinstance(each, str) else each, Sync) for each in found if each
    )


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """The options for what follows the records."""

    sync: frozenset[Sync] = option(
        kinds.names("KIND[,KIND]", _parse_sync),
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
