"""The consumer groups whose offsets follow the records: ``--groups``."""

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
        "match a whole name: '(?!test-).*' selects all but those of tests. The mirror's own group never "
        "follows",
        group="consumer groups",
    )

    def __post_init__(self) -> None:
        parse_text("--groups", self.groups)
        _ = self._selected  # now, so that an invalid expression is an error at construction

    @cached_property
    def _selected(self) -> re.Pattern[str]:
        return compile_expression("--groups", self.groups)

    def matches(self, name: str) -> bool:
        """Whether a group of this name is selected."""
        return self._selected.fullmatch(name) is not None
