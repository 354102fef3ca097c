"""The mutants that are listed as equivalent, in ``equivalent.toml`` beside this module."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

from .mutations import Site

__all__ = ["EQUIVALENT", "Equivalent", "reason_for"]


class Equivalent(NamedTuple):
    """
    A place whose mutation changes nothing that a campaign observes.

    Attributes:
        within: Its module, as ``name_of`` has it, and after ``::`` its function.

    """

    within: str
    before: str
    after: str
    reason: str


EQUIVALENT = [
    Equivalent(**each)
    for each in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["mutants"]
]


def reason_for(module: str, site: Site) -> str | None:
    """Return why a mutant does the same as the source; None if it is not in the list."""
    place = (f"{module}::{site.within}", site.before, site.after)
    return next((each.reason for each in EQUIVALENT if each[:3] == place), None)
