"""A Java and a state directory for the commands of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.test_java import make_java


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let the machine have a Java, and a state directory of its own; return the Java's home."""
    home = tmp_path_factory.mktemp("java")
    make_java(home, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    return home
