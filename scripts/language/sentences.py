"""Reads Markdown documents as sentences of prose, for the rules of rules.py.

Code blocks are left out. A span of code counts as one word, and a link counts as its text.
A sentence ends at the latest with its paragraph, heading, list item or table cell.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Stands for a span of code: one word, which no rule about words matches.
CODE = "0"

_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^]]*\](?:\([^)]*\)|\[[^]]*\])")
_LINK = re.compile(r"\[([^][]+)\](?:\([^)]*\)|\[[^]]*\])")
_TAG = re.compile(r"<!--.*?-->|<[^>\n]+>", re.DOTALL)
#: The begin of a block: an item of a list, a heading, a quote. The marker is no part of the prose.
_MARKER = re.compile(r"^\s*(?:[-*+] |\d+\. |#+ |> ?)")
#: A full stop and the space behind it, unless the stop belongs to an abbreviation.
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<=[.!?])[*_\")]*\s+(?=\S)")
_PAUSE = re.compile(r"[:;](?:\s|$)")
_WORD = re.compile(r"[A-Za-z0-9][\w'’.,/+-]*")


@dataclass(frozen=True)
class Sentence:
    """One sentence of a document.

    Attributes:
        line: The line of its block's beginning, from 1.
        text: The sentence, with spans of code replaced by `CODE`.
        opens: Whether its block begins with it, so that no sentence stands before it.
    """

    line: int
    text: str
    opens: bool

    @property
    def length(self) -> int:
        """The words of its longest part between colons and semicolons, at which a reader can rest."""
        return max(len(_words(part)) for part in _PAUSE.split(self.text))


def read_sentences(markdown: str) -> list[Sentence]:
    """Return the sentences of a document, in order."""
    return [
        Sentence(line, part.strip(), opens=number == 0)
        for line, block in _blocks(markdown)
        for number, part in enumerate(_END.split(_plain(block)))
        if _WORD.search(part)
    ]


def _words(text: str) -> list[str]:
    return [word.rstrip(".,").lower() for word in _WORD.findall(text)]


def _blocks(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, heading, item and cell with its first line's number."""
    first, block = 0, ""
    in_code = False
    for number, line in enumerate(markdown.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        starts = bool(_MARKER.match(line))
        is_row = line.lstrip().startswith("|")
        if block and (is_fence or starts or is_row or in_code or not line.strip()):
            yield first, block
            block = ""
        if is_fence:
            in_code = not in_code
        elif is_row and not in_code:
            for cell in _SPAN.sub(CODE, line).strip().strip("|").split("|"):
                yield number, cell
        elif line.strip() and not in_code:
            first = number if not block else first
            block += _MARKER.sub("", line) + "\n"
            if line.startswith("#"):
                yield first, block
                block = ""
    if block:
        yield first, block


def _plain(block: str) -> str:
    """Return a block's text without its markup."""
    for pattern, text in ((_IMAGE, " "), (_SPAN, CODE), (_TAG, " "), (_LINK, r"\1")):
        block = pattern.sub(text, block)
    return block.replace("**", "").replace("—", ", ")
