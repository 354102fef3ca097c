"""The options for what follows the records: configurations of topics, and ACLs."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError
from .option_values import choice_of, parse_fields, parse_flag, parse_text, read_by

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


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """
    The options for what follows the records.

    Attributes:
        sync_configs: Whether copies get the configurations that change at the source.
        sync_configs_exclude: The configurations that stay as they are, as a regular expression.
        sync_acls: The ACLs that the destination gets; None for none.

    """

    sync_configs: bool = field(default=False, metadata=read_by(parse_flag))
    sync_configs_exclude: str = field(default=DEFAULT_CONFIGS_EXCLUDE, metadata=read_by(_parse_regex))
    sync_acls: KeptAcls | None = field(default=None, metadata=choice_of(KeptAcls))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> FollowOptions:
        """
        Read the options that a user gave, by their fields' names.

        Raises:
            ConfigError: A value cannot be used.

        """
        return cls(**parse_fields(cls, given))

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
