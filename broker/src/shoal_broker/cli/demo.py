"""``shoal-demo``: clusters, a mirror and a verification on this machine, in a minute."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from shoal.cli.options import add_output_options
from shoal.cli.output import print_json, table
from shoal.cli.parser import Parser
from shoal.cli.program import run_program
from shoal.cli.report import report_to
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.model.copy_options import copy_rules
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.progress import Summary
from shoal.mirroring.model.topics import TopicSelection
from shoal.net.address import parse_bootstrap

if TYPE_CHECKING:
    from ..demo import Loaded

__all__ = ["main", "make_parser", "run"]

_DEFAULT_MEGABYTES = 120


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="shoal-demo",
        description="Start two embedded brokers, load sample topics (all codecs, idempotent and "
        "transactional producers, aborted transactions), mirror them with Spark, and compare the copies with "
        "the originals. The demo deletes everything at its end.",
        epilog="Example:\n\n  shoal-demo --megabytes 500",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--megabytes",
        type=int,
        default=_DEFAULT_MEGABYTES,
        metavar="MB",
        help=f"amount to load, before compression (default: {_DEFAULT_MEGABYTES})",
    )
    parser.add_argument(
        "--master",
        default="local[*]",
        metavar="MASTER",
        help="a local Spark master (default: local[*])",
    )
    add_output_options(parser)
    parser.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with the process's own; return the exit code."""
    return run_program(make_parser(), sys.argv[1:] if argv is None else argv)


def run(args: argparse.Namespace) -> int:
    """Load, mirror, verify and count; return the exit code."""
    from .. import demo

    demo.require_confluent_kafka()
    with demo.cluster() as source, demo.cluster() as destination:
        loaded = _load(source, args)
        # A failed demo keeps the directory, which has Spark's log.
        checkpoint = tempfile.mkdtemp(prefix="shoal-demo-")
        options = MirrorOptions(
            source=ClientConfig("source", tuple(parse_bootstrap(source))),
            destination=ClientConfig("destination", tuple(parse_bootstrap(destination))),
            topics=TopicSelection(".*"),
            once=True,
            master=args.master,
            checkpoint=checkpoint,
        )
        summary = _mirror(options, args)
        if summary.exit_code == 0:
            _verify(options, summary, args)
            _count(destination, loaded, args)
            shutil.rmtree(checkpoint, ignore_errors=True)
    return summary.exit_code


def _load(source: str, args: argparse.Namespace) -> dict[str, Loaded]:
    from ..demo import TOPICS, load

    if not args.json:
        print("Two embedded brokers, one of them loaded with confluent-kafka:\n", flush=True)
    loaded = {
        topic.name: load(source, topic, int(topic.share * args.megabytes * 1_000_000)) for topic in TOPICS
    }
    if args.json:
        print_json({"type": "loaded", "topics": {name: asdict(each) for name, each in loaded.items()}})
    else:
        rows = [("topic", "partitions", "codec", "records", "aborted", "MB")]
        for topic in TOPICS:
            each = loaded[topic.name]
            rows.append(
                (
                    topic.name,
                    str(topic.partitions),
                    topic.codec,
                    f"{each.records:,}",
                    f"{each.aborted:,}",
                    f"{each.value_bytes / 1e6:.1f}",
                )
            )
        print(table(rows), "\n\nMirrored with Spark:\n", sep="", flush=True)
    return loaded


def _mirror(options: MirrorOptions, args: argparse.Namespace) -> Summary:
    from shoal.spark.api import mirror

    with report_to(as_json=args.json) as report:
        summary = mirror(options, on_progress=report.progress, on_warning=report.warning)
        report.summary(summary)
    return summary


def _verify(options: MirrorOptions, summary: Summary, args: argparse.Namespace) -> None:
    """
    Compare the copies with the originals.

    Raises:
        ShoalError: The copies differ from the originals.

    """
    from shoal.verify import verify

    source, rules = options.source, {copy_rules(options.source)}
    report = verify(source, options.destination, summary.topics, group=summary.group, rules=rules)
    if args.json:
        print_json(report.to_json_object())
    if not report.equal:
        raise ShoalError(f"the copies and the originals: {report.outcome.value}")
    if not args.json:
        print(
            f"\nVerified: {report.batches:,} batches are the same on both sides, by counts, times and "
            "payload checksums."
        )


def _count(destination: str, loaded: Mapping[str, Loaded], args: argparse.Namespace) -> None:
    """
    Count the copies' records with another client.

    Raises:
        ShoalError: The numbers differ from those of the loaded records.

    """
    from ..demo import count

    counts = count(destination, list(loaded))
    wrong = [name for name, each in loaded.items() if counts[name] != each.records]
    if wrong:
        raise ShoalError(f"the copies of {', '.join(wrong)} do not have the records that were loaded")
    if args.json:
        print_json({"type": "counted", "records": counts})
    else:
        print(
            f"confluent-kafka reads {sum(counts.values()):,} records from the copies, as many as were loaded."
        )
