"""
The build hook of shoal's wheel: its inner loops in Rust, and the manual page if `make dist` has written it.

An installation from sources compiles the loops on Linux if there is cargo, and else runs them in Python.
`SHOAL_NATIVE` in the environment decides otherwise: `none` leaves them out, and the path of a library,
compiled for the platform in `SHOAL_NATIVE_PLATFORM`, takes that (`make dist`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MANUAL = "build/man/man1/shoal.1"

#: The module in the wheel: one for each CPython from 3.11 on, by the stable ABI.
MODULE = "shoal/_native.abi3.so"


class WheelHook(BuildHookInterface):
    """Adds the extension, and the page as shared data."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add both to a wheel; an editable installation has the module that `make native` puts into src."""
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        # `make dist` writes the page from `--help`: an installation from a clone has none.
        if (root / MANUAL).exists():
            build_data["shared_data"][MANUAL] = "share/man/man1/shoal.1"
        library = self._library(root)
        if library is not None:
            platform = os.environ.get("SHOAL_NATIVE_PLATFORM", sysconfig.get_platform())
            build_data["force_include"][str(library)] = MODULE
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform.replace('-', '_').replace('.', '_')}"

    def _library(self, root: Path) -> Path | None:
        wanted = os.environ.get("SHOAL_NATIVE")
        if wanted is not None:
            return None if wanted == "none" else Path(wanted)
        if not sys.platform.startswith("linux") or shutil.which("cargo") is None:
            return None
        command = ["cargo", "build", "--release", "--locked"]
        # There, for cargo reads native/.cargo/config.toml.
        if subprocess.run(command, cwd=root / "native", check=False).returncode:
            self.app.display_warning("The inner loops in Rust cannot be compiled: shoal runs them in Python.")
            return None
        return root / "native" / "target" / "release" / "libshoal_native.so"
