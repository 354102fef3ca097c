"""The topics, the group and the ACLs of a mirror, by the dry run, and the directories that it writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ....errors import AccessRefused, BrokerError, GroupHeld, OptionError, ShoalError
from ....state_directory import state_dir
from ...model.acl_commands import commands_of
from ...model.acls import Acl, acl_sentences
from ...model.checkup import Check, Finding, Verdict, not_looked_at
from ...model.options import MirrorOptions
from ..dry_run import DryRun, dry_run

__all__ = ["check_disk", "check_mirror"]

_CHECKS = (Check.TOPICS, Check.GROUP, Check.ACLS)
_MIRROR = "mirror"
_MACHINE = "machine"

#: An idle mirror writes some MB: its log, and files that make Spark start faster.
_LEAST_FREE = 100 * 1024 * 1024
_SCARCE = 1024 * 1024 * 1024


def check_mirror(options: MirrorOptions, *, spell: Callable[[str], str]) -> Iterator[Finding]:
    """
    Look at topics, group and ACLs as ``--dry-run`` does. Changes nothing.

    Args:
        options: The options of the mirror.
        spell: Returns the spelling of an option, from the name of its field.

    """
    warnings: list[str] = []
    try:
        found = dry_run(options, spell=spell)
    except (AccessRefused, BrokerError) as error:
        yield Finding(_MIRROR, Check.TOPICS, Verdict.WRONG, str(error))
        yield from not_looked_at(_MIRROR, _CHECKS[1:], "the inspection of the topics was refused")
        return
    except ShoalError as error:
        yield Finding(_MIRROR, Check.TOPICS, Verdict.WRONG, _text(error, spell))
        yield from not_looked_at(_MIRROR, _CHECKS[1:], "the inspection of the topics failed")
        return
    warnings += found.warnings
    yield from _topics(found, warnings, spell)
    yield _group(found)
    yield from _acls(options, found)


def _text(error: ShoalError, spell: Callable[[str], str]) -> str:
    return error.spelled(spell) if isinstance(error, OptionError) else str(error)


def _topics(found: DryRun, warnings: Sequence[str], spell: Callable[[str], str]) -> Iterator[Finding]:
    for warning in warnings:
        yield Finding(_MIRROR, Check.TOPICS, Verdict.WARNING, warning)
    if found.refusal is not None and not isinstance(found.refusal, GroupHeld):
        yield Finding(_MIRROR, Check.TOPICS, Verdict.WRONG, _text(found.refusal, spell))
        return
    created = sum(topic.plan.creation is not None for topic in found.topics)
    partitions = sum(topic.plan.partitions for topic in found.topics)
    text = f"{len(found.topics):,} topics with {partitions:,} partitions, {created:,} of them to be created"
    yield Finding(_MIRROR, Check.TOPICS, Verdict.GOOD, text)


def _group(found: DryRun) -> Finding:
    if isinstance(found.refusal, GroupHeld):
        return Finding(_MIRROR, Check.GROUP, Verdict.WARNING, str(found.refusal))
    if found.refusal is not None:
        (finding,) = not_looked_at(_MIRROR, [Check.GROUP], "the mirror is refused before it joins its group")
        return finding
    return Finding(_MIRROR, Check.GROUP, Verdict.GOOD, f"{found.group}: no other mirror holds it")


def _acls(options: MirrorOptions, found: DryRun) -> Iterator[Finding]:
    if found.missing_acls:
        yield Finding(
            _MIRROR,
            Check.ACLS,
            Verdict.WRONG,
            f"this principal lacks: {_listed(found.missing_acls)}",
            f"Grant them: {' && '.join(commands_of(found.missing_acls, options, is_own=True))}",
        )
    if found.unknown_acls:
        text = f"the clusters do not report whether this principal has: {_listed(found.unknown_acls)}"
        commands = commands_of(found.unknown_acls, options, is_own=True, creates=False)
        remedy = f"If not, grant them: {' && '.join(commands)}" if found.refusal is not None else ""
        yield Finding(_MIRROR, Check.ACLS, Verdict.NOT_LOOKED_AT, text, remedy)
    elsewhere = {*found.missing_acls, *found.unknown_acls}
    if reported := [acl for acl in found.acls if acl not in elsewhere]:
        yield Finding(_MIRROR, Check.ACLS, Verdict.GOOD, f"this principal has: {_listed(reported)}")


def _listed(acls: Sequence[Acl]) -> str:
    return ", ".join(acl_sentences(acls))


def check_disk(options: MirrorOptions, *, spell: Callable[[str], str]) -> Iterator[Finding]:
    """
    Look at the directories in which a mirror writes: do they take files, and how much is free?

    Args:
        options: The options of the mirror.
        spell: Returns the spelling of an option, from the name of its field.

    """
    conf = dict(options.conf)
    local = conf.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    state = Path(options.checkpoint) if options.checkpoint else state_dir()
    remedies = {
        state: "--checkpoint or XDG_STATE_HOME",
        Path(local.split(",")[0]): "TMPDIR or spark.local.dir",
    }
    for file, option in ((options.report, "report"), (options.steering.control, "control")):
        if file is None:
            continue
        directory = Path(file).parent.resolve()
        if directory.is_dir():
            remedies.setdefault(directory, spell(option))
        else:
            # A mirror makes the directories of its state, but not these.
            text = f"{spell(option)} {file!r}: there is no directory {directory}"
            yield Finding(_MACHINE, Check.DISK, Verdict.WRONG, text, "Make it, or choose another directory")
    for directory, setting in remedies.items():
        yield _directory(directory, setting)


def _directory(directory: Path, setting: str) -> Finding:
    there = next((each for each in (directory, *directory.absolute().parents) if each.exists()), Path("/"))
    other = f"Choose another directory by {setting}"
    try:
        with tempfile.TemporaryFile(dir=there):  # without a name
            pass
    except OSError as error:
        text = f"{directory}: this user cannot write files in {there} ({error.strerror})"
        return Finding(_MACHINE, Check.DISK, Verdict.WRONG, text, f"Change its mode or owner. {other}")
    free = shutil.disk_usage(there).free
    text = f"{directory}: writable, {free / 1e9:,.1f} GB free"
    if free < _LEAST_FREE:
        return Finding(_MACHINE, Check.DISK, Verdict.WRONG, text, f"Free at least 0.1 GB. {other}")
    if free < _SCARCE:
        return Finding(_MACHINE, Check.DISK, Verdict.WARNING, text, other)
    return Finding(_MACHINE, Check.DISK, Verdict.GOOD, text)
