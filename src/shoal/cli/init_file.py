"""
``shoal mirror --init``: a commented TOML file from the options given, and from what the clusters report.

Every option of the mirror stands in it, under the headings of ``--help`` and with its help: those that were
given as they are, all others as comments with their present values. The file describes the same mirror
(``shoal.cli.config_file`` reads it).
"""

from __future__ import annotations

import argparse
import enum
import importlib.metadata
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomlkit

from ..exit_codes import EXIT_DONE
from ..mirroring.driver.dry_run import DryRun, TopicOutlook, dry_run
from ..mirroring.model.options import MirrorOptions
from ..printable import printable
from .config_file import DIRECTORIES, FILES
from .output import say, warn
from .parser import Spelling, sentence_of

__all__ = ["print_init_file"]

_WRAPPER = textwrap.TextWrapper(98, break_on_hyphens=False, break_long_words=False)

#: These belong to one call, and not to a mirror.
_LEFT_OUT = ("help", "config", "init", "dry-run", "json", "verbose")

#: More topics are only counted.
_MOST_TOPICS = 50


def print_init_file(
    options: MirrorOptions, args: argparse.Namespace, parser: argparse.ArgumentParser, *, spell: Spelling
) -> int:
    """
    Inspect both clusters, print the file, and return the exit code.

    Args:
        options: The options of the mirror.
        args: The parsed command line, and with ``--config`` the options of that file.
        parser: The parser of the verb.
        spell: Returns the spelling of an option, from the name of its field.

    Raises:
        ShoalError: A cluster does not respond, or nothing is selected.

    """
    found = dry_run(options, on_warning=warn, spell=spell)
    lines = [*_head(options, found, spell), *_options(options, args, parser, found)]
    print("\n".join(lines), flush=True)
    if found.refusal is not None:
        say(f"this mirror would not start: {sentence_of(found.refusal, spell)}")
    return EXIT_DONE


# From the clusters


def _head(options: MirrorOptions, found: DryRun, spell: Spelling) -> Iterator[str]:
    version, today = importlib.metadata.version("shoal"), datetime.now(UTC)
    yield f"# A mirror, by shoal {version} (shoal mirror --init) on {today:%Y-%m-%d}."
    yield "# Look at it with `shoal doctor --config FILE`, and start it with `shoal mirror --config FILE`."
    yield "#"
    yield f"# source: {_cluster(options.source.servers, found.source_cluster_id)}"
    yield f"# destination: {_cluster(options.destination.servers, found.destination_cluster_id)}"
    partitions = sum(topic.plan.partitions for topic in found.topics)
    yield f"# topics: {len(found.topics):,} match now, with {partitions:,} partitions"
    for topic in found.topics[:_MOST_TOPICS]:
        yield f"#   {printable(_topic(topic))}"
    if len(found.topics) > _MOST_TOPICS:
        yield f"#   and {len(found.topics) - _MOST_TOPICS:,} more"
    refusal = [] if found.refusal is None else [f"would not start: {sentence_of(found.refusal, spell)}"]
    for sentence in (*refusal, *found.warnings):
        yield from _comment(f"- {printable(sentence)}")


def _cluster(servers: str, cluster_id: str | None) -> str:
    return f"{servers}, cluster id {printable(cluster_id)}" if cluster_id else servers


def _topic(topic: TopicOutlook) -> str:
    plan = topic.plan
    name = plan.source if plan.source == plan.destination else f"{plan.source} to {plan.destination}"
    change = ", created at the destination" if plan.creation else ""
    return f"{name}: {plan.partitions:,} partitions, {topic.offsets:,} offsets to copy{change}"


# From the options


def _options(
    options: MirrorOptions, args: argparse.Namespace, parser: argparse.ArgumentParser, found: DryRun
) -> Iterator[str]:
    present = {**_present(options), "group": found.group}
    tables: list[str] = []
    for group in parser._action_groups:
        actions = [each for each in group._group_actions if _key(each) not in _LEFT_OUT and _is_shown(each)]
        if not actions:
            continue
        yield from ("", f"# ---- {group.title}", *_comment(group.description or ""))
        for action in actions:
            lines = ["", *_comment((action.help or "") % {"default": ""})]
            if isinstance(action, argparse._AppendAction):
                tables += [*lines, *_table(action, getattr(args, action.dest))]
            else:
                yield from (*lines, _line(action, args, present))
    # Behind its heading, a table takes all lines up to the end.
    yield from tables


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and bool(action.option_strings)


def _key(action: argparse.Action) -> str:
    return action.option_strings[-1].lstrip("-") if action.option_strings else ""


def _line(action: argparse.Action, args: argparse.Namespace, present: dict[str, Any]) -> str:
    """Return the line of an option: as a comment, unless it was given."""
    given = getattr(args, action.dest)
    if given is not None and given != action.default:
        return _pair(_key(action), _portable(action, given))
    value = action.default if action.default is not None else present.get(action.dest)
    return f"# {_placeholder(action) if value is None else _pair(_key(action), value)}"


def _placeholder(action: argparse.Action) -> str:
    """Return the line of an option without a value, as the help names the value."""
    if action.type in (int, float):
        return f"{_key(action)} = {action.metavar}"
    return _pair(_key(action), "|".join(map(str, action.choices)) if action.choices else str(action.metavar))


def _portable(action: argparse.Action, value: Any) -> Any:
    """Return a value that means the same in a file of any directory: paths of a file are relative to it."""
    is_path = isinstance(action.metavar, str) and action.metavar.startswith((FILES, DIRECTORIES))
    return str(Path(value).absolute()) if is_path and value else value


def _pair(key: str, value: Any) -> str:
    return f"{key} = {tomlkit.item(value).as_string()}"


def _table(action: argparse.Action, given: Iterable[str]) -> Iterator[str]:
    pairs = [each.partition("=") for each in given]
    yield f"{'' if pairs else '# '}[{_key(action)}]"
    for name, _, value in pairs:
        yield f"{tomlkit.key([name.strip()]).as_string()} = {tomlkit.item(value.strip()).as_string()}"


def _present(options: Any) -> dict[str, Any]:
    """Return the values of all options by the names of their fields, as the file has them."""
    found: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in ("copy", "follow", "http") and is_dataclass(value):
            found |= _present(value)
        elif isinstance(value, enum.Enum):
            found[field.name] = value.value
        elif isinstance(value, float) and value.is_integer():
            found[field.name] = int(value)
        elif isinstance(value, (bool, int, float, str)) or value is None:
            found[field.name] = value
        elif field.name == "start":
            found[field.name] = str(value)
    return found


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in _WRAPPER.wrap(text)]
