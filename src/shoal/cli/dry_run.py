"""``shoal mirror --dry-run``: the plan of a mirror, as text or as one JSON object."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..client.config import ClientConfig
from ..client.offsets import LATEST
from ..errors import ConfigError
from ..exit_codes import EXIT_DONE, EXIT_USAGE
from ..mirroring.driver.checkup import Finding, check_directories
from ..mirroring.driver.dry_run import DryRun, TopicOutlook, dry_run
from ..mirroring.model.acl_commands import commands_of
from ..mirroring.model.acls import Acl, acl_sentences
from ..mirroring.model.incidents import IncidentKind
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.window import Until
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
    if as_json:
        findings = [asdict(each) for each in machine]
        print_json({**_json_object(options, found), "machine": findings, "refusal": refusal})
    else:
        print("\n".join(map(printable_lines, _lines(options, found))), flush=True)
    if refusal is not None:
        say(refusal)
    return EXIT_USAGE if refusal or any(each.stops for each in machine) else EXIT_DONE


def _check_spark(options: MirrorOptions) -> Iterator[Finding]:
    try:
        from ..spark.launch.checkup import check_spark
    except ConfigError as error:
        # The plan may be made on another machine than the mirror's.
        yield Finding(str(error), stops=False)
    else:
        yield from check_spark(options.master)


def _policies(options: MirrorOptions) -> dict[str, str]:
    return {
        kind.value: "continue" if options.continues_after(kind) else "fail"
        for kind in IncidentKind
        if kind is kind.policy and kind not in {IncidentKind.SEND_FAILURE, IncidentKind.NEW_PARTITIONS}
    }


def _servers(options: MirrorOptions) -> dict[str, str]:
    return {"source": options.source.servers, "destination": options.destination.servers}


# For a person


def _lines(options: MirrorOptions, found: DryRun) -> Iterator[str]:
    yield "dry run: nothing is created, joined, committed or copied"
    yield ""
    yield table(
        [
            ("source", _cluster(options.source, found.source_cluster_id)),
            ("destination", _cluster(options.destination, found.destination_cluster_id)),
            ("group", f"{found.group}, held by {found.holder or 'no process'}"),
            ("delivery", options.delivery.value),
            *((f"on {kind}", policy) for kind, policy in _policies(options).items()),
            ("ends", (options.until or Until()).phrase if options.once else "on SIGINT or SIGTERM"),
        ]
    )
    if found.topics:
        yield ""
        yield table(
            [("topic", "copy", "partitions", "begin at", "offsets", "at the destination")]
            + [_row(options, topic) for topic in found.topics]
        )
        yield from found.beginnings
        yield from _creations(found)
    if found.differences:
        yield ""
        yield "differences besides the records (--sync configs,acls changes them):"
        yield from (f"  {sentence}" for sentence in found.differences)
    yield ""
    yield "ACLs that the mirror's principal needs (READ, WRITE and ALTER imply DESCRIBE):"
    yield from (f"  {sentence}" for sentence in acl_sentences(found.acls))
    if options.topics.expressions:
        yield "  An expression selects only among topics that this principal may describe."
    if not options.once:
        yield f"  later: {', '.join(_acls_of_later(options, found))}"
    yield ""
    yield "To grant them (the file of --command-config has an administrator's login):"
    yield f"  PRINCIPAL={shlex.quote(_principal(options, found))}"
    yield from (f"  {command}" for command in commands_of(found.acls, options))
    if commands := commands_of(_later_acls(options, found), options, creates=False):
        yield "  # later, once a topic of the source gets more partitions:"
        yield from (f"  {command}" for command in commands)


def _principal(options: MirrorOptions, found: DryRun) -> str:
    """Return the principal that lacks ACLs, if it is the same at both clusters."""
    source, destination = options.source.principal, options.destination.principal
    return source if found.missing_acls and source and source == destination else "User:..."


def _later_acls(options: MirrorOptions, found: DryRun) -> list[Acl]:
    """Return the ACLs that only later partitions of copies will need."""
    later = [Acl("destination", "topic", each.plan.destination, "ALTER") for each in found.topics]
    return [] if options.once else [acl for acl in later if acl not in found.acls]


def _acls_of_later(options: MirrorOptions, found: DryRun) -> Iterator[str]:
    yield "ALTER on copies, if a topic of the source gets more partitions"
    if any(topic.plan.source not in options.topics.names for topic in found.topics):
        yield "the same for topics that match later, and CREATE (--resource-pattern-type prefixed)"
    if options.groups is not None:
        yield "DESCRIBE at the source and READ at the destination on consumer groups that match later"


def _cluster(config: ClientConfig, cluster_id: str | None) -> str:
    return f"{config.servers}, cluster id {cluster_id}" if cluster_id else config.servers


def _row(options: MirrorOptions, topic: TopicOutlook) -> tuple[str, ...]:
    plan = topic.plan
    if plan.deleted:
        change = "deleted: not created again"
    elif plan.creation:
        change = (
            f"created: {plan.creation.partitions} partitions, "
            f"replication factor {plan.creation.replication_factor}"
        )
    elif plan.added_partitions:
        change = f"{plan.added_partitions} partitions added to {plan.present_partitions}"
    else:
        change = "as it is"
    committed = sum(each.committed for each in topic.partitions)
    begins = [f"position {committed}"] * bool(committed)
    cut = sum(each.at_cut for each in topic.partitions)
    begins += [f"cut {cut}"] * bool(cut)
    new = [each for each in topic.partitions if not each.committed and not each.at_cut]
    # Partitions that are newer than the first start begin at their first record.
    newer = len([each for each in new if each.offsets]) if options.start.timestamp_ms == LATEST else 0
    begins += [f"earliest {newer}"] * bool(newer)
    begins += [f"{options.start} {len(new) - newer}"] * bool(len(new) - newer)
    return (
        plan.source,
        plan.destination,
        f"{plan.partitions}",
        ", ".join(begins),
        f"{topic.offsets:,}",
        change,
    )


def _creations(found: DryRun) -> Iterator[str]:
    creations = [topic.plan.creation for topic in found.topics if topic.plan.creation]
    if creations:
        yield ""
        yield "configurations of the topics to be created:"
        for creation in creations:
            configs = ", ".join(f"{name}={value}" for name, value in sorted(creation.configs.items()))
            yield f"  {creation.name}: {configs}"


# For a program


def _json_object(options: MirrorOptions, found: DryRun) -> dict[str, Any]:
    servers = _servers(options)
    return {
        "type": "dry-run",
        "source": {"servers": servers["source"], "cluster_id": found.source_cluster_id},
        "destination": {"servers": servers["destination"], "cluster_id": found.destination_cluster_id},
        "group": {"name": found.group, "held_by": found.holder},
        "once": options.once,
        "start": str(options.start),
        "until": None if options.until is None else str(options.until),
        "delivery": options.delivery.value,
        "policies": _policies(options),
        "topics": [_topic_object(topic) for topic in found.topics],
        "acls": [_acl_object(acl) for acl in found.acls],
        "missing_acls": [_acl_object(acl) for acl in found.missing_acls],
        "acl_commands": commands_of(found.acls, options),
        "later_acl_commands": commands_of(_later_acls(options, found), options, creates=False),
        "warnings": list(found.warnings),
        "beginnings": list(found.beginnings),
        "differences": list(found.differences),
    }


def _acl_object(acl: Acl) -> dict[str, Any]:
    values = asdict(acl)
    is_prefix = values.pop("is_prefix")
    return {**values, "pattern": "prefixed"} if is_prefix else values


def _topic_object(topic: TopicOutlook) -> dict[str, Any]:
    plan = topic.plan
    creation = None
    if plan.creation:
        creation = {
            "partitions": plan.creation.partitions,
            "replication_factor": plan.creation.replication_factor,
            "configs": dict(plan.creation.configs),
        }
    return {
        "source": plan.source,
        "destination": plan.destination,
        "created": creation,
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
