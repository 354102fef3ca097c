"""The consumer groups whose offsets follow the records: ``--groups`` and ``--exclude-groups``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ... import kinds
from ...declare import option
from ...option_values import parse_text
from .topics import compile_expression

__all__ = ["GroupSelection"]


@dataclass(frozen=True)
class GroupSelection:
    """The groups by their names."""

    groups: str = option(
        kinds.text("REGEX"),
        "consumer groups whose committed offsets follow the records to the destination. The expression must "
        "match a whole name. The mirror's own group never follows",
        group="consumer groups",
    )
    exclude_groups: str | None = option(
        kinds.text("REGEX"),
        "consumer groups to leave out. Wins over --groups",
        default=None,
        group="consumer groups",
    )

    def __post_init__(self) -> None:
        parse_text("--groups", self.groups)
        # Compile both now, so that an invalid one is an error at construction.
        _ = self._selected, self._excluded

    @cached_property
    def _selected(self) -> re.Pattern[str]:
        return compile_expression("--groups", self.groups)

    @cached_property
    def _excluded(self) -> re.Pattern[str] | None:
        return compile_expression("--exclude-groups", self.exclude_groups) if self.exclude_groups else None

    def matches(self, name: str) -> bool:
        """Whether a group of this name is selected."""
        if self._excluded is not None and self._excluded.fullmatch(name):
            return False
        return self._selected.fullmatch(name) is not None
