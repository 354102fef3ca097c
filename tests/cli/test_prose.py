"""Documents are in plain language: short sentences that name their actor, conditions that begin with *if*."""

import re
from pathlib import Path

import pytest

from tests.cli.prose import CODE, Sentence, read_sentences

ROOT = Path(__file__).parents[2]

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "bench" / "results.md",
    ROOT / "broker" / "README.md",
    ROOT / "tests" / "vectors" / "README.md",
]

#: Documents that still have to be rewritten. The list may only shrink.
NOT_REWRITTEN: set[str] = set()

MOST_WORDS_IN_A_SENTENCE = 25

#: Words whose sentence has a plainer form: with the actor's name, `send`, `report`, `again`, `continue`.
FORBIDDEN = re.compile(
    r"\b(whoever|whom|nobody|somebody|(?:is|are|was|were|be|been) told|tells|hears|anew|gone on|goes on)\b",
    re.IGNORECASE,
)
#: A sentence begins with its actor or its condition. A question may begin with What or Who.
FORBIDDEN_START = re.compile(r"\W*(?:(?:What|Who)\b(?!.*\?)|(?:Whoever|Nobody)\b)", re.DOTALL)
#: If no sentence stands before it, the word has nothing that it could mean.
FORBIDDEN_OPENING = re.compile(r"\W*It\b")

#: Per 1,000 words over all documents. In h11, httpcore, websockets and aiokafka, *what* has 0 to 1.7,
#: *where* 0.5 to 2.9, *who* 0 to 0.2, and *if* 8 to 13.
MOST_PER_1000 = {"what": 3.0, "where": 3.0, "who": 0.5}
LEAST_PER_1000 = {"if": 5.0}


def relative(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


REWRITTEN = [document for document in DOCUMENTS if relative(document) not in NOT_REWRITTEN]


def has_no_actor(sentence: Sentence) -> bool:
    starts_so = FORBIDDEN_START.match(sentence.text)
    return bool(starts_so or (sentence.opens and FORBIDDEN_OPENING.match(sentence.text)))


def found(document: Path) -> list[Sentence]:
    return read_sentences(document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", REWRITTEN, ids=relative)
def test_document_has_no_forbidden_word(document: Path) -> None:
    assert [(each.line, each.text) for each in found(document) if FORBIDDEN.search(each.text)] == []


@pytest.mark.parametrize("document", REWRITTEN, ids=relative)
def test_sentence_begins_with_its_actor_or_condition(document: Path) -> None:
    assert [(each.line, each.text) for each in found(document) if has_no_actor(each)] == []


@pytest.mark.parametrize("document", REWRITTEN, ids=relative)
def test_sentence_has_at_most_25_words(document: Path) -> None:
    too_long = [
        (each.line, each.length, each.text)
        for each in found(document)
        if each.length > MOST_WORDS_IN_A_SENTENCE
    ]
    assert too_long == []


def test_rates_of_words_over_all_documents() -> None:
    words = [word for document in REWRITTEN for sentence in found(document) for word in sentence.words]

    def rate(word: str) -> float:
        return 1000 * words.count(word) / len(words)

    assert {word: rate(word) for word, most in MOST_PER_1000.items() if rate(word) > most} == {}
    assert {word: rate(word) for word, least in LEAST_PER_1000.items() if rate(word) < least} == {}


def test_excluded_documents_exist_and_break_a_rule() -> None:
    """A document that is rewritten, or gone, leaves the list."""
    for name in NOT_REWRITTEN:
        sentences = found(ROOT / name)
        assert any(
            FORBIDDEN.search(each.text) or has_no_actor(each) or each.length > MOST_WORDS_IN_A_SENTENCE
            for each in sentences
        ), f"{name} keeps the rules: take it off the list"


@pytest.mark.parametrize(
    "sentence", ["Whoever has it can log in.", "A client is told of it.", "The log is read anew."]
)
def test_forbidden_word_is_found(sentence: str) -> None:
    assert FORBIDDEN.search(sentence)


@pytest.mark.parametrize("text", ["What is new is read.", "A task ends. Who is gone", "- **It** stops."])
def test_start_without_actor_is_found(text: str) -> None:
    assert has_no_actor(read_sentences(text)[-1])


@pytest.mark.parametrize("text", ["What does it cost?", "If it stops, go.", "A task ends.\nIt commits."])
def test_start_with_actor_or_question_is_no_finding(text: str) -> None:
    assert not has_no_actor(read_sentences(text)[-1])


def test_code_and_markup_are_no_prose() -> None:
    text = (
        "# The broker\n\nYou *can* stop [the `whoever` broker](x.md#nobody). If it\nfails, run:\n\n"
        "```console\n$ nobody\n```\n\n| option | |\n|---|---|\n| `a|b` | the size |\n- one\n- two\n"
    )
    assert [(each.line, each.text) for each in read_sentences(text)] == [
        (1, "The broker"),
        (3, f"You *can* stop the {CODE} broker."),
        (3, "If it\nfails, run:"),
        (10, "option"),
        (12, CODE),
        (12, "the size"),
        (13, "one"),
        (14, "two"),
    ]
