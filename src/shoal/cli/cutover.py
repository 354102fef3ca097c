"""``shoal cutover``: move topics to the destination of their mirror, with proof."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..declare import add_options, declared, given, pick
from ..json_report import as_json
from ..mirroring.cutover.files import page_file
from ..mirroring.cutover.gates import GATES, Gate, State
from ..mirroring.cutover.options import CutoverOptions
from ..mirroring.cutover.outcome import CutoverReport, GateEvent
from ..mirroring.cutover.run import cut_over
from ..mirroring.model.follow_options import GroupSelection
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from .options import Clusters, Subparsers, add_output_options, parse_clusters, parse_topics
from .output import print_json, say, table, warn
from .working import Done, Working

__all__ = ["add_parser", "run"]

#: Between two lines about a gate that still waits.
_LINE_S = 10.0

_SYNC = "as the mirror has it. all-acls: compare the ACLs of each operation on topics, not only of consumers"


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "cutover",
        help="move topics to the destination of their mirror, with proof",
        description="Move topics from the source to the destination of a running mirror, through gates. "
        f"{_gates()} Each gate reports what it waits for, and why. A gate that times out or fails ends the "
        "cut-over: until the fifth nothing is changed, and what the fifth commits, the next translation "
        "replaces. Exit codes: 0 done; 1 a gate failed or timed out; 2 usage or configuration.",
        epilog="Example: rehearse while everything runs, then stop the producers and consumers, and move:\n\n"
        "  shoal cutover --from old:9092 --to new:9092 --topics 'orders.*' --groups '.*' --rehearse\n"
        "  shoal cutover --from old:9092 --to new:9092 --topics 'orders.*' --groups '.*' "
        "--certificate orders.json",
    )
    add_options(
        parser,
        declared(Clusters),
        declared(TopicSelection),
        declared(GroupSelection),
        declared(CutoverOptions, group="gates"),
        pick(MirrorOptions, "sync", group="gates", help=_SYNC),
        pick(MirrorOptions, "group"),
    )
    add_output_options(parser)


def _gates() -> str:
    """Return what each gate waits for."""
    rules = enumerate(GATES.items(), 1)
    return " ".join(f"({number}) {gate.value}: {rule.waits_for}." for number, (gate, rule) in rules)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    # --groups are those that move, and no group follows.
    mirror = {name: value for name, value in vars(args).items() if name != "groups"}
    options = CutoverOptions(
        MirrorOptions(*parse_clusters(args), parse_topics(args), **given(MirrorOptions, mirror)),
        GroupSelection(args.groups),
        **given(CutoverOptions, vars(args)),
    )
    with Working("checking both clusters", as_json=args.json) as working:
        on_event = _print_event if args.json else _Lines(working.show).show
        report = cut_over(options, on_event=on_event)
    for warning in report.warnings:
        warn(warning)
    if args.json:
        print_json(report.to_json_object())
    else:
        print(_result(report, options), flush=True)
    if report.closed is not None:
        say(report.sentence)
    return report.exit_code


def _print_event(event: GateEvent) -> None:
    print_json({"type": "gate", **GATES[event.gate]._asdict(), **as_json(event)})


class _Lines:
    """Says what a gate waits for at its beginning, what is in the way now and then, and its end."""

    def __init__(self, show: Callable[[Done], object]) -> None:
        self._show_now = show
        self._next_s = _LINE_S

    def show(self, event: GateEvent) -> None:
        numbers = {gate: number for number, gate in enumerate(Gate, 1)}
        name = f"gate {numbers[event.gate]} of {len(numbers)}, {event.gate.value}"
        self._show_now(Done(": ".join(filter(None, (name, event.sentence)))))
        if event.state is State.PASSED:
            say(f"{name}: passed after {event.elapsed_s:.1f} s")
        elif event.state is State.WAITING and not event.reasons:
            self._next_s = 0.0
            rule = GATES[event.gate]
            say(f"{name}: waits until {rule.waits_for}, because {rule.why}")
        elif event.state is State.WAITING and event.elapsed_s >= self._next_s:
            self._next_s = event.elapsed_s + _LINE_S
            say(f"{name}: {event.sentence}")


def _result(report: CutoverReport, options: CutoverOptions) -> str:
    """Return the gates as a table, and the outcome as one line."""
    rows = [("gate", "state", "seconds")]
    rows += [(each.gate.value, each.state.value, f"{each.elapsed_s:.1f}") for each in report.gates]
    return f"{table(rows)}\n\n{_outcome(report, options)}"


def _outcome(report: CutoverReport, options: CutoverOptions) -> str:
    if report.closed is not None:
        return "not cut over"
    if report.is_rehearsal:
        return "rehearsed: nothing was changed. Without --rehearse, the gate quiet waits for the producers"
    return (
        f"cut over: {report.in_place:,} offsets in place ({report.committed:,} newly committed), certificate "
        f"{options.certificate}, page {page_file(options.certificate or '')}. Start the producers and "
        "consumers at the destination, then stop the mirror"
    )
