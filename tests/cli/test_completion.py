"""``shoal completion``: shells read the script, and complete verbs, options, values and files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from shoal.cli import main

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


#: zsh prints the words that it would offer, and no list of them.
ZSH_WITH_PRINTED_WORDS = """
    PS1=; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D
    bindkey '^I' complete-word
    print_begin() { print -r - '<words>' }
    print_end() { print -r - '</words>' }
    compprefuncs=(print_begin)
    comppostfuncs=(print_end exit)
    compadd() {
        typeset -a hits
        [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]] || builtin compadd -A hits "$@"
        (( $#hits )) && print -rl -- $hits
        builtin compadd "$@"
    }
    print ready
"""

ZSH_TERMINAL = """
    zmodload zsh/zpty
    zpty shell 'zsh -f -i'
    zpty -w shell 'source ./start.zsh'
    zpty -r -m shell started $'*\nready\r*'
    zpty -n -w shell "$1"$'\t'
    zpty -r -m shell offered '*</words>*'
    print -r -- ${${offered#*<words>}%%</words>*}
"""


def offered(script: Path, line: str) -> list[str]:
    """Return the words that a shell offers at the end of a line; errors that it prints are words, too."""
    shell = script.suffix[1:]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    if shell == "bash":
        return completed(script, line)
    if shell == "fish":
        program = f"source '{script}'; complete -C'{line}'"
        command = ["fish", "--no-config", "-c", program]
    else:
        script.with_name("_shoal").write_bytes(script.read_bytes())
        script.with_name("start.zsh").write_text(ZSH_WITH_PRINTED_WORDS)
        command = ["zsh", "-f", "-c", ZSH_TERMINAL, "zsh", line]
    run = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=20, check=False)
    # fish describes each word behind a tab.
    return sorted(
        each.partition("\t")[0].strip() for each in (run.stdout + run.stderr).split("\n") if each.strip()
    )


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_shell_completes_commands_of_control(script: Path) -> None:
    assert offered(script, "shoal control ./a.sock pa") == ["pause"]
    assert set(offered(script, "shoal control --json ./a.sock ")) >= {"status", "limit", "retry", "stop"}


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_shell_completes_the_path_of_the_control_socket(script: Path) -> None:
    (script.parent / "orders.sock").touch()
    assert offered(script, "shoal control ord") == ["orders.sock"]


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_shell_prints_no_error_for_a_value_with_a_colon(script: Path) -> None:
    assert [each for each in offered(script, "shoal mirror --from ") if "not found" in each] == []


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
def test_shell_accepts_the_script(script: Path) -> None:
    shell = script.suffix[1:]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    run = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_unknown_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh'" in capsys.readouterr().err
