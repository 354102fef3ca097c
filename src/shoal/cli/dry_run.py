"""``shoal mirror --dry-run``: the plan of a mirror, as text or as one JSON object."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..client.offsets import LATEST
from ..errors import ConfigError
from ..exit_codes import EXIT_DONE, EXIT_USAGE
from ..mirroring.driver.checkup import Finding, check_directories
from ..mirroring.driver.dry_run import DryRun, TopicOutlook, dry_run
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
    refusal = None if found.refusal is None else str(found.refusal)
    machine = [*_check_spark(options), *check_directories(options)]
    for finding in machine:
        warn(finding.text)
    plan = _plan(options, found)
    if as_json:
        print_json({**plan, "machine": [asdict(each) for each in machine], "refusal": refusal})
    else:
        print("\n".join(map(printable_lines, _lines(options, found, plan))), flush=True)
    if refusal is not None:
        say(refusal)
    return EXIT_USAGE if refusal or any(each.stops for each in machine) else EXIT_DONE


def _check_spark(options: MirrorOptions) -> Iterator[Finding]:
    try:
        from ..spark.launch.java import check_spark
    except ConfigError as error:
        # The plan may be made on another machine than the mirror's.
        yield Finding(str(error), stops=False)
    else:
        yield from check_spark(options.master)


def _plan(options: MirrorOptions, found: DryRun) -> dict[str, Any]:
    """Return the plan as values of JSON."""
    return {
        "type": "dry-run",
        "source": {"servers": options.source.servers, "cluster_id": found.source_cluster_id},
        "destination": {"servers": options.destination.servers, "cluster_id": found.destination_cluster_id},
        "group": {"name": found.group, "held_by": found.holder},
        "topics": [_topic(topic) for topic in found.topics],
        "acls": [_acl(acl) for acl in found.acls],
        "missing_acls": [_acl(acl) for acl in found.missing_acls],
        "acl_commands": options.acl_commands(found.acls),
        "later_acl_commands": options.acl_commands(_later_acls(options, found), creates=False),
        "warnings": list(found.warnings),
        "beginnings": list(found.beginnings),
        "differences": list(found.differences),
    }


def _acl(acl: Acl) -> dict[str, Any]:
    values = asdict(acl)
    is_prefix = values.pop("is_prefix")
    return {**values, "pattern": "prefixed"} if is_prefix else values


def _later_acls(options: MirrorOptions, found: DryRun) -> list[Acl]:
    """Return the ACLs that only later partitions of copies will need."""
    if options.once or options.destination.acl_cluster("topic") is None:
        return []
    later = [Acl("destination", "topic", each.plan.destination, "ALTER") for each in found.topics]
    return [acl for acl in later if acl not in found.acls]


def _topic(topic: TopicOutlook) -> dict[str, Any]:
    plan = topic.plan
    created = None
    if plan.creation:
        created = asdict(plan.creation)
        del created["name"]
    return {
        "source": plan.source,
        "destination": plan.destination,
        "created": created,
        "added_partitions": plan.added_partitions,
        "deleted": plan.deleted is not None,
        "offsets": topic.offsets,
        "partitions": [
            {
                "partition": each.partition,
                "from": each.start_offset,
                "to": each.end_offset,
                "offsets": each.offsets,
                "committed": each.committed,
                "at_cut": each.at_cut,
            }
            for each in topic.partitions
        ],
    }


def _lines(options: MirrorOptions, found: DryRun, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the plan for a person."""
    yield "dry run: nothing is created, joined, committed or copied"
    yield ""
    yield table(
        [
            *((side, _cluster(**plan[side])) for side in ("source", "destination")),
            ("group", f"{found.group}, held by {found.holder or 'no process'}"),
        ]
    )
    if plan["topics"]:
        yield ""
        headings = ("topic", "copy", "partitions", "begin at", "offsets", "at the destination")
        yield table([headings, *(_row(options, topic) for topic in plan["topics"])])
        yield from found.beginnings
    yield from _section(
        "configurations of the topics to be created:",
        [
            f"{topic['destination']}: "
            + ", ".join(f"{name}={value}" for name, value in sorted(topic["created"]["configs"].items()))
            for topic in plan["topics"]
            if topic["created"]
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
        [f"PRINCIPAL={shlex.quote(_principal(options, found))}", *plan["acl_commands"]],
    )
    if later := plan["later_acl_commands"]:
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


def _row(options: MirrorOptions, topic: Mapping[str, Any]) -> tuple[str, ...]:
    created, partitions = topic["created"], topic["partitions"]
    change = "as it is"
    if topic["deleted"]:
        change = "deleted: not created again"
    elif created:
        change = (
            f"created: {created['partitions']} partitions, replication factor {created['replication_factor']}"
        )
    elif topic["added_partitions"]:
        change = f"{topic['added_partitions']} partitions added"
    begins = Counter(_begin(options, each) for each in partitions)
    return (
        topic["source"],
        topic["destination"],
        f"{len(partitions)}",
        ", ".join(f"{begin} {count}" for begin, count in begins.items()),
        f"{topic['offsets']:,}",
        change,
    )


def _begin(options: MirrorOptions, partition: Mapping[str, Any]) -> str:
    if partition["committed"] or partition["at_cut"]:
        return "position" if partition["committed"] else "cut"
    # Partitions that are newer than the first start begin at their first record.
    is_newer = options.start.timestamp_ms == LATEST and partition["offsets"]
    return "earliest" if is_newer else str(options.start)
