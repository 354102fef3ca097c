"""Commands of Kafka's tools: what they print, and what their JVM does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rig.jars import tool_command


@pytest.mark.integration
def test_warning_of_the_jvm_is_no_line_of_a_tool(tmp_path: Path) -> None:
    """A class archive that the JVM cannot use is such a warning, and a consumer's lines are its records."""
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"of another JVM" * 1000)
    usage = tool_command("org.apache.kafka.tools.GetOffsetShell", f"-XX:SharedArchiveFile={archive}")
    done = subprocess.run([*usage, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert "[warning]" in done.stderr
    assert "[warning]" not in done.stdout
    assert len(done.stdout.splitlines()) == 1, done.stdout
