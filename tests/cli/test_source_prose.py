"""Docstrings, comments and messages are in the same plain language as the documents (see test_prose.py).

`python -m tests.cli.test_source_prose src/shoal/verify` lists the findings of a part, and its rates.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cli.prose import Sentence
from tests.cli.source_prose import read_comments, read_docstrings, read_messages, read_reports
from tests.cli.test_prose import (
    FORBIDDEN,
    LEAST_PER_1000,
    MOST_PER_1000,
    MOST_WORDS_IN_A_SENTENCE,
    has_no_actor,
)

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src" / "shoal", ROOT / "broker" / "src" / "shoal_broker")
TESTS = ROOT / "tests"


def packages() -> list[str]:
    """Return the packages of shoal and of the embedded broker, as paths from the repository."""
    return sorted(
        {module.parent.relative_to(ROOT).as_posix() for top in SOURCES for module in top.rglob("*.py")}
    )


def folders() -> list[str]:
    """Return the folders of modules outside of these packages, as paths from the repository."""
    tops = (ROOT / name for name in ("bench", "examples", "rig", "tests"))
    return sorted(
        {module.parent.relative_to(ROOT).as_posix() for top in tops for module in top.rglob("*.py")}
    )


#: Names of tests have unit, condition and result: they begin with a noun, and name the actor.
FORBIDDEN_IN_NAMES = re.compile(
    r"^(a|an|the|it)_|(^|_)(what|where|who|whom|whoever|nobody|somebody|told|tells|hears|anew|lanes?|carriers?)(_|$)"
)


def modules_of(package: str) -> list[Path]:
    """Return the modules of a package, without those of packages in it."""
    return sorted((ROOT / package).glob("*.py"))


def prose_of(modules: Iterable[Path]) -> list[tuple[Path, Sentence]]:
    """Return the sentences of docstrings and comments."""
    return [
        (module, sentence)
        for module in modules
        for read in (read_docstrings, read_comments)
        for text in read(module)
        for sentence in text.sentences()
    ]


def messages_of(modules: Iterable[Path]) -> list[tuple[Path, Sentence]]:
    """Return the sentences of texts for users; a test's strings are data."""
    return [
        (module, sentence)
        for module in modules
        if not module.resolve().is_relative_to(TESTS)
        for text in read_messages(module)
        for sentence in text.sentences()
    ]


def findings(modules: list[Path]) -> list[str]:
    """Return each broken rule as a line: file, line, rule, sentence."""
    found = [
        (module, each, "forbidden word")
        for module, each in [*prose_of(modules), *messages_of(modules)]
        if FORBIDDEN.search(each.text)
    ]
    for module, each in prose_of(modules):
        if has_no_actor(each):
            found.append((module, each, "no actor"))
        if each.length > MOST_WORDS_IN_A_SENTENCE:
            found.append((module, each, f"{each.length} words"))
    return [f"{module}:{each.line}: {rule}: {each.text}" for module, each, rule in found]


#: A semicolon that joins two sentences, or a list's items, also as the argument of `join`. Headers of HTTP
#: (`text/html; charset=utf-8`, a content security policy) and JAAS have their own.
SEMICOLON = re.compile(r";\s(?!charset=|(?:style|img|connect|script)-src |base-uri |form-action )")


def semicolons(modules: Iterable[Path]) -> list[str]:
    """Return each error, warning, state or help with a semicolon, as a line: file, line, text."""
    return [
        f"{module}:{each.line}: {each.prose}"
        for module in modules
        for each in read_reports(module)
        if SEMICOLON.search(each.prose)
    ]


def rates(modules: Iterable[Path]) -> dict[str, float]:
    """Return how often each counted word occurs in 1,000 words of docstrings and comments."""
    words = [word for _, sentence in prose_of(modules) for word in sentence.words]
    counted = [*MOST_PER_1000, *LEAST_PER_1000]
    return {word: 1000 * words.count(word) / max(1, len(words)) for word in counted}


@pytest.mark.parametrize("package", packages())
def test_source_has_plain_sentences(package: str) -> None:
    assert findings(modules_of(package)) == []


@pytest.mark.parametrize("package", packages())
def test_report_has_no_semicolon(package: str) -> None:
    assert semicolons(modules_of(package)) == []


@pytest.mark.parametrize("folder", folders())
def test_folder_outside_of_source_has_plain_sentences(folder: str) -> None:
    assert findings(sorted((ROOT / folder).glob("*.py"))) == []


def test_rates_of_words_over_all_source() -> None:
    check_rates(module for top in SOURCES for module in top.rglob("*.py"))


def test_rates_of_words_over_all_other_folders() -> None:
    check_rates(module for folder in folders() for module in (ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("folder", [each for each in folders() if each.startswith("tests")])
def test_names_of_tests_have_plain_words(folder: str) -> None:
    names = re.findall(
        r"^ *def test_(\w+)", "".join(each.read_text() for each in (ROOT / folder).glob("*.py")), re.MULTILINE
    )
    assert [name for name in names if FORBIDDEN_IN_NAMES.search(name)] == []


def check_rates(modules: Iterable[Path]) -> None:
    found = rates(modules)
    assert {word: found[word] for word, most in MOST_PER_1000.items() if found[word] > most} == {}
    assert {word: found[word] for word, least in LEAST_PER_1000.items() if found[word] < least} == {}


def test_prose_of_a_module_is_its_docstrings_and_comments(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Open a log.\n\nExample::\n\n    whoever\n\n>>> nobody\n"""\n'
        "# One reason,\n# on two lines.\n"
        "def f(max_bytes):  # noqa: D103\n"
        '    """Read.\n\n    Args:\n        max_bytes: The limit.\n    """\n'
        '    raise ValueError(f"{max_bytes}: is too large for it")\n',
        encoding="utf-8",
    )
    assert [(each.line, each.text) for _, each in prose_of([module])] == [
        (1, "Open a log."),
        (3, "Example."),
        (12, "Read."),
        (15, "The limit."),
        (9, "One reason,\non two lines."),
    ]
    assert [each.text for _, each in messages_of([module])] == [": is too large for it"]


def test_semicolon_in_a_text_for_users_is_found_but_not_in_exit_codes(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Open; read."""\n'
        'parser.add_argument("--once", help="copy; then end")\n'
        'parser = verbs.add_parser("mirror", description="Copy. Exit codes: 0 done; 1 failed.")\n'
        'Header = "text/html; charset=utf-8"\n'
        'raise ValueError(f"{x} is lost; "\n    f"seek {y}")\n'
        'raise ValueError(f"{x} is lost. Seek {y}")\n'
        'raise ValueError("; ".join(reasons))\n',
        encoding="utf-8",
    )
    assert sorted(semicolons([module])) == [
        f"{module}:2: copy; then end",
        f"{module}:5: … is lost; seek …",
        f"{module}:8: ; ",
    ]


if __name__ == "__main__":
    chosen = [
        module
        for name in sys.argv[1:]
        for module in ([Path(name)] if name.endswith(".py") else sorted(Path(name).rglob("*.py")))
    ]
    print("\n".join(findings(chosen)))
    print({word: round(rate, 1) for word, rate in rates(chosen).items()}, len(findings(chosen)), "findings")
