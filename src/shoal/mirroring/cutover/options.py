"""The options of a cut-over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ... import kinds
from ...declare import option, read_fields
from ...errors import ConfigError
from ..model.follow_options import GroupSelection
from ..model.options import MirrorOptions

__all__ = ["DRIFT_KINDS", "CutoverOptions"]

#: The kinds of ``--allow-drift``.
DRIFT_KINDS = ("configs", "acls")

_LONGEST_S = 86_400


def _parse_kinds(option: str, value: str | Iterable[str]) -> frozenset[str]:
    found = [each.strip() for each in value.split(",")] if isinstance(value, str) else list(value)
    for each in found:
        if each not in DRIFT_KINDS:
            raise ConfigError(f"{option}: {each!r} is not one of {', '.join(DRIFT_KINDS)}")
    return frozenset(found)


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
        group="gates",
    )
    rehearse: bool = option(
        kinds.FLAG,
        "go through all gates but the one that waits for producers, commit and write nothing, and print how "
        "long each gate took",
        group="gates",
    )
    quiet_s: float = option(
        kinds.seconds(0, _LONGEST_S),
        "how long the ends of the source must stand still",
        default=10.0,
        group="gates",
    )
    timeout_s: float = option(
        kinds.seconds(1, _LONGEST_S),
        "how long each gate may wait. While producers still write, a verification may take longer, as long "
        "as it reads",
        default=300.0,
        group="gates",
        name="timeout",
    )
    allow_drift: frozenset[str] = option(
        kinds.names("KIND[,KIND]", _parse_kinds),
        "what may differ at the second gate: configs, acls",
        default=frozenset(),
        group="gates",
    )
    accept_at_least: bool = option(
        kinds.FLAG,
        "move groups, too, whose translation is only at least: their consumers may read records again",
        group="consumer groups",
    )

    def __post_init__(self) -> None:
        read_fields(self)
        if self.quiet_s >= self.timeout_s and not self.rehearse:
            raise ConfigError(
                f"--quiet-s '{float(self.quiet_s):g}' is not less than --timeout "
                f"'{float(self.timeout_s):g}': the gate that waits for producers could never open"
            )
        if self.certificate is None and not self.rehearse:
            raise ConfigError("--certificate is required: the way back begins from this file")
