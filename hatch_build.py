"""A build hook: the manual page, if `make dist` has written it, goes into the wheel's ``share/man``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MANUAL = "build/man/man1/shoal.1"


class ManualHook(BuildHookInterface):
    """
    Adds the page to the wheel, as shared data.

    The page comes from ``--help``, for which shoal must be installed: an installation from a clone has none.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the page; the sdist has it as an artifact."""
        if self.target_name == "wheel" and version == "standard" and (Path(self.root) / MANUAL).exists():
            build_data["shared_data"][MANUAL] = "share/man/man1/shoal.1"
