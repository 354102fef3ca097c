"""``shoal mirror``: copy topics from one cluster to another."""

from __future__ import annotations

import argparse
import threading

from ..errors import Stopped
from ..exit_codes import EXIT_FAILED
from ..mirroring.driver.signals import Signals
from ..mirroring.model.copy_options import MultiBatch, Rebatch
from ..mirroring.model.incidents import Delivery, IncidentKind
from ..mirroring.model.options import (
    DEFAULT_COMMIT_INTERVAL_MS,
    DEFAULT_MASTER,
    DEFAULT_REFRESH_S,
    DEFAULT_RETRY_STOPPED_S,
    DEFAULT_SLICE_S,
    MirrorOptions,
    Start,
    parse_listen,
)
from ..mirroring.model.progress import Summary
from ..mirroring.model.sizes import parse_bytes
from .config_file import add_config_option
from .dry_run import print_dry_run
from .http_options import add_http_options, parse_http
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
from .output import progress_until_unread, report_to

__all__ = [
    "add_guarantee_options",
    "add_parser",
    "add_spark_options",
    "add_watching_options",
    "parse",
    "parse_continue_on",
    "run",
]


def add_parser(verbs: Subparsers) -> None:
    parser = verbs.add_parser(
        "mirror",
        help="copy topics from one cluster to another",
        description="Copy topics from one cluster to another, by whole record batches: every record, in "
        "order, once. Goes on until SIGINT or SIGTERM, unless --once is given; then finishes what is in "
        "flight and commits. The position is a consumer group's on the source cluster: started again, it "
        "goes on there. Exit codes: 0 done; 1 a partition was stopped, or the mirror failed or was "
        "interrupted; 2 usage or configuration, and nothing was done; 4 done, but after incidents that an "
        "--on option let it go on from.",
        epilog="Examples: copy what is there now; keep a copy with another name up to date:\n\n"
        "  shoal mirror --from old:9092 --to new:9092 --topics 'orders,payments.*' --once\n"
        "  shoal mirror --from old:9092 --to new:9092 --topics orders --rename '(.*)=west.\\1'",
        allow_abbrev=False,
    )
    add_cluster_options(parser)
    add_topic_options(parser)
    _add_mirror_options(parser.add_argument_group("mirror"))
    add_guarantee_options(parser)
    add_watching_options(parser)
    add_spark_options(parser)
    add_output_options(parser, exit_code_of_interrupt=0)
    add_config_option(parser)
    parser.set_defaults(run=run)


def _add_mirror_options(group: argparse._ArgumentGroup) -> None:
    add_group_option(group)
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="print what the mirror would copy, create and change, and the ACLs that it needs on each side, "
        "and do nothing; exit code 2 if the mirror would not start",
    )
    group.add_argument(
        "--once", action="store_true", help="copy up to the end offsets seen at the start, then exit"
    )
    group.add_argument(
        "--start",
        default="earliest",
        metavar="earliest|latest|TIMESTAMP",
        help="start position for partitions without a committed position: earliest, latest (what is newer "
        "than the group's first start begins at its beginning), or a timestamp (milliseconds since 1970, or "
        "ISO 8601) (default: earliest)",
    )
    group.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="replication factor of topics that shoal creates (default: the source topic's, at most the "
        "number of destination brokers)",
    )
    group.add_argument(
        "--adopt",
        action="store_true",
        help="take over copies that have no committed position, such as those of another group or of "
        "MirrorMaker 2: each is compared with the source as a whole, and the mirror goes on behind it; a "
        "copy that differs stops its partition, and nothing is written; so does one that begins later than "
        "the source (docs/from-mirrormaker-2.md)",
    )
    group.add_argument(
        "--adopt-from-later",
        action="store_true",
        help="with --adopt: also take over copies that begin later than the source; the source's records "
        "before the copy's first one are never mirrored",
    )
    group.add_argument(
        "--allow-nonempty",
        action="store_true",
        help="also copy into a destination partition that holds records and has no committed position, from "
        "--start on: records that it holds already will be there twice, unless the copy shows where the "
        "source goes on; stops if its last batch is in the source, but nothing shows whether those before "
        "it were mirrored",
    )
    group.add_argument(
        "--fetch-buffer-bytes",
        default="16m",
        metavar="BYTES",
        help="fetch buffer of each Spark task (default: 16m)",
    )
    group.add_argument(
        "--multi-batch",
        choices=[each.value for each in MultiBatch],
        default=MultiBatch.AUTO.value,
        help="send several batches of a partition in one request: auto where a destination broker takes "
        "them, which stock brokers do not (docs/small-batches.md); required refuses to begin where one does "
        "not (default: auto)",
    )
    group.add_argument(
        "--rebatch",
        metavar="BYTES[:CODEC]",
        help="join consecutive batches below that size into larger ones, as 64k:zstd: they are decoded, and "
        "compressed again, with the codec named or their own (default: batches stay as they are)",
    )
    group.add_argument(
        "--commit-interval-ms",
        type=int,
        default=DEFAULT_COMMIT_INTERVAL_MS,
        metavar="MS",
        help=f"between two commits of the position (default: {DEFAULT_COMMIT_INTERVAL_MS})",
    )
    group.add_argument(
        "--slice",
        type=float,
        default=DEFAULT_SLICE_S,
        metavar="SECONDS",
        help="without --once: how long a micro-batch copies before positions are dealt anew "
        f"(default: {DEFAULT_SLICE_S:g})",
    )
    group.add_argument(
        "--refresh",
        type=float,
        default=DEFAULT_REFRESH_S,
        metavar="SECONDS",
        help="without --once: how often new topics and partitions are looked for "
        f"(default: {DEFAULT_REFRESH_S:g})",
    )
    group.add_argument(
        "--retry-stopped",
        type=float,
        default=DEFAULT_RETRY_STOPPED_S,
        metavar="SECONDS",
        help="without --once: how often a stopped partition is tried again if its reason can heal, such as a "
        "missing ACL; 0 for never. SIGUSR1 tries every stopped partition at once "
        f"(default: {DEFAULT_RETRY_STOPPED_S:g})",
    )


_INCIDENTS = {
    IncidentKind.FOREIGN_RECORDS: "another producer wrote to a destination partition; continue: go on behind "
    "its records",
    IncidentKind.DESTINATION_LOSS: "the destination lost acknowledged records, or its topic was "
    "recreated; continue: mirror again what the source still has",
    IncidentKind.SOURCE_RESET: "the source lost mirrored records, or its topic was recreated; "
    "continue: mirror what the source has now behind what it had then",
    IncidentKind.SOURCE_RETENTION: "the source deleted records before they were mirrored; continue: go on at "
    "its first offset",
}


def add_guarantee_options(parser: argparse.ArgumentParser) -> None:
    """Add what is promised, and the policies of incidents."""
    group = parser.add_argument_group(
        "guarantees",
        "How to react to data loss or foreign writes. fail (the default): stop the partition. continue: "
        "count the incident, go on, and exit with code 4.",
    )
    group.add_argument(
        "--delivery",
        choices=[each.value for each in Delivery],
        default=Delivery.EXACTLY_ONCE.value,
        help="at-least-once is for destination partitions that have other writers: records may come again "
        "after a failure (default: exactly-once)",
    )
    for kind, meaning in _INCIDENTS.items():
        group.add_argument(
            kind.option,
            dest=kind.name,
            choices=["fail", "continue"],
            default="fail",
            help=meaning,
        )
    group.add_argument(
        "--keep-append-time",
        action="store_true",
        help="give records of LogAppendTime topics their append time, not their create time: such batches "
        "are decoded and compressed again",
    )
    group.add_argument(
        "--max-decompressed-bytes",
        default="64m",
        metavar="BYTES",
        help="maximum size of a decompressed batch; a larger batch stops its partition (default: 64m)",
    )


def parse_continue_on(args: argparse.Namespace) -> frozenset[IncidentKind]:
    """Return the kinds of incidents after which a partition goes on."""
    return frozenset(kind for kind in _INCIDENTS if getattr(args, kind.name) == "continue")


def add_watching_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for metrics, the status page and the report."""
    group = parser.add_argument_group("watching")
    group.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve metrics to Prometheus there; port 0 takes a free one"
    )
    group.add_argument(
        "--ui", metavar="HOST:PORT", help="serve a page there that shows the mirror at work, to browsers"
    )
    add_http_options(group)
    group.add_argument(
        "--report", metavar="FILE.html", help="write at the end what the run took and did, as one page"
    )


def add_spark_options(parser: argparse.ArgumentParser, default_master: str = DEFAULT_MASTER) -> None:
    """Add Spark's master, checkpoint and settings."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        default=DEFAULT_MASTER,
        metavar="MASTER",
        help=f"any Spark master (default: {default_master})",
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
    group.add_argument(
        "--allow-unauthenticated-spark",
        action="store_true",
        help="send the credentials of the Kafka clusters to the tasks even if Spark does not authenticate "
        "and encrypt its connections",
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
        slice_s=args.slice,
        refresh_s=args.refresh,
        retry_stopped_s=args.retry_stopped,
        adopt=args.adopt,
        adopt_from_later=args.adopt_from_later,
        allow_nonempty=args.allow_nonempty,
        delivery=Delivery(args.delivery),
        continue_on=parse_continue_on(args),
        keep_append_time=args.keep_append_time,
        max_decompressed_bytes=parse_bytes("max-decompressed-bytes", args.max_decompressed_bytes),
        multi_batch=MultiBatch(args.multi_batch),
        rebatch=Rebatch.parse("rebatch", args.rebatch) if args.rebatch is not None else None,
        metrics=parse_listen("metrics", args.metrics) if args.metrics is not None else None,
        ui=parse_listen("ui", args.ui) if args.ui is not None else None,
        http=parse_http(args),
        report=args.report,
        master=args.master,
        checkpoint=args.checkpoint,
        spark_conf=tuple(parse_key_values("--conf", args.conf).items()),
        allow_unauthenticated_spark=args.allow_unauthenticated_spark,
    )


def run(args: argparse.Namespace) -> int:
    options = parse(args)
    if args.dry_run:
        args.exit_code_of_interrupt = EXIT_FAILED  # it has looked at less than it was asked to
        if options.report is not None:
            from ..mirroring.monitoring.page.report import check_report

            check_report(options.report)
        return print_dry_run(options, as_json=args.json)
    stop = threading.Event()
    signals = Signals(stop, on_retry=lambda: None)
    with signals, report_to(as_json=args.json, is_service=not options.once) as report:
        try:
            with signals.interrupting():
                # Spark takes a second to import: not after a mistake, and not for --help.
                from ..spark.api import run_mirror
        except Stopped:
            ended = f"stopped by {signals.received} before anything was copied"
            summary = Summary.of_nothing(options.group, 0.0, ended, once=options.once)
        else:
            summary = run_mirror(
                options,
                on_progress=progress_until_unread(report, stop),
                on_warning=report.warning,
                on_notice=report.notice,
                stop=stop,
            )
        report.summary(summary)
    return summary.exit_code
