"""Java and Spark on this machine, looked at for ``shoal doctor``. Starts no Spark."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator

from ...client.opening import CONNECT_S, open_socket
from ...errors import ConfigError, Disconnected
from ...mirroring.model.checkup import Check, Finding, Verdict
from ...mirroring.model.options import MirrorOptions
from ...net.address import parse_bootstrap
from .java import find_java

__all__ = ["check_java", "check_spark"]

_MACHINE = "machine"
_STANDALONE = re.compile(r"spark://(.+)")


def check_java() -> Iterator[Finding]:
    """Run the Java that a mirror would use, and read its version."""
    try:
        java = find_java()
    except ConfigError as error:
        yield Finding(_MACHINE, Check.JAVA, Verdict.WRONG, str(error))
        return
    if java.instead_of:
        remedy = "Correct JAVA_HOME, or unset it"
        yield Finding(_MACHINE, Check.JAVA, Verdict.WARNING, f"{java.instead_of}: not used", remedy)
    yield Finding(_MACHINE, Check.JAVA, Verdict.GOOD, f"Java {java.version} in {java.home}")


def check_spark(options: MirrorOptions) -> Iterator[Finding]:
    """Look at the version of PySpark, and connect to a master that is an address."""
    pyspark = f"pyspark {importlib.metadata.version('pyspark')}"
    master = options.master.strip()
    if master.startswith("local"):
        text = f"{pyspark}, to start as {master} on {os.cpu_count()} processors"
        yield Finding(_MACHINE, Check.SPARK, Verdict.GOOD, text)
        return
    yield Finding(_MACHINE, Check.SPARK, Verdict.GOOD, f"{pyspark} for the driver")
    standalone = _STANDALONE.fullmatch(master)
    if standalone is None:
        text = f"the cluster manager {master!r} is not contacted before a mirror starts"
        yield Finding(_MACHINE, Check.SPARK, Verdict.NOT_LOOKED_AT, text)
        return
    yield from _masters(master, standalone[1])


def _masters(master: str, addresses: str) -> Iterator[Finding]:
    remedy = "Correct --master, or start Spark's master there"
    try:
        masters = parse_bootstrap(addresses)
    except ValueError as error:
        yield Finding(_MACHINE, Check.SPARK, Verdict.WRONG, f"--master {master!r}: {error}", remedy)
        return
    for address in masters:
        try:
            open_socket(address, CONNECT_S).close()
        except Disconnected as error:
            yield Finding(_MACHINE, Check.SPARK, Verdict.WRONG, str(error), remedy)
        else:
            yield Finding(_MACHINE, Check.SPARK, Verdict.GOOD, f"connected: Spark's master at {address}")
