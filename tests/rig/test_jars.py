"""Commands of Kafka's tools: what they print, and what their JVM does."""

from __future__ import annotations

import subprocess

import pytest

from rig.jars import KAFKA_VERSION, tool_command


@pytest.mark.integration
def test_warning_of_the_jvm_is_no_line_of_a_tool() -> None:
    """A consumer's lines are its records. Few machines have large pages, and a JVM without them warns."""
    tool = tool_command("org.apache.kafka.tools.GetOffsetShell", "-XX:+UseLargePages")
    done = subprocess.run([*tool, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [KAFKA_VERSION]
