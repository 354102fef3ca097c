"""Kafka's own jars, downloaded once by Maven and kept in ``.kafka/`` of the repository.

If Kafka is missing, that is an error, never a reason to skip a test.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "KAFKA_3_VERSION",
    "KAFKA_VERSION",
    "MIRROR_MAKER_2_VERSION",
    "OLD_KAFKA_VERSION",
    "OTHER_KAFKA_VERSIONS",
    "MissingKafka",
    "class_archive",
    "class_path",
    "client_jars",
    "fetched",
    "jars",
    "java",
    "mirror_maker_2_class_path",
    "tool_command",
]

KAFKA_VERSION = "4.4.0"
"""The newest release: of all clusters and tools for which a caller chooses no other."""

KAFKA_3_VERSION = "3.9.2"
"""The last release line before 4: also KRaft, but with its log in Scala, and the last with MirrorMaker 1."""

OTHER_KAFKA_VERSIONS = (KAFKA_3_VERSION, "4.1.2", "4.2.2", "4.3.1")
"""The newest patch of each older line that tests run."""

OLD_KAFKA_VERSION = "2.8.2"
"""The newest that starts on Java 17 and still writes the message formats before 0.11."""

MIRROR_MAKER_2_VERSION = "4.3.1"
"""The newest whose jars Maven Central has: in November 2026 it has no connect-mirror of 4.4.0."""

_POM = Path(__file__).parent / "pom.xml"
_RELOAD4J_POM = Path(__file__).parent / "pom-reload4j.xml"
_CLIENTS_POM = Path(__file__).parent / "pom-clients.xml"
_MIRROR_MAKER_2_POM = Path(__file__).parent / "pom-mirror-maker-2.xml"
_CACHE = Path(__file__).parent.parent / ".kafka"


class MissingKafka(Exception):
    """Kafka cannot be run here: no Java, no Maven, or the download failed."""


def java() -> Path:
    """Return the ``java`` command: that of JAVA_HOME, else the first on PATH.

    Raises:
        MissingKafka: No Java was found.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise MissingKafka("no java found by JAVA_HOME or PATH: install a JDK or JRE, version 17 or later")
    return Path(found)


def jars(version: str = KAFKA_VERSION) -> Path:
    """
    Return the directory of all jars of this Kafka version, downloading them on the first call.

    Raises:
        MissingKafka: Maven is missing or failed; the text has its output.

    """
    pom = _POM if version.startswith("4.") else _RELOAD4J_POM
    return fetched(version, lambda directory: _download(pom, version, directory, "kafka_2.13-*.jar"))


def client_jars(version: str) -> Path:
    """Return the directory of ``kafka-clients`` of this version and its dependencies, as `jars` does.

    Raises:
        MissingKafka: Maven is missing or failed; the text has its output.
    """
    return fetched(
        f"clients-{version}",
        lambda directory: _download(_CLIENTS_POM, version, directory, f"kafka-clients-{version}.jar"),
    )


def class_path(version: str = KAFKA_VERSION) -> str:
    """Return the value of java's ``-cp`` option for this Kafka version."""
    return f"{jars(version)}{os.sep}*"


def class_archive() -> Path:
    """Return the file of the newest Kafka's loaded classes, which a first cluster of the rig writes.

    With it a broker starts with half the CPU. If a JVM finds none, or cannot use it, it starts without it.
    """
    return _CACHE / f"classes-{KAFKA_VERSION}" / "classes.jsa"


def tool_command(tool: str, *jvm: str) -> list[str]:
    """Return the command of one of Kafka's own tools, without its arguments.

    Its stdout has the tool's output alone: warnings of the JVM, as of its class archive, go to stderr.

    Args:
        tool: Its class, as ``org.apache.kafka.tools.TopicCommand``.
        jvm: Further options of the JVM.

    Raises:
        MissingKafka: No Java, no Maven, or the download failed.
    """
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={class_archive()}")
    warnings = ("-Xlog:disable", "-Xlog:all=warning:stderr")
    return [str(java()), *warnings, *quick, *jvm, "-cp", class_path(), tool]


def mirror_maker_2_class_path() -> str:
    """Return the value of java's ``-cp`` option for MirrorMaker 2, with a version of its own.

    Raises:
        MissingKafka: Maven is missing or failed; the text has its output.
    """
    version, jar = MIRROR_MAKER_2_VERSION, f"connect-mirror-{MIRROR_MAKER_2_VERSION}.jar"
    directory = fetched(
        f"mirror-maker-2-{version}", lambda new: _download(_MIRROR_MAKER_2_POM, version, new, jar)
    )
    return f"{directory}{os.sep}*"


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return a directory that is kept beside the jars, made on the first call.

    If two processes call this at once, each fetches into its own directory, and the first to finish
    renames it to the final name. That directory is therefore always complete.

    Args:
        name: The directory's name.
        fetch: Creates the directory that is passed, and fills it.
    """
    directory = _CACHE / name
    if not directory.exists():
        _CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE, prefix=f"{name}.") as scratch:
            complete = Path(scratch) / "complete"
            fetch(complete)
            _rename_unless_there(complete, directory)
    return directory


def _download(pom: Path, version: str, directory: Path, expected: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingKafka(f"no mvn found on PATH: install Maven to fetch Kafka {version}")
    java()
    result = subprocess.run(
        [
            maven,
            "--batch-mode",
            "--quiet",
            f"--file={pom}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-Dkafka.version={version}",
            f"-DoutputDirectory={directory}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0 or not any(directory.glob(expected)):
        raise MissingKafka(f"mvn could not fetch Kafka {version}:\n{result.stdout}")


def _rename_unless_there(complete: Path, directory: Path) -> None:
    try:
        complete.rename(directory)
    except OSError:
        if not directory.exists():
            raise
