"""``shoal mirror``: copy topics from one cluster to another."""

from __future__ import annotations

import argparse
import threading

from ..mirroring.options import (
    DEFAULT_COMMIT_INTERVAL_MS,
    DEFAULT_MASTER,
    MirrorOptions,
    Start,
    parse_bytes,
)
from ..mirroring.progress import Progress
from .options import (
    Subparsers,
    add_cluster_options,
    add_group_option,
    add_output_options,
    add_topic_options,
    parse_clusters,
    parse_key_values,
    parse_topics,
)
from .report import report_to

__all__ = ["add_parser", "parse", "run"]


def add_parser(verbs: Subparsers) -> None:
    parser = verbs.add_parser(
        "mirror",
        help="copy topics from one cluster to another",
        description="Copy topics from one cluster to another, by whole record batches: every record, in "
        "order, once. Goes on until SIGINT or SIGTERM, unless --once is given; then finishes what is in "
        "flight and commits. The position is a consumer group's on the source cluster: started again, it "
        "goes on there.",
        allow_abbrev=False,
    )
    add_cluster_options(parser)
    add_topic_options(parser)
    _add_mirror_options(parser.add_argument_group("mirror"))
    _add_spark_options(parser.add_argument_group("Spark"))
    add_output_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)


def _add_mirror_options(group: argparse._ArgumentGroup) -> None:
    add_group_option(group)
    group.add_argument(
        "--once", action="store_true", help="copy up to the end offsets seen at the start, then exit"
    )
    group.add_argument(
        "--start",
        default="earliest",
        metavar="earliest|latest|TIMESTAMP",
        help="where a partition begins that has no committed position; a timestamp is milliseconds since "
        "1970 or ISO-8601, and may lie inside a batch, which stops the partition for now "
        "(default: earliest)",
    )
    group.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="of topics that are created (default: the source's, or what the destination can hold)",
    )
    group.add_argument(
        "--allow-nonempty",
        action="store_true",
        help="also copy into a destination partition that holds records which are not the source's, "
        "without a committed position",
    )
    group.add_argument(
        "--fetch-buffer-bytes", default="16m", metavar="BYTES", help="of each Spark task (default: 16m)"
    )
    group.add_argument(
        "--commit-interval-ms",
        type=int,
        default=DEFAULT_COMMIT_INTERVAL_MS,
        metavar="MS",
        help=f"between two commits of the position (default: {DEFAULT_COMMIT_INTERVAL_MS})",
    )


def _add_spark_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--master",
        default=DEFAULT_MASTER,
        metavar="MASTER",
        help=f"any Spark master (default: {DEFAULT_MASTER})",
    )
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="Spark's checkpoint directory; losing it changes no position "
        "(default: by group, under the user's state directory)",
    )
    group.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting; may be repeated"
    )


def parse(args: argparse.Namespace) -> MirrorOptions:
    """
    Raises:
        ConfigError: An option makes no sense; names it.
    """
    source, destination = parse_clusters(args)
    return MirrorOptions(
        source=source,
        destination=destination,
        topics=parse_topics(args),
        group=args.group,
        once=args.once,
        start=Start.parse(args.start),
        replication_factor=args.replication_factor,
        fetch_buffer_bytes=parse_bytes("fetch-buffer-bytes", args.fetch_buffer_bytes),
        commit_interval_ms=args.commit_interval_ms,
        allow_nonempty=args.allow_nonempty,
        master=args.master,
        checkpoint=args.checkpoint,
        spark_conf=tuple(parse_key_values("--conf", args.conf).items()),
    )


def run(args: argparse.Namespace) -> int:
    options = parse(args)
    # Spark takes a second to import: not for who made a mistake, or asked for help.
    from ..spark.job import mirror

    stop = threading.Event()
    with report_to(as_json=args.json) as report:

        def on_progress(progress: Progress) -> None:
            try:
                report.progress(progress)
            except BrokenPipeError:
                # Nobody reads us any more (| head). It comes up again, and is dealt with, at the summary.
                stop.set()

        summary = mirror(options, on_progress=on_progress, on_warning=report.warning, stop=stop)
        report.summary(summary)
    return summary.exit_code
