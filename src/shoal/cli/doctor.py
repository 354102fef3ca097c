"""``shoal doctor``: look at all that a mirror needs, and say of each what is wrong and what to do."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..mirroring.driver.doctor.cluster import check_cluster
from ..mirroring.driver.doctor.mirror import check_disk, check_mirror
from ..mirroring.model.checkup import Check, Finding, Verdict, not_looked_at
from ..mirroring.model.options import MirrorOptions
from ..printable import printable
from .mirror import add_all_options, parse
from .options import Subparsers
from .output import print_json
from .parser import Spelling

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "doctor",
        help="look for what would keep a mirror from running",
        description="Look at both clusters, at the mirror's topics and ACLs, and at this machine: names, "
        "connections, TLS, logins, versions, advertised listeners, clocks, topics, group, ACLs, Java, Spark "
        "and disk. Print for each what was found, and what to do if it is wrong. The verb takes the options "
        "of 'shoal mirror', creates and changes nothing, and does not start Spark. Exit codes: 0 nothing is "
        "wrong, but see the warnings and what was not looked at; 1 something is wrong; 2 usage or "
        "configuration.",
        epilog="Example:\n\n  shoal doctor --from old:9092 --to new:9092 --topics 'orders.*'",
        allow_abbrev=False,
    )
    add_all_options(parser, exit_code_of_interrupt=EXIT_FAILED)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    options = parse(args)
    counts: Counter[Verdict] = Counter()
    findings = []
    subject = ""
    for finding in _findings(options, args.spell):
        counts[finding.verdict] += 1
        findings.append(finding)
        if not args.json:
            if finding.subject != subject:
                subject = finding.subject
                print(_heading(options, subject), flush=True)
            print(_text(finding), flush=True)
    if args.json:
        print_json(
            {"type": "doctor", "findings": [_json_object(each) for each in findings], **_counts(counts)}
        )
    else:
        print(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in _counts(counts).items()))
    return EXIT_FAILED if counts[Verdict.WRONG] else EXIT_DONE


def _findings(options: MirrorOptions, spell: Spelling) -> Iterator[Finding]:
    # Importing Spark's part costs time, and is not needed for --help.
    from ..spark.launch.checkup import check_java, check_spark

    is_reached = True
    for config in (options.source, options.destination):
        for finding in check_cluster(config):
            is_reached &= finding.verdict is not Verdict.WRONG
            yield finding
    if is_reached:
        yield from check_mirror(options, spell=spell)
    else:
        checks = (Check.TOPICS, Check.GROUP, Check.ACLS)
        yield from not_looked_at("mirror", checks, "a cluster cannot be used yet: see above")
    yield from check_java()
    yield from check_spark(options)
    yield from check_disk(options, spell=spell)


def _heading(options: MirrorOptions, subject: str) -> str:
    servers = {"source": options.source.servers, "destination": options.destination.servers}
    return f"{subject} {servers[subject]}" if subject in servers else subject


def _text(finding: Finding) -> str:
    lines = [f"  {finding.verdict.value:<13}  {finding.check.value:<20}  {printable(finding.text)}"]
    if finding.remedy:
        lines.append(f"{'':<39}{printable(finding.remedy)}")
    return "\n".join(lines)


def _json_object(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "check": finding.check.value, "verdict": finding.verdict.value}


def _counts(counts: Counter[Verdict]) -> dict[str, int]:
    return {verdict.value.replace(" ", "_"): counts[verdict] for verdict in Verdict}
