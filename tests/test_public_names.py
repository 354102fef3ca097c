"""The names that ``import shoal`` provides."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import shoal
from shoal.mirroring.model import offset_map as runs

PAGE = Path(__file__).parents[1] / "docs" / "datasource.md"


def test_dir_lists_public_names_before_use() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", "import shoal; print(*dir(shoal))"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(shoal.__all__) <= set(listed)
    assert [name for name in listed if not name.startswith("__")] == sorted(shoal.__all__)


def test_public_names_are_importable() -> None:
    for name in shoal.__all__:
        assert getattr(shoal, name).__doc__, name
    assert shoal.AcknowledgedRun is runs.AcknowledgedRun


def documented(name: str) -> Any:
    """Run the definitions of the documentation's example, and return one of them."""
    (code,) = (
        each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if name in each
    )
    definitions, _, _ = code.partition("\noffsets = ")
    names: dict[str, Any] = {}
    exec(definitions, names)
    return names[name]


def test_documented_offset_map_translates() -> None:
    offsets = documented("OffsetMap")()
    partition = shoal.TopicPartition("orders", 0)
    assert offsets.translate(partition, 0) is None
    for run in ((5, 8, 100), (8, 10, 103), (12, 15, 105)):
        offsets.add(partition, shoal.AcknowledgedRun(*run))
    assert len(offsets._runs[partition]) == 2
    translated = {offset: offsets.translate(partition, offset) for offset in (3, 5, 9, 10, 11, 12, 15, 16)}
    assert translated == {3: 100, 5: 100, 9: 104, 10: 105, 11: 105, 12: 105, 15: 108, 16: None}
