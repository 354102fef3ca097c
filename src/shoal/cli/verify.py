"""``shoal verify``: compare topics with their mirrors."""

from __future__ import annotations

import argparse

from ..client.cluster import Cluster, patiently
from ..client.config import ClientConfig
from ..client.reachable import check_advertised
from ..errors import ConfigError
from ..exit_codes import EXIT_NOT_COMPARED
from ..mirroring.model.copy_options import all_copy_rules
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from ..mirroring.prepare.unmatched import idle_expressions, why_nothing_matches
from ..verify import DEFAULT_PATIENCE_S, MOST_RANGES, verify
from .options import (
    Subparsers,
    add_cluster_options,
    add_decompression_limit,
    add_group_option,
    add_output_options,
    add_topic_options,
    parse_clusters,
    parse_topics,
)
from .output import print_json, warn
from .verify_report import DEFAULT_RANGES, print_report, progress_to

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "verify",
        help="compare topics with their mirrors",
        description="Compare topics with their mirrors: the same records in the same order. Batches are "
        "compared by count, timestamps and payload checksum, without decompressing; only those that are not "
        "the same (cropped, rebuilt, recompressed) are decoded, and their records compared. Both sides are "
        "read once, up to the end offsets seen at the start. Dropped transaction markers and aborted "
        "batches, a later start, the lag and records that retention deleted do not count as differences. "
        "Exit codes: 0 equal, 1 different, 2 usage or configuration, 3 could not compare.",
        epilog="Example:\n\n  shoal verify --from old:9092 --to new:9092 --topics 'orders,payments.*'",
        allow_abbrev=False,
    )
    add_cluster_options(parser)
    add_topic_options(parser)
    mirror = parser.add_argument_group("mirror")
    add_group_option(mirror)
    add_decompression_limit(mirror, "is not compared")
    mirror.add_argument(
        "--all-ranges",
        action="store_true",
        help="print all ranges that differ, at most 100 a partition (default: the first 5, and a count)",
    )
    add_output_options(
        parser, exit_code_of_failure=EXIT_NOT_COMPARED, exit_code_of_interrupt=EXIT_NOT_COMPARED
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    source, destination = parse_clusters(args)
    selection = parse_topics(args)
    options = MirrorOptions.parse(source, destination, selection, vars(args))
    _warn_of_unreachable(source, destination)
    topics = _select(source, selection)
    with progress_to(as_json=args.json) as on_progress:
        report = verify(
            source,
            destination,
            topics,
            group=args.group,
            rules=all_copy_rules(source),
            options=options.copy,
            on_progress=on_progress,
        )
    for warning in report.warnings:
        warn(warning)
    if args.json:
        print_json(report.to_json_object())
    else:
        print_report(report, most_ranges=MOST_RANGES if args.all_ranges else DEFAULT_RANGES)
    return report.exit_code


def _warn_of_unreachable(*clusters: ClientConfig) -> None:
    for config in clusters:
        with Cluster(config) as cluster:
            for warning in check_advertised(cluster):
                warn(warning)


def _select(source: ClientConfig, selection: TopicSelection) -> dict[str, str]:
    """
    Return the topics to compare, with their names at the destination. Topics given by name may be missing.

    Raises:
        ConfigError: No topic matches.

    """
    with Cluster(source) as cluster:
        found = patiently(cluster.refresh, patience_s=DEFAULT_PATIENCE_S).topics
    topics = selection.select(found)
    for name in selection.missing(found):
        topics[name] = selection.destination_of(name)
    if not topics:
        raise ConfigError(why_nothing_matches(selection, found, str(cluster)))
    for warning in idle_expressions(selection, found):
        warn(warning)
    return topics
