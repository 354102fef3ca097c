"""The manual page has all that ``--help`` prints, in lines that roff does not swallow or fill."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from shoal.cli import make_parser
from shoal.cli.parser import verbs_of

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_manual.py"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")  # the script sets it; this restores it
    spec = importlib.util.spec_from_file_location("generate_manual", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.page())


def plain(text: str) -> str:
    """Return the text of roff lines."""
    return text.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\")


def test_manual_has_commands_and_examples_of_each_verb(page: str) -> None:
    parser = make_parser()
    lines = set(plain(page).splitlines())
    for text in (parser.epilog, *(verb.epilog for verb, _ in verbs_of(parser).values())):
        assert [each for each in (text or "").split("\n") if each and each not in lines] == []


def test_no_text_of_the_manual_is_a_request_of_roff(page: str) -> None:
    requests = (".TH ", ".SH", ".SS ", ".TP", ".RS", ".RE", ".B ", ".PP", ".nf", ".fi")
    lines = page.splitlines()
    assert [each for each in lines if each.startswith((".", "'")) and not each.startswith(requests)] == []
