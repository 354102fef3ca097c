"""How many files of ``src`` name an option: one that is declared, checked and passed on once is in few."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from shoal.mirroring.model.copy_options import CopyOptions
from shoal.mirroring.model.follow_options import FollowOptions
from shoal.mirroring.model.options import MirrorOptions

SRC = Path(__file__).parents[3] / "src" / "shoal"

#: The rooms of the mirror. The raw client and the gateway have properties and options of their own.
ROOMS = ("cli", "spark", "mirroring", "mirrormaker", "verify")
OTHERS = {SRC / "cli" / name for name in ("gateway.py", "conversion_metrics.py")}

MOST_FILES = 5

#: Names of objects that hold options: a name without an underscore is an option only behind one of them.
HOLDERS = {
    "COPY_DEFAULTS",
    "_options",
    "_settings",
    "args",
    "copy",
    "follow",
    "mirror",
    "options",
    "settings",
}

#: Not options, but the two clusters, the topics and the group, which every part of a mirror is about.
SUBJECTS = {"source", "destination", "topics", "group", "copy", "follow"}

#: Options that more files name, and the reason.
EXCEPTIONS = {
    "allow_unauthenticated_spark": "also an option of Spark's data source, for reading and for writing",
    "continue_on": "also an option of `shoal mirror-maker`, and the word of messages that name the remedy",
    "exclude_groups": "also an option of `shoal groups` and of `shoal.translate_offsets`",
    "from_certificate": "the driver reads it, and the check of topics expects the other direction then",
    "groups": "also an option of `shoal groups` and `shoal cutover`, whose gate names it as a remedy",
    "keep_append_time": "the decision about a batch, and the time of its records, which resuming repeats",
    "master": "also an option of `shoal verify` and `inspect`, each with its own default",
    "multi_batch": "also the tasks' word for a request with several batches of a partition",
    "once": "the two kinds of a run, which the driver and the engine tell apart",
    "retry_stopped_s": "also the time at which a stop for a missing right says that it is tried again",
    "surface": "not set by users: each message of a task that names an option spells it by its surface",
    "sync_acls": "also an option of `shoal cutover`, whose gate names it as a remedy",
    "takes_over_offsets": "also an option for reading: Spark's planner reads the group's positions",
}


def spellings(name: str) -> tuple[set[str], re.Pattern[str]]:
    """Return a field's names in Python and Spark, and a pattern of the command line's."""
    first, *others = name.split("_")
    camel_case = first + "".join(each.capitalize() for each in others)
    dashes = re.escape(name.removesuffix("_s").replace("_", "-"))
    # A name without an underscore is also an ordinary word.
    return {name, camel_case} if others else set(), re.compile(rf"--{dashes}(?![\w-])")


def docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the docstrings: they may explain an option that the code does not know."""
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef():
                match node.body:
                    case [ast.Expr(value=documentation), *_]:
                        yield documentation


class Names:
    """The names and texts of a module's code."""

    def __init__(self, tree: ast.Module) -> None:
        self.identifiers: set[str] = set()
        self.options: set[str] = set()
        self.texts: set[str] = set()
        documentation = set(map(id, docstrings(tree)))
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=holder) | ast.Attribute(attr=holder), attr=name):
                    self.identifiers.add(name)
                    if holder in HOLDERS:
                        self.options.add(name)
                case ast.Constant(value=str(text)) if id(node) not in documentation:
                    self.texts.add(text)
                case (
                    ast.Attribute(attr=str(name))
                    | ast.Name(id=name)
                    | ast.arg(arg=name)
                    | ast.keyword(arg=str(name))
                    | ast.FunctionDef(name=name)
                    | ast.alias(name=name)
                ):
                    self.identifiers.add(name)

    def has_option(self, name: str) -> bool:
        exact, option = spellings(name)
        return (
            name in self.options
            or not exact.isdisjoint(self.identifiers | self.texts)
            or any(map(option.search, self.texts))
        )


@pytest.fixture(scope="module")
def modules() -> dict[str, Names]:
    files = [path for room in ROOMS for path in (SRC / room).rglob("*.py") if path not in OTHERS]
    return {str(path.relative_to(SRC)): Names(ast.parse(path.read_text(encoding="utf-8"))) for path in files}


OPTIONS = {
    each.name for each in (*fields(CopyOptions), *fields(FollowOptions), *fields(MirrorOptions))
} - SUBJECTS


@pytest.mark.parametrize("name", sorted(OPTIONS - set(EXCEPTIONS)))
def test_option_is_named_in_few_files(modules: dict[str, Names], name: str) -> None:
    files = [path for path, names in modules.items() if names.has_option(name)]
    assert len(files) <= MOST_FILES, files


@pytest.mark.parametrize("name", sorted(EXCEPTIONS))
def test_exception_names_an_option_in_many_files(modules: dict[str, Names], name: str) -> None:
    assert sum(names.has_option(name) for names in modules.values()) > MOST_FILES
