"""The options for what follows the records: configurations of topics, and ACLs."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from ... import kinds
from ...declare import option
from ...errors import ConfigError
from ...option_values import parse_text

__all__ = ["DEFAULT_CONFIGS_EXCLUDE", "NOTHING_FOLLOWS", "FollowOptions", "Follower", "KeptAcls"]

#: MirrorMaker 2's ``config.properties.exclude`` has the first three. The source limited timestamps of
#: records that were new then, and are old now. The last ones concern the disks of a broker.
DEFAULT_CONFIGS_EXCLUDE = (
    r"(leader|follower)\.replication\.throttled\.replicas|min\.insync\.replicas|"
    r"unclean\.leader\.election\.enable|message\.(timestamp|format)\..*|"
    r"flush\..*|preallocate|file\.delete\.delay\.ms|(local|remote)\..*"
)


class Follower(enum.Enum):
    """A kind of settings that follows the records. The value is the word on the page and in labels."""

    CONFIGS = "configurations"
    ACLS = "ACLs"


class KeptAcls(enum.Enum):
    """Which ACLs the destination gets. The value is that of the option."""

    #: READ and DESCRIBE, with which consumers go on.
    READ = "read"
    #: All operations on topics.
    ALL = "all"


def _parse_regex(option: str, value: object) -> str:
    text = parse_text(option, value)
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"{option} {text!r} is not a regular expression: {error}") from None
    return text


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """The options for what follows the records."""

    sync_configs: bool = option(
        kinds.FLAG,
        "give copies the configurations that are set on their source topics, and the source's retention, "
        "cleanup policy and largest batch, at the start and at each --refresh. compression.type stays",
        default=False,
        group="what follows the records",
    )
    sync_configs_exclude: str = option(
        kinds.text("REGEX", _parse_regex),
        "with --sync-configs: configurations of copies that stay as they are",
        default=DEFAULT_CONFIGS_EXCLUDE,
        group="what follows the records",
    )
    sync_acls: KeptAcls | None = option(
        kinds.choice(KeptAcls),
        "create the ACLs of mirrored topics, and of the groups of --groups, at the destination, at the "
        "start and at each --refresh. read: READ and DESCRIBE, which consumers need. all: each operation on "
        "topics. No ACL is deleted",
        default=None,
        group="what follows the records",
    )

    def has(self, follower: Follower) -> bool:
        """Whether the mirror changes these settings at the destination; otherwise it only compares them."""
        return self.sync_configs if follower is Follower.CONFIGS else self.sync_acls is not None

    @property
    def excluded_configs(self) -> re.Pattern[str]:
        """The configurations that stay as they are."""
        return re.compile(self.sync_configs_exclude)

    @property
    def kept_acls(self) -> KeptAcls:
        """The ACLs that are compared: those for consumers, unless the user wants all."""
        return self.sync_acls or KeptAcls.READ


NOTHING_FOLLOWS = FollowOptions()
