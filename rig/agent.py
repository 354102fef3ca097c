"""The Java agent's jar, which the Makefile builds if its sources are newer."""

import functools
import shutil
import subprocess
from pathlib import Path

from rig.jars import MissingKafka

__all__ = ["agent_jar"]

_ROOT = Path(__file__).parent.parent
_JAR = Path("agent", "start", "target", "shoal-agent.jar")


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
