"""The options of a cut-over."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ... import kinds
from ...declare import option, read_fields
from ...errors import ConfigError
from ..model.follow_options import GroupSelection
from ..model.options import MirrorOptions

__all__ = ["Allowed", "CutoverOptions"]

_SHORTEST_S, _LONGEST_S = 1, 86_400

#: How long the ends of the source must stand still: the rest of a batch of a producer that has just stopped
#: arrives within seconds.
_QUIET_S = 10.0

#: The part of a shorter timeout that the ends must stand still instead.
_QUIET_PART = 30


class Allowed(enum.Enum):
    """An obstacle that a gate lets pass. The value is that of the option."""

    CONFIGS = "configs"
    ACLS = "acls"
    AT_LEAST = "at-least"


@dataclass(frozen=True, slots=True)
class CutoverOptions:
    """
    The options of a cut-over.

    Attributes:
        mirror: The options of the mirror: its clusters, topics and group.
        selection: The consumer groups that move.

    """

    mirror: MirrorOptions
    selection: GroupSelection
    certificate: str | None = option(
        kinds.FILE,
        "the new file for the certificate (JSON), from which the way back begins. Its page for a browser is "
        "written beside it, as FILE with .html instead of .json. Required without --rehearse",
        default=None,
    )
    rehearse: bool = option(
        kinds.FLAG,
        "go through all gates but the one that waits for producers, commit and write nothing, and print how "
        "long each gate took",
    )
    timeout_s: float = option(
        kinds.seconds(_SHORTEST_S, _LONGEST_S),
        "how long each gate may wait. While producers still write, a verification may take longer, as long "
        "as it reads",
        default=300.0,
        name="timeout",
    )
    allow: frozenset[Allowed] = option(
        kinds.choices(Allowed),
        "what the gates let pass. configs, acls: topics whose configurations differ, and ACLs that the "
        "destination lacks. at-least: groups whose translation is only at least, so that their consumers "
        "may read records again",
        default=frozenset(),
    )

    def __post_init__(self) -> None:
        read_fields(self)
        self.mirror.source.check_options("--from", {"a cut-over": True})
        self.mirror.destination.check_options("--to", {"a cut-over": True})
        if self.certificate is None and not self.rehearse:
            raise ConfigError("--certificate is required: the way back begins from this file")

    @property
    def quiet_s(self) -> float:
        """How long the ends of the source must stand still."""
        return min(_QUIET_S, self.timeout_s / _QUIET_PART)
