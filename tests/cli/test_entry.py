"""The entry point of the command, before the command line is imported."""

import sys
import types

import pytest

from shoal import __main__ as entry
from tests.snapshots import Texts


def test_main_interrupted_during_imports_prints_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    def interrupted(name: str) -> object:
        raise KeyboardInterrupt

    importing = types.ModuleType("shoal.cli")
    importing.__getattr__ = interrupted  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "shoal.cli", importing)
    assert entry.main() == 1
    texts(capsys.readouterr().err)


def test_main_returns_the_exit_code_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["shoal"])
    assert entry.main() == 2
    assert "usage: shoal" in capsys.readouterr().err
