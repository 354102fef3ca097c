"""The options of a cut-over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError
from ..model.group_selection import GroupSelection
from ..model.option_values import (
    check_range,
    parse_fields,
    parse_flag,
    parse_seconds,
    parse_text,
    parse_whole,
    read_by,
)
from ..model.options import MirrorOptions

__all__ = ["DRIFT_KINDS", "CutoverOptions"]

#: The kinds of ``--allow-drift``.
DRIFT_KINDS = ("configs", "acls")

_LONGEST_S = 86_400


def _parse_kinds(option: str, value: object) -> frozenset[str]:
    kinds = [each.strip() for each in str(value).split(",")] if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    for each in kinds:
        if each not in DRIFT_KINDS:
            kinds = ", ".join(DRIFT_KINDS)
            raise ConfigError(f"{option}: {each!r} is not one of {kinds}")
    return frozenset(kinds)


@dataclass(frozen=True, slots=True)
class CutoverOptions:
    """
    The options of a cut-over.

    Attributes:
        mirror: The options of the mirror: its clusters, topics and group.
        selection: The consumer groups that move.
        certificate: The file for the certificate; None for none, in a rehearsal.
        rehearse: Whether to go through all gates but the one that waits for producers, and to commit and
            write nothing.
        quiet_s: How long the ends of the source must stand still.
        timeout_s: How long each gate may wait.
        max_lag: The number of offsets that may be left to copy at the first gate.
        accept_at_least: Whether a group may move whose consumers may read records again.
        allow_drift: The kinds that may differ at the second gate: ``configs``, ``acls``.

    """

    mirror: MirrorOptions
    selection: GroupSelection
    certificate: str | None = field(default=None, metadata=read_by(parse_text))
    rehearse: bool = field(default=False, metadata=read_by(parse_flag))
    quiet_s: float = field(default=10.0, metadata=read_by(parse_seconds))
    timeout_s: float = field(default=300.0, metadata=read_by(parse_seconds))
    max_lag: int = field(default=100_000, metadata=read_by(parse_whole))
    accept_at_least: bool = field(default=False, metadata=read_by(parse_flag))
    allow_drift: frozenset[str] = field(default=frozenset(), metadata=read_by(_parse_kinds))

    @classmethod
    def parse(
        cls, mirror: MirrorOptions, selection: GroupSelection, given: Mapping[str, Any]
    ) -> CutoverOptions:
        """
        Read the options that a user gave, by their fields' names.

        Raises:
            ConfigError: A value, or a combination of options, cannot be used.

        """
        return cls(mirror, selection, **parse_fields(cls, given))

    def __post_init__(self) -> None:
        check_range("--quiet-s", float(self.quiet_s), 0, _LONGEST_S, "seconds")
        check_range("--timeout", float(self.timeout_s), 1, _LONGEST_S, "seconds")
        if self.quiet_s >= self.timeout_s and not self.rehearse:
            raise ConfigError(
                f"--quiet-s '{float(self.quiet_s):g}' is not less than --timeout "
                f"'{float(self.timeout_s):g}': the gate that waits for producers could never open"
            )
        if self.certificate is None and not self.rehearse:
            raise ConfigError("--certificate is required: the way back begins from this file")
