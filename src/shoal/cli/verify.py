"""``shoal verify``: compare topics with their mirrors."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from .. import kinds
from ..client.cluster import Cluster, patiently
from ..client.config import ClientConfig
from ..client.reachable import check_advertised
from ..declare import add_options, declared, given, option, pick
from ..errors import ConfigError
from ..exit_codes import EXIT_NOT_COMPARED
from ..mirroring.model.copy_options import CopyOptions, copy_rules
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from ..mirroring.prepare.descriptions import decompression_limit, describe_topics
from ..mirroring.prepare.unmatched import glob_warnings, select_topics, unmatched_warnings
from ..option_values import parse_text
from ..result_file import check_result_file, write_result_file
from ..verify import DEFAULT_PATIENCE_S, Extent, verify
from ..verify.page import report_html
from ..verify.partition import compare_alone
from ..verify.run import Compare
from .options import Clusters, Subparsers, add_output_options, parse_clusters, parse_topics
from .output import print_json, warn
from .verify_report import done_of, print_report
from .working import Working

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "verify",
        help="compare topics with their mirrors",
        description="Compare topics with their mirrors: the same records in the same order. Batches are "
        "compared by count, timestamps and payload checksum, without decompressing. Only those that are not "
        "the same (cropped, rebuilt, recompressed) are decoded, and their records compared. Both sides are "
        "read once, up to the end offsets seen at the start. Dropped transaction markers and aborted "
        "batches, a later start, the lag and records that retention deleted do not count as differences. "
        "Exit codes: 0 equal, or no record on either side; 1 different; 2 usage or configuration; 3 could "
        "not compare, or compared no record.",
        epilog="Example:\n\n  shoal verify --from old:9092 --to new:9092 --topics 'orders,payments.*'",
    )
    add_options(
        parser,
        declared(Clusters),
        declared(TopicSelection),
        pick(MirrorOptions, "group"),
        declared(_Command),
        pick(MirrorOptions, "conf"),
    )
    add_output_options(
        parser, exit_code_of_failure=EXIT_NOT_COMPARED, exit_code_of_interrupt=EXIT_NOT_COMPARED
    )


@dataclass(frozen=True)
class _Command:
    """Options of the command alone."""

    since: str | None = option(
        kinds.text("TIMESTAMP", parse_text),
        "compare from the first record of this time on: milliseconds since 1970, or ISO 8601. Ranges of less "
        "than 1,024 offsets are extended",
        default=None,
        group="extent",
    )
    until: str | None = option(
        kinds.text("TIMESTAMP|OFFSET", parse_text),
        "compare the records before the first one of this time, or before this offset, as --until of shoal "
        "mirror",
        default=None,
        group="extent",
    )
    last: str | None = option(
        kinds.text("DURATION|N"),
        "compare the records of the last 24h (or 90s, 30m, 7d), or the last N offsets of each partition",
        default=None,
        group="extent",
    )
    state: str | None = option(
        kinds.FILE,
        "keep in this file how far the copies are equal, and continue from there at the next start",
        default=None,
        group="extent",
    )
    sample: str | None = option(
        kinds.text("PERCENT"),
        "compare a share of each partition, such as 5%%, in ranges of offsets that lie at random",
        default=None,
        group="extent",
    )
    report: str | None = option(
        replace(kinds.FILE, metavar="FILE.html"),
        "write a page for people: what was compared and how, and each difference",
        default=None,
        group="report",
    )
    master: str | None = option(
        kinds.text("MASTER"),
        "share partitions among the tasks of this Spark master "
        "(default: no Spark, and four threads of this process)",
        default=None,
        group="Spark",
    )


@contextmanager
def _comparing(
    args: argparse.Namespace, source: ClientConfig, destination: ClientConfig, options: CopyOptions
) -> Iterator[Compare | None]:
    """Yield the comparison on Spark, if there is a master."""
    if args.master is None:
        yield None
        return
    # Importing Spark takes a second.
    from ..spark.over_partitions import over_partitions_on_spark

    do = partial(compare_alone, options=options, patience_s=DEFAULT_PATIENCE_S)
    conf = dict(kinds.SETTINGS.read("--conf", args.conf or []))
    with over_partitions_on_spark(do, source, destination, master=args.master, conf=conf) as compare:
        yield compare


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    _check_options(args)
    source, destination = parse_clusters(args)
    selection = parse_topics(args)
    extent = Extent.parse(vars(args))
    with Working("asking for topics and positions", as_json=args.json) as working:
        _reach(source, destination)
        topics, options, unmatched = _select(source, selection)
        with _comparing(args, source, destination, options) as compare:
            report = verify(
                source,
                destination,
                topics,
                group=args.group,
                rules={copy_rules(source)},
                options=options,
                on_progress=lambda progress: working.show(done_of(progress)),
                extent=extent,
                state=args.state,
                compare=compare,
            )
    report = replace(report, warnings=(*unmatched, *report.warnings))
    for warning in report.warnings:
        warn(warning)
    if args.report is not None:
        write_result_file("report", args.report, report_html(report), mode=0o600)
    if args.json:
        print_json(report.to_json_object())
    else:
        print_report(report)
    return report.exit_code


def _check_options(args: argparse.Namespace) -> None:
    """
    Check the options that belong together, and the files to write, before the comparison begins.

    Raises:
        ConfigError: A file cannot be written, or an option lacks or contradicts another.

    """
    if args.state is not None:
        if args.sample is not None:
            raise ConfigError("--sample leaves gaps, and --state has no gaps. Remove one of them")
        check_result_file("--state", args.state)
    given(MirrorOptions, {"group": args.group, "conf": args.conf})  # refuses what cannot be used
    if args.master is None and args.conf:
        raise ConfigError("--conf needs --master. Add it")
    if args.report is not None:
        check_result_file("--report", args.report)


def _reach(*clusters: ClientConfig) -> None:
    """
    Connect to all brokers, and warn of those that do not answer.

    Raises:
        Disconnected: A cluster does not answer: its address may be wrong.

    """
    for config in clusters:
        with Cluster(config) as cluster:
            for warning in check_advertised(cluster, must_answer=True):
                warn(warning)


def _select(source: ClientConfig, selection: TopicSelection) -> tuple[dict[str, str], CopyOptions, list[str]]:
    """
    Return the topics to compare, with their names at the destination, how to decode them, and warnings.

    Topics given by name may be missing.

    Raises:
        ConfigError: No topic matches.

    """
    with Cluster(source) as cluster:
        found = patiently(cluster.refresh, patience_s=DEFAULT_PATIENCE_S).topics
        topics = select_topics(selection, found, cluster, with_missing=True)
        present = [name for name in topics if name in found]
        described, _ = describe_topics(cluster, present, DEFAULT_PATIENCE_S)
    for warning in glob_warnings(selection, found):
        warn(warning)
    options = CopyOptions(max_decompressed_bytes=decompression_limit(described.values()))
    return topics, options, unmatched_warnings(selection, found)
