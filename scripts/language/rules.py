"""The rules of plain language: short sentences that name their actor, and conditions that begin with *if*."""

import re
from collections.abc import Iterator
from pathlib import Path

from .sentences import Sentence, read_sentences
from .source import read_comments, read_docstrings, read_reports

MOST_WORDS_IN_A_SENTENCE = 25

#: Words whose sentence has a plainer form: with the actor's name, `send`, `report`, `again`, `continue`.
_WORDS = "whoever whom nobody somebody tells hears anew"
_FORBIDDEN = re.compile(
    rf"\b({_WORDS.replace(' ', '|')}|(?:is|are|was|were|be|been) told|gone on|goes on)\b", re.IGNORECASE
)
#: A sentence begins with its actor or its condition. A question may begin with these two words.
_NO_ACTOR = re.compile(r"\W*(?:What|Who)\b(?!.*\?)", re.DOTALL)
#: If no sentence stands before it, the word has nothing that it could mean.
_NOTHING_MEANT = re.compile(r"\W*It\b")
#: A semicolon that joins two sentences, or a list's items, also as the argument of `join`. Headers of HTTP
#: (`text/html; charset=utf-8`, a content security policy) and JAAS have their own.
_SEMICOLON = re.compile(r";\s(?!charset=|(?:style|img|connect|script)-src |base-uri |form-action )")

_TEST_NAME = re.compile(r"^ *def test_(\w+)")
#: Names of tests have unit, condition and result: they begin with a noun, and name the actor.
_FORBIDDEN_IN_TEST_NAME = re.compile(
    rf"^(a|an|the|it)_|(^|_)({_WORDS.replace(' ', '|')}|what|where|who|told|lanes?|carriers?)(_|$)"
)


def findings(file: Path) -> Iterator[str]:
    """Yield each broken rule of a Markdown document or a Python module, as a line: file, line, rule, text."""
    found = _of_document(file) if file.suffix == ".md" else _of_module(file)
    return (f"{file}:{line}: {rule}: {' '.join(text.split())}" for line, rule, text in sorted(found))


def _of_document(file: Path) -> Iterator[tuple[int, str, str]]:
    for sentence in read_sentences(file.read_text(encoding="utf-8")):
        yield from _of_sentence(sentence)


def _of_module(file: Path) -> Iterator[tuple[int, str, str]]:
    for text in (*read_docstrings(file), *read_comments(file)):
        for sentence in text.sentences():
            yield from _of_sentence(sentence)
    yield from _of_test_names(file)
    # The strings of other modules are data, or go to developers.
    for report in read_reports(file) if "src" in file.parts else ():
        if forbidden := _FORBIDDEN.search(report.prose):
            yield report.line, f"forbidden word '{forbidden[0]}'", report.prose
        if _SEMICOLON.search(report.prose):
            yield report.line, "semicolon in a text for users", report.prose


def _of_sentence(sentence: Sentence) -> Iterator[tuple[int, str, str]]:
    if forbidden := _FORBIDDEN.search(sentence.text):
        yield sentence.line, f"forbidden word '{forbidden[0]}'", sentence.text
    if _NO_ACTOR.match(sentence.text) or (sentence.opens and _NOTHING_MEANT.match(sentence.text)):
        yield sentence.line, "begins without its actor", sentence.text
    if sentence.length > MOST_WORDS_IN_A_SENTENCE:
        yield sentence.line, f"{sentence.length} words, at most {MOST_WORDS_IN_A_SENTENCE}", sentence.text


def _of_test_names(file: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if (name := _TEST_NAME.match(line)) and (forbidden := _FORBIDDEN_IN_TEST_NAME.search(name[1])):
            yield number, f"forbidden word '{forbidden[0].strip('_')}' in a test's name", name[1]
