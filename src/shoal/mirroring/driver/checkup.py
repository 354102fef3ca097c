"""
Checks of ``--dry-run`` for what would trouble a mirror later.

A failed connection raises an error of its own, with the remedy. This module looks for the rest: servers that
only some connections need, certificates that expire soon, clocks that differ, directories that take no files.
It also asks both clusters which ACLs this principal lacks (KIP-430).
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...client.broker_state import controller_ahead_ms, group_operations, topic_operations
from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...client.opening import CONNECT_S, open_socket, open_tls
from ...client.reachable import unreachable_brokers
from ...errors import ShoalError
from ...net.address import Address
from ...state_directory import state_dir
from ..model.acls import Acl
from ..model.options import MirrorOptions

__all__ = ["Finding", "check_directories", "cluster_warnings", "missing_acls"]

#: A broker's certificate that expires sooner is worth a warning.
_SOON_S = 14 * 86_400.0

#: With NTP, clocks differ by milliseconds.
_MOST_AHEAD_S = 60.0

#: An idle mirror writes some MB, most of it Spark's log.
_LEAST_FREE = 100 * 1024 * 1024
_SCARCE = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """
    Something on this machine that is not as a mirror needs it.

    Attributes:
        text: The object, the problem and the remedy.
        stops: Whether the mirror would not start.

    """

    text: str
    stops: bool = True


def cluster_warnings(cluster: Cluster) -> Iterator[str]:
    """Yield sentences about a cluster that answers, or about an archive."""
    config = cluster.config
    yield from config.problems()
    unreachable = unreachable_brokers(cluster, config.listeners)
    remedy = f"Correct bootstrap.servers of the {config.name} cluster: other servers in it answer"
    if len(unreachable) < len(config.listeners):  # if none answers, that is the error
        yield from (f"{error}. {remedy}" for error in unreachable)
    security = config.security
    if security is not None and security.mechanism is not None and security.tls is None:
        yield (
            f"the {config.name} cluster is reached without TLS: the login by {security.mechanism} and all "
            "records can be read on the way. If it has a listener with TLS, set security.protocol=SASL_SSL"
        )
    for address in config.listeners:
        yield from _certificate_warnings(config, address)
    ahead_s = (controller_ahead_ms(cluster) or 0) / 1000
    if abs(ahead_s) > _MOST_AHEAD_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        yield (
            f"the clock of the {config.name} cluster's controller is {abs(ahead_s):,.1f} s {side} ours. Set "
            "both by NTP: the age of records and the expiry of tokens depend on them"
        )


def _certificate_warnings(config: ClientConfig, address: Address) -> Iterator[str]:
    if config.security is None or config.security.tls is None:
        return
    try:
        connected = open_socket(address, CONNECT_S)
        with closing(open_tls(connected, address, config.security.tls, CONNECT_S)) as encrypted:
            certificate = encrypted.getpeercert() or {}
    except ShoalError:
        return  # not reached: there is a warning already
    until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    if until - time.time() < _SOON_S:
        day = datetime.fromtimestamp(until, UTC)
        yield f"the certificate of {address} expires on {day:%Y-%m-%d}. Renew it before"


def check_directories(options: MirrorOptions) -> Iterator[Finding]:
    """Yield what is wrong with the directories in which a mirror writes."""
    conf = dict(options.conf)
    local = conf.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    state = Path(options.checkpoint) if options.checkpoint else state_dir()
    settings = {
        state: "--checkpoint or XDG_STATE_HOME",
        Path(local.split(",")[0]): "TMPDIR or spark.local.dir",
    }
    for option, file in (("--report", options.report), ("--control", options.control)):
        if file is None:
            continue
        directory = Path(file).parent.resolve()
        if directory.is_dir():
            settings.setdefault(directory, option)
        else:
            # A mirror makes the directories of its state, but not these.
            text = f"{option} {file!r}: there is no directory {directory}. Make it, or choose another"
            yield Finding(text)
    for directory, setting in settings.items():
        yield from _check_directory(directory, setting)


def _check_directory(directory: Path, setting: str) -> Iterator[Finding]:
    there = next((each for each in (directory, *directory.absolute().parents) if each.exists()), Path("/"))
    other = f"choose another directory by {setting}"
    try:
        with tempfile.TemporaryFile(dir=there):  # without a name
            pass
    except OSError as error:
        text = f"{directory}: this user cannot write files in {there} ({error.strerror})"
        yield Finding(f"{text}. Change its mode or owner, or {other}")
        return
    free = shutil.disk_usage(there).free
    if free < _SCARCE:
        text = f"{directory}: only {free / 1e9:,.1f} GB are free. Free some, or {other}"
        yield Finding(text, stops=free < _LEAST_FREE)


def missing_acls(acls: Sequence[Acl], source: Cluster, destination: Cluster) -> tuple[Acl, ...]:
    """
    Return the ACLs that this principal lacks, as far as the clusters say so.

    The clusters return the operations on topics that exist, and on groups.

    Raises:
        Disconnected: A cluster does not answer.

    """
    allowed: dict[tuple[str, str, str], frozenset[str] | None] = {}
    for name, cluster in (("source", source), ("destination", destination)):
        topics = {acl.resource for acl in acls if (acl.cluster, acl.resource_type) == (name, "topic")}
        for topic, operations in topic_operations(cluster, topics).items():
            allowed[name, "topic", topic] = operations
        for group in {acl.resource for acl in acls if (acl.cluster, acl.resource_type) == (name, "group")}:
            allowed[name, "group", group] = group_operations(cluster, group)
    return tuple(
        acl
        for acl in acls
        if (operations := allowed.get((acl.cluster, acl.resource_type, acl.resource))) is not None
        and acl.operation not in operations
    )
