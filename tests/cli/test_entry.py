"""The entry point of the command, before the command line is imported."""

import json
import sys
import types

import pytest

from rig.shoal import SHOAL, run_shoal
from shoal import __main__ as entry
from shoal import cli
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


def test_main_interrupted_while_the_verb_is_imported_prints_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(verb: str | None) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "make_parser", interrupted)
    assert entry.main() == 1
    assert capsys.readouterr().err == "shoal: interrupted before anything was started\n"


def test_mistake_with_output_to_a_full_disk_keeps_its_exit_code() -> None:
    program = ("sh", "-c", 'exec "$0" "$@" >/dev/full', sys.executable, *SHOAL)
    run = run_shoal("mirror", "--json", "--nonsense", program=program)
    assert (run.returncode, "Traceback" in run.stderr) == (2, False)


def test_main_returns_the_exit_code_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["shoal"])
    assert entry.main() == 2
    assert "usage: shoal" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", "--from", "localhost:1"],
        ["mirror", "--from", "localhost:1", "--to", "localhost:1", "--once"],
    ],
)
def test_closed_stderr_changes_neither_the_result_nor_the_exit_code(command: list[str]) -> None:
    program = ("sh", "-c", 'exec "$0" "$@" 2>&-', sys.executable, *SHOAL)
    plain = run_shoal(*command, "--topics", "orders", program=program)
    assert (plain.returncode, plain.stdout) == (1, "")
    as_json = run_shoal(*command, "--topics", "orders", "--json", program=program)
    error = json.loads(as_json.stdout)
    assert (as_json.returncode, error["exit_code"]) == (1, 1)
    assert "refused" in error["error"]
