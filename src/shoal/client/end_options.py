"""The options that have no meaning for a kind of end: a cluster, or the directory of an archive."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["REMEDIES", "WITHOUT_MEANING"]

#: The options by the end and its kind.
WITHOUT_MEANING: Mapping[tuple[str, str], Collection[str]] = {
    ("--upstream", "directory"): ("a gateway",),
    ("--consumer.config", "directory"): ("shoal mirror-maker",),
    ("--producer.config", "directory"): ("shoal mirror-maker",),
    ("--from", "cluster"): ("shoal groups --until",),
    ("--to", "cluster"): ("--segment-bytes", "--segment-seconds"),
    ("--from", "directory"): (
        "a cut-over",
        "shoal groups --until OFFSET",
        "--reverse",
        "--sync acls",
        "--from-certificate",
        "a message handler",
    ),
    ("--to", "directory"): (
        "a cut-over",
        "shoal groups",
        "a directory for --from",
        "--sync",
        "--from-certificate",
        "a message handler",
        "--rebatch",
        "--adopt",
        "keep_append_time",
        "--delivery at-least-once",
        "isolation.level=read_uncommitted",
    ),
}

#: The remedies of those that are not just left out.
REMEDIES = {
    "a gateway": "Use the bootstrap servers of a cluster",
    "a cut-over": "mirror, groups, verify and inspect take an archive",
    "shoal mirror-maker": "shoal mirror archives and restores",
    "shoal groups": "shoal mirror --groups archives committed offsets",
    "shoal groups --until OFFSET": "Use a time",
    "a directory for --from": "Copy an archive with the tools of its store: its objects never change",
}
