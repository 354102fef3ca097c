"""The names that ``import shoal`` provides."""

from __future__ import annotations

import subprocess
import sys

import shoal
from shoal.mirroring.model import acknowledged


def test_dir_lists_public_names_before_use() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", "import shoal; print(*dir(shoal))"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(shoal.__all__) <= set(listed)
    assert [name for name in listed if not name.startswith("__")] == sorted(shoal.__all__)


def test_public_names_are_importable() -> None:
    for name in shoal.__all__:
        assert getattr(shoal, name).__doc__, name
    assert shoal.AcknowledgedRun is acknowledged.AcknowledgedRun
