"""``shoal groups``: translate the committed offsets of consumer groups to the other cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import kinds
from ..declare import add_options, declared, given, option, pick
from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..mirroring.model.follow_options import GroupSelection
from ..mirroring.model.offset_map import Exactness
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from ..mirroring.sync.one_round import translate_offsets
from ..mirroring.sync.report import Action, Direction, GroupOffset, GroupsReport
from .options import Clusters, Subparsers, add_output_options, parse_clusters, parse_topics
from .output import print_json, table, warn
from .working import Done, Working

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "groups",
        help="translate the committed offsets of consumer groups to the other cluster",
        description="Translate the committed offsets of consumer groups from the source to the destination "
        "of a mirror, whether the mirror runs or not. For each offset the verb prints the destination offset "
        "of the first mirrored record at or after it: exact (nothing is read twice, and nothing is missed), "
        "ahead (the mirror has not reached it) or at least (nothing is missed). Without --apply nothing is "
        "written. Groups with members at the destination are left alone, and an offset that another program "
        "committed there is never moved backwards. Exit codes: 0 done; 1 a broker refused an offset or a "
        "group, --prove found another record, or a broker did not respond; 2 usage or configuration.",
        epilog="Example: see what would be committed, prove it, and commit it:\n\n"
        "  shoal groups --from old:9092 --to new:9092 --topics 'orders.*' --groups '.*' --prove\n"
        "  shoal groups --from old:9092 --to new:9092 --topics 'orders.*' --groups '.*' --apply",
    )
    add_options(
        parser,
        declared(Clusters),
        declared(TopicSelection),
        declared(GroupSelection),
        declared(_Command, group="consumer groups"),
        pick(MirrorOptions, "group"),
        pick(
            MirrorOptions,
            "until",
            help="translate the newest offsets that an archive had at this time (default: the newest of all)",
        ),
    )
    add_output_options(parser)


@dataclass(frozen=True)
class _Command:
    """Options of the command alone."""

    apply: bool = option(kinds.FLAG, "commit the translated offsets")
    reverse: bool = option(
        kinds.FLAG,
        "read the groups of the destination, and translate their offsets back to the source",
    )
    prove: bool = option(
        kinds.FLAG,
        "read the record that a consumer reads next at both clusters, and compare the two",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    mirror = MirrorOptions(
        *parse_clusters(args),
        parse_topics(args),
        group=args.group,
        groups=args.groups,
        until=args.until,
    )
    with Working("translating committed offsets", as_json=args.json) as working:
        report = translate_offsets(
            mirror,
            **given(_Command, vars(args)),
            on_progress=lambda work, done, of: working.show(
                Done(f"{work}, {done}/{of} groups", None, done / of)
            ),
        )
    for warning in report.warnings:
        warn(warning)
    if not report.groups and not report.warnings:
        side = "source" if report.direction is Direction.FORWARD else "destination"
        warn(f"no consumer group at the {side} matches {args.groups!r}, or this principal may describe none")
    for group in (*report.left_out, *report.untranslated):
        warn(group.sentence)
    exit_code = _exit_code(report)
    if args.json:
        print_json({**report.to_json_object(), "applied": args.apply, "exit_code": exit_code})
    else:
        print("\n".join(_lines(report, applied=args.apply)), flush=True)
    return exit_code


def _exit_code(report: GroupsReport) -> int:
    is_wrong = any(each.proof is not None and each.proof.is_same is False for each in report.offsets)
    is_refused = any(each.action in (Action.REFUSED, Action.UNCONFIRMED) for each in report.offsets)
    is_unseen = bool(report.warnings) or any(each.has_failed for each in report.groups)
    return EXIT_FAILED if is_wrong or is_refused or is_unseen else EXIT_DONE


def _lines(report: GroupsReport, *, applied: bool) -> Iterator[str]:
    rows = list(report.offsets)
    if rows:
        yield table([_headings(report), *(_row(each, report) for each in rows)])
        yield ""
    yield _total(report, rows, applied=applied)


def _headings(report: GroupsReport) -> Sequence[str]:
    here, there = ("source", "destination")[:: 1 if report.direction is Direction.FORWARD else -1]
    proof = ("proof",) if _is_proved(report) else ()
    return "group", f"{here} partition", "committed", "lag", f"at the {there}", "exactness", "action", *proof


def _row(offset: GroupOffset, report: GroupsReport) -> Sequence[str]:
    at = "" if offset.translated is None else f"{offset.translated}"
    if offset.counterpart is not None and offset.counterpart != offset.partition:
        at = f"{offset.counterpart} {at}"
    return (
        offset.group,
        str(offset.partition),
        f"{offset.committed}",
        "" if offset.lag is None else f"{offset.lag}",
        at,
        offset.exactness.value if offset.exactness else "",
        _action(offset),
        *((_proof(offset),) if _is_proved(report) else ()),
    )


def _action(offset: GroupOffset) -> str:
    text = offset.action.value
    if offset.action is Action.FURTHER:
        text = f"{text}: {offset.present}"
    return f"{text}: {offset.detail}" if offset.detail else text


def _is_proved(report: GroupsReport) -> bool:
    return any(each.proof is not None for each in report.offsets)


def _proof(offset: GroupOffset) -> str:
    if offset.proof is None:
        return ""
    verdict = {True: "same record", False: "DIFFERENT", None: "not seen"}[offset.proof.is_same]
    return verdict if offset.proof.is_same else f"{verdict}: {offset.proof.detail}"


def _total(report: GroupsReport, rows: Sequence[GroupOffset], *, applied: bool) -> str:
    """Return the numbers as one line."""
    exactness = [f"{report.count(each):,} {each.value}" for each in Exactness if report.count(each)]
    actions = [f"{report.count(each):,} {each.value}" for each in Action if report.count(each)]
    text = f"groups: {len(report.groups):,}, offsets: {len(rows):,}"
    text += f" ({', '.join(exactness)})" if exactness else ""
    text += f", {', '.join(actions)}" if actions else ""
    if not applied and report.count(Action.WRITE):
        text += " (--apply commits them)"
    return text
