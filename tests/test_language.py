"""The check of the language finds each broken rule, and nothing in code, markup and data."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.language.rules import findings

ROOT = Path(__file__).parent.parent

CLEAN_DOCUMENT = """# The broker

You *can* stop [the `whoever` broker](x.md#nobody). If it
fails, run:

```console
$ nobody
```

| option | |
|---|---|
| `a|b` | the size |

What does it cost?
"""

CLEAN_MODULE = '''"""Open a log.

Example::

    whoever

>>> nobody
"""
# One reason,
# on two lines.
def test_log_opens(max_bytes):  # noqa: D103
    """Read; then close.

    Args:
        max_bytes: The limit.
    """
    parser = verbs.add_parser("mirror", description="Copy. Exit codes: 0 done; 1 failed.")
    header = "text/html; charset=utf-8"
    raise ValueError(f"{max_bytes} is lost. Seek {header}")
'''


def rules_broken(file: Path, text: str) -> list[str]:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return [finding.removeprefix(f"{file}:") for finding in findings(file)]


@pytest.mark.parametrize(("name", "text"), [("page.md", CLEAN_DOCUMENT), ("src/log.py", CLEAN_MODULE)])
def test_plain_file_has_no_finding(tmp_path: Path, name: str, text: str) -> None:
    assert rules_broken(tmp_path / name, text) == []


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("page.md", "\nThe log is read anew.", "2: forbidden word 'anew': The log is read anew."),
        ("page.md", "| a |\n|---|\n| A client is told. |", "3: forbidden word 'is told': A client is told."),
        ("page.md", "A task ends. Who is gone", "1: begins without its actor: Who is gone"),
        ("page.md", "- **It** stops.", "1: begins without its actor: It stops."),
        ("page.md", "A " + "b " * 25, "1: 26 words, at most 25: A" + " b" * 25),
        ("log.py", '"""Read.\n\nIt ends.\n"""', "3: begins without its actor: It ends."),
        ("log.py", "# A task tells\n# the driver.", "1: forbidden word 'tells': A task tells the driver."),
        ("log.py", "def test_what_ends(): ...", "1: forbidden word 'what' in a test's name: what_ends"),
        (
            "src/log.py",
            'raise ValueError(f"{x} is lost; "\n  f"seek {y}")',
            "1: semicolon in a text for users: … is lost; seek …",
        ),
        ("src/log.py", 'state = "goes on"', "1: forbidden word 'goes on': goes on"),
    ],
)
def test_broken_rule_is_found_with_its_line(tmp_path: Path, name: str, text: str, finding: str) -> None:
    assert rules_broken(tmp_path / name, text) == [finding]
