"""``shoal mirror``: copy topics from one cluster to another."""

from __future__ import annotations

import argparse
import threading
from typing import Any

from ..errors import Stopped
from ..exit_codes import EXIT_FAILED
from ..mirroring.driver.signals import Signals
from ..mirroring.model.copy_options import CopyOptions
from ..mirroring.model.follow_options import FollowOptions, KeptAcls
from ..mirroring.model.options import DEFAULT_MASTER, MirrorOptions
from ..mirroring.model.progress import Summary
from .config_file import add_config_option
from .http_options import add_http_options
from .options import (
    Subparsers,
    add_cluster_options,
    add_decompression_limit,
    add_group_option,
    add_group_selection,
    add_option,
    add_output_options,
    add_topic_options,
    check_group_options,
    parse_clusters,
    parse_key_values,
    parse_topics,
)
from .refused_start import pointing_to_commands
from .report import progress_until_unread, report_to

__all__ = [
    "add_all_options",
    "add_guarantee_options",
    "add_parser",
    "add_spark_options",
    "add_watching_options",
    "given_options",
    "parse",
    "run",
]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "mirror",
        help="copy topics from one cluster to another",
        description="Copy topics from one cluster to another, by whole record batches: every record, in "
        "order, once. Without --once, the mirror runs until SIGINT or SIGTERM, then finishes the batches in "
        "flight and commits. A consumer group on the source cluster holds the position, from which the next "
        "run continues. Exit codes: 0 done; 1 a partition was stopped, or the mirror failed or was "
        "interrupted; 2 usage or configuration, and nothing was done; 4 done, but after incidents that "
        "--continue-after allowed.",
        epilog="Examples: copy all current records, and keep a copy with another name up to date:\n\n"
        "  shoal mirror --from old:9092 --to new:9092 --topics 'orders,payments.*' --once\n"
        "  shoal mirror --from old:9092 --to new:9092 --topics orders --rename '(.*)=west.\\1'",
        allow_abbrev=False,
    )
    add_all_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)


def add_all_options(parser: argparse.ArgumentParser, *, exit_code_of_interrupt: int) -> None:
    """Add all options of a mirror."""
    add_cluster_options(parser)
    add_topic_options(parser)
    _add_mirror_options(parser.add_argument_group("mirror"))
    _add_follow_options(parser)
    _add_following_options(parser.add_argument_group("consumer groups"))
    _add_steering_options(parser.add_argument_group("steering"))
    add_guarantee_options(parser)
    add_watching_options(parser)
    add_spark_options(parser)
    add_output_options(parser, exit_code_of_interrupt=exit_code_of_interrupt)
    add_config_option(parser)


def _add_mirror_options(group: argparse._ArgumentGroup) -> None:
    add_group_option(group)
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="print what the mirror would copy, create and change, and the ACLs that it needs on each side, "
        "and do nothing. Exit code 2 if the mirror would not start",
    )
    add_option(group, MirrorOptions, "once", "copy up to the end offsets seen at the start, then exit")
    add_option(
        group,
        MirrorOptions,
        "start",
        "start position for partitions without a committed position: earliest, latest (partitions that are "
        "newer than the group's first start begin at their first record), or a timestamp (milliseconds since "
        "1970, or ISO 8601)",
        metavar="earliest|latest|TIMESTAMP",
    )
    group.add_argument(
        "--from-certificate",
        metavar="FILE",
        help="go back after the cut-over of this certificate: copy the records behind the cut to the old "
        "source, which must have no others since. Partitions that have a position since the cut keep it "
        "(docs/moving-a-cluster.md)",
    )
    group.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="replication factor of topics that shoal creates (default: the source topic's, at most the "
        "number of destination brokers)",
    )
    add_option(
        group,
        CopyOptions,
        "adopt",
        "take over copies without a committed position, such as those of another group or of MirrorMaker 2: "
        "each is compared with the source as a whole, and the mirror continues behind it. A copy that "
        "differs, or that begins later than the source (but see --continue-after source-retention), stops "
        "its partition, and nothing is written (docs/from-mirrormaker-2.md)",
    )
    add_option(group, CopyOptions, "fetch_buffer_bytes", "fetch buffer of each Spark task", metavar="BYTES")
    group.add_argument(
        "--rebatch",
        metavar="BYTES[:CODEC]",
        help="join consecutive batches below this size into larger ones, as 64k:zstd: they are decoded, and "
        "compressed again with this codec or their own (default: batches stay as they are)",
    )
    add_option(
        group,
        MirrorOptions,
        "refresh_s",
        "without --once: time between two searches for new topics and partitions",
        name="--refresh",
        metavar="SECONDS",
    )
    add_option(
        group,
        MirrorOptions,
        "max_new_partitions",
        "without --once: the most partitions that one search adds at the destination for new topics and "
        "partitions, and a tenth of the most since the start. If the source lists more, none is added, and "
        "that is an incident. A start adds all that --dry-run lists",
        metavar="N",
    )


def _add_follow_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what follows the records")
    add_option(
        group,
        FollowOptions,
        "sync_configs",
        "give copies the configurations that are set on their source topics, and the source's retention, "
        "cleanup policy and largest batch, at the start and at each --refresh. compression.type stays",
    )
    add_option(
        group,
        FollowOptions,
        "sync_configs_exclude",
        "with --sync-configs: configurations of copies that stay as they are",
        metavar="REGEX",
    )
    group.add_argument(
        "--sync-acls",
        choices=[each.value for each in KeptAcls],
        help="create the ACLs of mirrored topics, and of the groups of --groups, at the destination, at the "
        "start and at each --refresh. read: READ and DESCRIBE, which consumers need. all: each operation on "
        "topics. No ACL is deleted",
    )


def _add_following_options(group: argparse._ArgumentGroup) -> None:
    add_group_selection(group, required=False)
    add_option(
        group,
        MirrorOptions,
        "groups_interval_s",
        "without --once: time between two translations of their offsets, up to three times as long for "
        "hundreds of busy groups",
        name="--groups-interval",
        metavar="SECONDS",
    )


def _add_steering_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--control",
        metavar="FILE",
        help="listen on this unix socket for commands of 'shoal control', which pause, limit and stop the "
        "running mirror (docs/steering.md). A restart forgets what they set: these options hold again",
    )
    group.add_argument(
        "--limit", metavar="BYTES", help="fetch at most so many bytes a second, in all tasks together, as 50m"
    )
    group.add_argument(
        "--pause",
        metavar="TOPICS[,TOPICS]",
        help="names and regular expressions of topics to fetch nothing of, until 'shoal control FILE resume'",
    )


def add_guarantee_options(parser: argparse.ArgumentParser) -> None:
    """Add the guarantees, and the policies of incidents."""
    group = parser.add_argument_group(
        "guarantees",
        "Data loss and foreign writes stop the partition. After the kinds of --continue-after, it continues, "
        "and the mirror counts the incident and exits with code 4.",
    )
    add_option(
        group,
        CopyOptions,
        "delivery",
        "at-least-once is for destination partitions with other writers: records may be duplicated after a "
        "failure",
    )
    group.add_argument(
        "--continue-after",
        metavar="KIND[,KIND]",
        help="foreign-records: copy the next records behind those of another producer. destination-loss: if "
        "the destination lost acknowledged records, or its topic was recreated, mirror again what the source "
        "still has. source-reset: if the source lost mirrored records, or its topic was recreated, mirror "
        "its present records behind the earlier ones. source-retention: skip records that the source deleted "
        "before they were mirrored, or does not send, or that a copy of --adopt never had",
    )
    add_option(
        group,
        CopyOptions,
        "keep_append_time",
        "give records of LogAppendTime topics their append time, not their create time: such batches are "
        "decoded and compressed again",
    )
    add_decompression_limit(group, "stops its partition")


def add_watching_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for metrics, the status page and the report."""
    group = parser.add_argument_group("monitoring")
    group.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics for Prometheus at this address. Port 0 takes a free port",
    )
    group.add_argument(
        "--ui",
        metavar="HOST:PORT",
        help="serve a status page for browsers at this address. Port 0 takes a free port",
    )
    add_http_options(group)
    group.add_argument(
        "--report", metavar="FILE.html", help="write a report of the run at its end, as one page"
    )


def add_spark_options(parser: argparse.ArgumentParser, default_master: str = DEFAULT_MASTER) -> None:
    """Add Spark's master and settings, and the mirror's directory."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", metavar="MASTER", help=f"any Spark master (default: {default_master})")
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="directory for the mirror's id in its group and for Spark's log. Positions are in the group, "
        "not here (default: by group, under the user's state directory)",
    )
    group.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting. May be repeated"
    )
    add_option(
        group,
        MirrorOptions,
        "allow_unauthenticated_spark",
        "send the credentials of the Kafka clusters to the tasks even if Spark does not authenticate and "
        "encrypt its connections",
    )


def parse(args: argparse.Namespace) -> MirrorOptions:
    """
    Return the options of the mirror.

    Raises:
        ConfigError: An option cannot be used.

    """
    check_group_options(args)
    source, destination = parse_clusters(args)
    return MirrorOptions.parse(source, destination, parse_topics(args), given_options(args))


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as given, by their fields' names."""
    return {**vars(args), "conf": parse_key_values("--conf", args.conf)}


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    options = parse(args)
    if args.dry_run:
        args.exit_code_of_interrupt = EXIT_FAILED  # the plan is not complete
        if options.report is not None:
            from ..result_file import check_result_file

            check_result_file("--report", options.report)
        from .dry_run import print_dry_run

        return print_dry_run(options, as_json=args.json)
    stop = threading.Event()
    signals = Signals(stop, on_retry=lambda: None)
    with signals, report_to(as_json=args.json, is_service=not options.once) as report:
        try:
            with signals.interrupting():
                # Importing Spark takes a second: not after a mistake, nor for --help.
                from ..spark.api import run_mirror
        except Stopped:
            ended = f"stopped by {signals.received} before anything was copied"
            summary = Summary.of_nothing(options.group, 0.0, ended, once=options.once)
        else:
            with pointing_to_commands(options):
                summary = run_mirror(
                    options,
                    on_progress=progress_until_unread(report, stop),
                    on_warning=report.warning,
                    on_notice=report.notice,
                    stop=stop,
                )
        report.summary(summary)
    return summary.exit_code
