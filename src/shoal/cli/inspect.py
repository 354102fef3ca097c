"""``shoal inspect``: show what is in a cluster's batches."""

from __future__ import annotations

import argparse

from ..client.cluster import Cluster
from ..client.config import ClientConfig
from ..errors import ConfigError
from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..inspect import InspectOptions, inspect
from ..inspect.page import write_page
from ..mirroring.model.topics import TopicSelection
from ..mirroring.prepare.unmatched import idle_expressions, why_nothing_matches
from ..result_file import check_result_file
from .inspect_report import print_report, progress_to
from .options import (
    Subparsers,
    add_cluster_options,
    add_option,
    add_output_options,
    add_topic_options,
    parse_cluster,
)
from .output import print_json, say, warn

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "inspect",
        help="show what is in a cluster's batches",
        description="Show what is in a cluster's batches, from their headers: sizes, codecs, producers, "
        "transactions, timestamps, gaps of compaction, formats and leader epochs, by topic. It ends with the "
        "settings of producers that would help. A sample is read by default. "
        "Nothing is written, and nothing is decompressed, except for a few batches of each topic whose ratio "
        "is measured (--ratio-batches 0: none). Exit codes: 0 done; 1 a partition could not be read, or the "
        "cluster did not respond; 2 usage or configuration.",
        epilog="Example:\n\n  shoal inspect --from old:9092 --topics 'orders.*' --report batches.html",
        allow_abbrev=False,
    )
    add_cluster_options(parser, sides=("from",))
    add_topic_options(parser, renamed=False, default=".*")
    reading = parser.add_argument_group("reading")
    how_much = reading.add_mutually_exclusive_group()
    add_option(
        how_much,
        InspectOptions,
        "sample",
        "bytes to read of each partition: at its start, its end and two places between",
        metavar="BYTES",
    )
    how_much.add_argument("--all", action="store_true", help="read all batches")
    add_option(
        reading,
        InspectOptions,
        "ratio_batches",
        "batches of each topic to decompress for the compression ratio, which no header has",
        metavar="NUMBER",
    )
    add_output_options(parser)
    parser.add_argument("--report", metavar="FILE.html", help="write the result as one page, with charts")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    source = parse_cluster("source", "from", args.from_servers, args.from_config)
    options = InspectOptions.parse(vars(args))
    if args.report:
        check_result_file("--report", args.report)
    topics = _select(source, TopicSelection(args.topics, args.exclude, None))
    with progress_to(as_json=args.json) as on_progress:
        report = inspect(source, topics, options, on_progress=on_progress)
    for each in report.not_inspected:
        warn(f"{each.partition} was not inspected: {each.reason}")
    if args.report:
        write_page(args.report, report)
        say(f"report: {args.report}")
    exit_code = EXIT_FAILED if report.not_inspected else EXIT_DONE
    if args.json:
        print_json({**report.to_json_object(), "exit_code": exit_code})
    else:
        print_report(report)
    return exit_code


def _select(source: ClientConfig, selection: TopicSelection) -> list[str]:
    """
    Return the topics to inspect. Topics given by name may be missing.

    Raises:
        ConfigError: No topic matches.

    """
    with Cluster(source) as cluster:
        found = cluster.refresh().topics  # at once: the address may be wrong
    topics = [*selection.select(found), *selection.missing(found)]
    if not topics:
        raise ConfigError(why_nothing_matches(selection, found, str(cluster)))
    for warning in idle_expressions(selection, found):
        warn(warning)
    return topics
