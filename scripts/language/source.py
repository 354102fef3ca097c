"""Reads the prose of Python modules: docstrings, comments, and texts for users, for the rules of rules.py.

A docstring's examples (`>>>`) and the names of its `Args` and `Attributes` are left out, and so are comments
for tools (`# noqa`, `# type:`). A comment of several lines counts as one paragraph.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .sentences import Sentence, read_sentences

#: A comment for a tool: no prose.
_FOR_TOOLS = re.compile(r"#!|#\s*(?:noqa|type:|pragma:|ruff:|mypy:|fmt:)")
#: A line of an interactive example, and its output up to the next empty line.
_EXAMPLE = re.compile(r"^\s*>>>.*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
#: A section's heading (`Raises:`), and an entry's name in one (`max_bytes:`), as Google's style has them.
_SECTION = re.compile(
    r"^[ ]*(?:Args|Attributes|Returns|Yields|Raises|Example|Examples|Note):[ ]*$", re.MULTILINE
)
_ENTRY = re.compile(r"^[ ]+\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[A-Za-z_][\w.]*)*: ", re.MULTILINE)
#: Sphinx's literal blocks.
_LITERAL_BLOCK = re.compile(r"::\n\n((?: {4,}.*\n|\n)+)", re.MULTILINE)
#: A table, from its upper rule to its lower one.
_TABLE = re.compile(r"^ *=+(?: +=+)+ *$.*^ *=+(?: +=+)+ *$", re.MULTILINE | re.DOTALL)
#: A list of exit codes: its meanings have commas.
_EXIT_CODES = re.compile(r"Exit codes: [^.]*")


@dataclass(frozen=True)
class Text:
    """A text of a module.

    Attributes:
        line: The number of its first line, from 1.
        prose: The text, as Markdown that `read_sentences` takes.
    """

    line: int
    prose: str

    def sentences(self) -> list[Sentence]:
        """Return its sentences, with the lines that they have in the module."""
        return [
            Sentence(self.line + each.line - 1, each.text, each.opens) for each in read_sentences(self.prose)
        ]


def read_docstrings(module: Path) -> Iterator[Text]:
    """Yield the docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield Text(node.body[0].lineno, _without_markup(docstring))


def read_comments(module: Path) -> Iterator[Text]:
    """Yield the comments of a module, those on consecutive lines as one."""
    lines: list[str] = []
    first = last = 0
    source = io.StringIO(module.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(source.readline):
        if token.type != tokenize.COMMENT or _FOR_TOOLS.match(token.string):
            continue
        if lines and token.start[0] != last + 1:
            yield Text(first, "\n".join(lines))
            lines = []
        if not lines:
            first = token.start[0]
        lines.append(token.string.lstrip("#: "))
        last = token.start[0]
    if lines:
        yield Text(first, "\n".join(lines))


def read_reports(module: Path) -> Iterator[Text]:
    """Yield the strings of a module but its docstrings: errors, warnings, states, help.

    A placeholder is an ellipsis. A list of exit codes has semicolons, and is left out.
    """
    tree = ast.parse(module.read_text(encoding="utf-8"))
    left_out = {id(part) for node in ast.walk(tree) for root in _no_reports(node) for part in ast.walk(root)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        yield Text(node.lineno, _EXIT_CODES.sub("", text))


def _no_reports(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node whose strings do not report."""
    match node:
        case ast.Expr(value=ast.Constant() as docstring):
            return [docstring]
        case ast.JoinedStr():
            # Its text is read as a whole.
            return [part for part in node.values if isinstance(part, ast.Constant)]
    return []


def _without_markup(docstring: str) -> str:
    text = _EXAMPLE.sub(lambda match: "\n" * match.group().count("\n"), docstring)
    text = _LITERAL_BLOCK.sub(lambda match: ".\n" + "\n" * (match.group().count("\n") - 1), text)
    text = _TABLE.sub(lambda match: "\n" * match.group().count("\n"), text)
    text = _SECTION.sub("", text)
    # Each entry is a paragraph of its own, and its name no word of it.
    return _ENTRY.sub("- ", text)
