"""Checks of ``--dry-run`` for what keeps Spark from starting here. They start no Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...client.opening import CONNECT_S, open_socket
from ...errors import ConfigError, Disconnected
from ...mirroring.driver.checkup import Finding
from ...net.address import parse_bootstrap
from .jvm import find_java

__all__ = ["check_spark"]

_STANDALONE = re.compile(r"spark://(.+)")


def check_spark(master: str) -> Iterator[Finding]:
    """Yield what is wrong with the Java that a mirror would use, and with a master that is an address."""
    try:
        java = find_java()
    except ConfigError as error:
        yield Finding(str(error))
    else:
        if java.instead_of:
            yield Finding(f"{java.instead_of}: not used. Correct JAVA_HOME, or unset it", stops=False)
    standalone = _STANDALONE.fullmatch(master.strip())
    if standalone is not None:
        yield from _check_masters(master, standalone[1])


def _check_masters(master: str, addresses: str) -> Iterator[Finding]:
    remedy = "Correct --master, or start Spark's master there"
    try:
        masters = parse_bootstrap(addresses)
    except ValueError as error:
        yield Finding(f"--master {master!r}: {error}. {remedy}")
        return
    for address in masters:
        try:
            open_socket(address, CONNECT_S).close()
        except Disconnected as error:
            yield Finding(f"{error}. {remedy}")
