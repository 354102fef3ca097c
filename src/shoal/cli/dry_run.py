"""``shoal mirror --dry-run``: the plan of a mirror, as text or as one JSON object."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from .. import json_report
from ..client.offsets import LATEST
from ..errors import ConfigError
from ..exit_codes import EXIT_DONE, EXIT_USAGE
from ..mirroring.driver.checkup import Finding, check_directories
from ..mirroring.driver.dry_run import DryRun, PartitionOutlook, TopicOutlook, dry_run
from ..mirroring.model.acls import Acl, acl_sentences
from ..mirroring.model.options import MirrorOptions
from ..printable import printable_lines
from .output import print_json, say, table, warn
from .working import Working

__all__ = ["print_dry_run"]


def print_dry_run(options: MirrorOptions, *, as_json: bool) -> int:
    """Inspect both clusters, print the plan, and return the exit code."""
    with Working("checking both clusters", as_json=as_json):
        found = dry_run(options, on_warning=warn)
    for warning in found.warnings:
        warn(warning)
    for sentence in acl_sentences(found.missing_acls):
        warn(f"missing for this principal: {sentence}")
    machine = [*_check_spark(options), *check_directories(options)]
    for finding in machine:
        warn(finding.text)
    commands = options.acl_commands(found.acls)
    later = options.acl_commands(_later_acls(options, found), creates=False)
    if as_json:
        plan = {"type": "dry-run", **json_report.as_json(found), "machine": json_report.as_json(machine)}
        print_json({**plan, "acl_commands": commands, "later_acl_commands": later})
    else:
        lines = _lines(options, found, commands, later)
        print("\n".join(map(printable_lines, lines)), flush=True)
    if found.refusal is not None:
        say(found.refusal)
    return EXIT_USAGE if found.refusal or any(each.stops for each in machine) else EXIT_DONE


def _check_spark(options: MirrorOptions) -> Iterator[Finding]:
    try:
        from ..spark.launch.java import check_spark
    except ConfigError as error:
        # The plan may be made on another machine than the mirror's.
        yield Finding(str(error), stops=False)
    else:
        yield from check_spark(options.master)


def _later_acls(options: MirrorOptions, found: DryRun) -> list[Acl]:
    """Return the ACLs that only later partitions of copies will need."""
    if options.once or options.destination.acl_cluster("topic") is None:
        return []
    later = [Acl("destination", "topic", each.plan.destination, "ALTER") for each in found.topics]
    return [acl for acl in later if acl not in found.acls]


def _lines(
    options: MirrorOptions, found: DryRun, commands: Sequence[str], later: Sequence[str]
) -> Iterator[str]:
    """Yield the plan for a person."""
    yield "dry run: nothing is created, joined, committed or copied"
    yield ""
    yield table(
        [
            ("source", _cluster(options.source.servers, found.source_cluster_id)),
            ("destination", _cluster(options.destination.servers, found.destination_cluster_id)),
            ("group", f"{found.group}, held by {found.holder or 'no process'}"),
        ]
    )
    if found.topics:
        yield ""
        headings = ("topic", "copy", "partitions", "begin at", "offsets", "at the destination")
        yield table([headings, *(_row(options, topic) for topic in found.topics)])
        yield from found.beginnings
    yield from _section(
        "configurations of the topics to be created:",
        [
            f"{each.name}: {', '.join(f'{name}={value}' for name, value in sorted(each.configs.items()))}"
            for topic in found.topics
            if (each := topic.plan.creation)
        ],
    )
    yield from _section(
        "differences besides the records (--sync configs,acls changes them):", found.differences
    )
    acls = acl_sentences(found.acls)
    if options.topics.expressions:
        acls.append("An expression selects only among topics that this principal may describe.")
    yield from _section(
        "ACLs that the mirror's principal needs (READ, WRITE and ALTER imply DESCRIBE):", acls
    )
    yield from _section(
        "To grant them (the file of --command-config has an administrator's login):",
        [f"PRINCIPAL={shlex.quote(_principal(options, found))}", *commands],
    )
    if later:
        yield "  # later, once a topic of the source gets more partitions:"
        yield from (f"  {command}" for command in later)


def _section(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield heading
        yield from (f"  {each}" for each in lines)


def _cluster(servers: str, cluster_id: str | None) -> str:
    return f"{servers}, cluster id {cluster_id}" if cluster_id else servers


def _principal(options: MirrorOptions, found: DryRun) -> str:
    """Return the principal that lacks ACLs, if it is the same at both clusters."""
    source, destination = options.source.principal, options.destination.principal
    return source if found.missing_acls and source and source == destination else "User:..."


def _row(options: MirrorOptions, topic: TopicOutlook) -> tuple[str, ...]:
    plan, change = topic.plan, "as it is"
    if plan.deleted:
        change = "deleted: not created again"
    elif plan.creation:
        created = plan.creation
        change = f"created: {created.partitions} partitions, replication factor {created.replication_factor}"
    elif plan.added_partitions:
        change = f"{plan.added_partitions} partitions added"
    begins = Counter(_begin(options, each) for each in topic.partitions)
    return (
        plan.source,
        plan.destination,
        f"{len(topic.partitions)}",
        ", ".join(f"{begin} {count}" for begin, count in begins.items()),
        f"{topic.offsets:,}",
        change,
    )


def _begin(options: MirrorOptions, partition: PartitionOutlook) -> str:
    if partition.committed or partition.at_cut:
        return "position" if partition.committed else "cut"
    # Partitions that are newer than the first start begin at their first record.
    is_newer = options.start.timestamp_ms == LATEST and partition.offsets
    return "earliest" if is_newer else str(options.start)
