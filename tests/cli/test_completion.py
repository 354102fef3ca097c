"""``shoal completion``: shells read the script, and complete verbs, options, values and files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from shoal.cli import VERBS, main, make_parser
from shoal.cli.parser import verbs_of

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def script(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """Return a file with the script for the shell of the parameter."""
    assert main(["completion", request.param]) == 0
    file = tmp_path / f"shoal.{request.param}"
    file.write_text(capsys.readouterr().out)
    return file


def completed(script: Path, line: str) -> list[str]:
    """Return the words that bash offers at the end of a line."""
    program = f"""
        source {script}
        COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        [[ '{line}' == *' ' ]] && COMP_WORDS+=('') COMP_CWORD=$((COMP_CWORD + 1))
        COMP_LINE='{line}' COMP_POINT={len(line)}
        _shtab_shoal shoal "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run(
        ["bash", "-c", program], cwd=script.parent, capture_output=True, text=True, timeout=30, check=True
    )
    return sorted(run.stdout.split())


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@needs_bash
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_verbs(script: Path) -> None:
    assert completed(script, "shoal mirr") == ["mirror", "mirror-maker"]


@needs_bash
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_options_of_the_verb(script: Path) -> None:
    assert completed(script, "shoal mirror --dry") == ["--dry-run"]
    assert completed(script, "shoal verify --dry") == []


@needs_bash
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_values_of_an_option(script: Path) -> None:
    assert completed(script, "shoal mirror --delivery ") == ["at-least-once", "exactly-once"]


@needs_bash
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_files_of_an_option(script: Path) -> None:
    (script.parent / "orders.toml").touch()
    assert completed(script, "shoal mirror --config ord") == ["orders.toml"]


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_script_names_every_verb_and_option(script: Path) -> None:
    text = script.read_text()
    parser = make_parser()
    names = {
        name
        for verb, _ in verbs_of(parser).values()
        for action in verb._actions
        if action.help != "==SUPPRESS=="
        for name in action.option_strings
    }
    # fish writes options without their dashes.
    written = [name.lstrip("-") if script.suffix == ".fish" else name for name in names]
    assert [each for each in (*VERBS, *written) if each not in text] == []


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_shell_accepts_the_script(script: Path) -> None:
    shell = script.suffix[1:]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    run = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_unknown_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of bash, zsh, fish" in capsys.readouterr().err
