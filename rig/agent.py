"""The Java agent: its jar, which the Makefile builds if its sources are newer, and its versions of Kafka."""

import functools
import shutil
import subprocess
from pathlib import Path

from rig.jars import MissingKafka

__all__ = ["agent_jar", "newest_of_each_line", "supported_versions"]

_ROOT = Path(__file__).parent.parent
_JAR = Path("agent", "start", "target", "shoal-agent.jar")
_TABLE = Path("agent/start/src/main/resources/shoal/agent/start/supported-kafka.txt")


@functools.cache  # the jar must not change while running brokers have it open
def agent_jar() -> Path:
    """
    Return the agent's jar, built without its own tests if it is missing or out of date.

    Raises:
        MissingKafka: make or Maven is missing or failed; the text has the output.

    """
    make = shutil.which("make")
    if make is None:
        raise MissingKafka("make is not on PATH: install it to build the agent")
    command = [make, "--silent", f"--directory={_ROOT}", str(_JAR)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        raise MissingKafka(f"make could not build the agent:\n{result.stdout}")
    return _ROOT / _JAR


def supported_versions() -> list[str]:
    """Return the versions of Kafka in the agent's table, oldest first; with any other no broker starts."""
    lines = (_ROOT / _TABLE).read_text().splitlines()
    return [line.split()[0] for line in lines if line[:1].isdigit()]


def newest_of_each_line() -> list[str]:
    """Return the newest supported patch of each line of Kafka versions, oldest first."""
    return list({version.rpartition(".")[0]: version for version in supported_versions()}.values())
