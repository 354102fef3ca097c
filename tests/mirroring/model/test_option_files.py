"""How many files of ``src`` name an option: one that is declared, checked and passed on once is in few."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from shoal.mirroring.model.copy_options import CopyOptions
from shoal.mirroring.model.options import MirrorOptions

SRC = Path(__file__).parents[3] / "src" / "shoal"

#: The rooms of the mirror. The raw client and the gateway have properties and options of their own.
ROOMS = ("cli", "spark", "mirroring", "mirrormaker", "verify")
OTHERS = {SRC / "cli" / name for name in ("gateway.py", "conversion_metrics.py")}

MOST_FILES = 5

#: Names of objects that hold options.
HOLDERS = {"COPY_DEFAULTS", "_options", "_settings", "args", "copy", "mirror", "options", "settings"}

#: Not options, but the two clusters, the topics and the group, which every part of a mirror is about.
SUBJECTS = {"source", "destination", "topics", "group", "copy"}

#: Options that more files name, and the reason.
EXCEPTIONS = {
    "allow_unauthenticated_spark": "also an option of Spark's data source, for reading and for writing",
    "exclude_groups": "also an option of `shoal groups` and of `shoal.translate_offsets`",
    "keep_append_time": "the decision about a batch, and the time of its records, which resuming repeats",
    "multi_batch": "also the tasks' word for a request with several batches of a partition",
    "once": "the two kinds of a run, which the driver and the engine tell apart",
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


def names_option(tree: ast.Module, name: str) -> bool:
    exact, option = spellings(name)
    documentation = {id(each) for each in docstrings(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant() if id(node) in documentation:
                continue
            case ast.Attribute(value=ast.Name(id=holder) | ast.Attribute(attr=holder), attr=attribute):
                if attribute == name and holder in HOLDERS:
                    return True
            case ast.Constant(value=str(text)):
                if text in exact or option.search(text):
                    return True
            case ast.AnnAssign(target=ast.Name(id=text)) | ast.arg(arg=text):
                if text in exact:
                    return True
    return False


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    files = [path for room in ROOMS for path in (SRC / room).rglob("*.py") if path not in OTHERS]
    return {str(path.relative_to(SRC)): ast.parse(path.read_text(encoding="utf-8")) for path in files}


OPTIONS = {each.name for each in (*fields(CopyOptions), *fields(MirrorOptions))} - SUBJECTS


@pytest.mark.parametrize("name", sorted(OPTIONS - set(EXCEPTIONS)))
def test_option_is_named_in_few_files(trees: dict[str, ast.Module], name: str) -> None:
    files = [path for path, tree in trees.items() if names_option(tree, name)]
    assert len(files) <= MOST_FILES, files
