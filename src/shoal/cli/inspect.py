"""``shoal inspect``: show what is in a cluster's batches."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from .. import kinds
from ..client.cluster import Cluster
from ..client.config import ClientConfig
from ..declare import add_options, declared, given, option, pick
from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..inspect import InspectOptions, inspect
from ..inspect.page import page_html
from ..mirroring.model.topics import TopicSelection
from ..mirroring.prepare.unmatched import glob_warnings, select_topics
from ..result_file import check_result_file, write_result_file
from .inspect_report import done_of, print_report
from .options import Clusters, Subparsers, add_output_options, parse_cluster
from .output import print_json, say, warn
from .working import Working

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
        "is measured. Exit codes: 0 done; 1 a partition could not be read, or the "
        "cluster did not respond; 2 usage or configuration.",
        epilog="Example:\n\n  shoal inspect --from old:9092 --topics 'orders.*' --report batches.html",
    )
    add_options(
        parser,
        pick(Clusters, "from_servers", "from_config", group="cluster"),
        pick(TopicSelection, "topics", default=".*", required=False),
        pick(TopicSelection, "exclude"),
        declared(InspectOptions),
        declared(_Command),
    )
    add_output_options(parser)


@dataclass(frozen=True)
class _Command:
    """Options of the command alone."""

    report: str | None = option(
        replace(kinds.FILE, metavar="FILE.html"),
        "write the result as one page, with bars of batch sizes",
        default=None,
        group="output",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    source = parse_cluster("source", "from", args.from_servers, args.from_config)
    options = InspectOptions(**given(InspectOptions, vars(args)))
    if args.report:
        check_result_file("--report", args.report)
    with Working("asking for topics and offsets", as_json=args.json) as working:
        topics = _select(source, TopicSelection(args.topics or ".*", args.exclude))
        report = inspect(
            source, topics, options, on_progress=lambda progress: working.show(done_of(progress))
        )
    for each in report.not_inspected:
        warn(f"{each.partition} was not inspected: {each.reason}")
    if args.report:
        write_result_file("report", args.report, page_html(report))
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
    topics = list(select_topics(selection, found, cluster, with_missing=True))
    for warning in glob_warnings(selection, found):
        warn(warning)
    return topics
