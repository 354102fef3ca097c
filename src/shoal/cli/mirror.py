"""``shoal mirror``: copy topics from one cluster to another."""

from __future__ import annotations

import argparse
import threading
from dataclasses import dataclass

from .. import kinds
from ..declare import add_options, declared, given, option, pick
from ..errors import BrokerError, ConfigError, Stopped, lacks_acl
from ..exit_codes import EXIT_FAILED
from ..mirroring.driver.signals import Signals
from ..mirroring.model.acls import principal_of
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.progress import Summary
from ..mirroring.model.topics import TopicSelection
from .options import Clusters, Subparsers, add_output_options, parse_clusters, parse_topics
from .report import progress_until_unread, report_to

__all__ = ["add_parser", "parse", "run"]


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
    )
    add_options(
        parser,
        declared(Clusters),
        declared(TopicSelection),
        pick(MirrorOptions, "group"),
        declared(_Command, group="mirror"),
        pick(MirrorOptions, "once", "start"),
        declared(MirrorOptions),
    )
    add_output_options(parser, exit_code_of_interrupt=0)


@dataclass(frozen=True)
class _Command:
    """Options of the command alone."""

    dry_run: bool = option(
        kinds.FLAG,
        "print what the mirror would copy, create and change, the ACLs that it needs on each side, and what "
        "is wrong with clusters, Java and disk, and do nothing. Exit code 2 if the mirror would not start",
    )
    config: str | None = option(
        kinds.FILE,
        "read options from a TOML file, each under its own name without the dashes. The command line wins, "
        "and --no-OPTION wins over a true in the file (docs/operating.md)",
        default=None,
    )


def parse(args: argparse.Namespace) -> MirrorOptions:
    """
    Return the options of the mirror.

    Raises:
        ConfigError: An option cannot be used.

    """
    return MirrorOptions(*parse_clusters(args), parse_topics(args), **given(MirrorOptions, vars(args)))


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
                from ..spark.api import mirror
        except Stopped:
            ended = f"stopped by {signals.received} before anything was copied"
            summary = Summary.of_nothing(options.group, 0.0, ended, once=options.once)
        else:
            try:
                summary = mirror(
                    options,
                    on_progress=progress_until_unread(report, stop),
                    on_warning=report.warning,
                    on_notice=report.notice,
                    stop=stop,
                )
            except (ConfigError, BrokerError) as error:
                if not lacks_acl(error):
                    raise
                # A retry without the ACL is of no use.
                raise ConfigError(f"{error}. {_where_the_commands_are(options)}") from error
        report.summary(summary)
    return summary.exit_code


def _where_the_commands_are(options: MirrorOptions) -> str:
    principals = " and ".join(dict.fromkeys(map(principal_of, (options.source, options.destination))))
    return (
        "Run the same command with --dry-run: it prints the kafka-acls.sh commands that grant "
        f"{principals} the missing rights"
    )
