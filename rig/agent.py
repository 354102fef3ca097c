"""The Java agent's jar, built by Maven when its sources are newer."""

import functools
import shutil
import subprocess
from pathlib import Path

from rig.jars import MissingKafka, java

__all__ = ["agent_jar"]

_AGENT = Path(__file__).parent.parent / "agent"
_JAR = _AGENT / "start" / "target" / "shoal-agent.jar"


@functools.cache  # a jar that running brokers have open may not change
def agent_jar() -> Path:
    """
    Return the agent's jar, built without its own tests if it is missing or out of date.

    Raises:
        MissingKafka: Maven is missing or failed; the text has its output.

    """
    if not _JAR.exists() or _JAR.stat().st_mtime < max(each.stat().st_mtime for each in _sources()):
        _build()
    return _JAR


def _sources() -> list[Path]:
    modules = [each for each in _AGENT.iterdir() if each.is_dir() and each.name != "target"]
    poms = [_AGENT / "pom.xml", *(module / "pom.xml" for module in modules)]
    code = [file for module in modules for file in (module / "src" / "main").rglob("*") if file.is_file()]
    return poms + code


def _build() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingKafka("no mvn found on PATH: install Maven to build the agent")
    java()
    command = [maven, "--batch-mode", "--quiet", f"--file={_AGENT / 'pom.xml'}", "-DskipTests", "package"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0 or not _JAR.exists():
        raise MissingKafka(f"mvn could not build the agent:\n{result.stdout}")
