"""Markdown tables, the machine they are from, and progress messages."""

import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

__all__ = ["machine", "markdown", "say", "versions"]


def machine() -> str:
    """Return the machine and its software, as one sentence without its end."""
    memory = psutil.virtual_memory().total / 1e9
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GB; "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def say(line: str) -> None:
    """Print the next step and the time on stderr."""
    print(time.strftime("%X"), line, file=sys.stderr, flush=True)


def versions(*packages: str) -> str:
    """Return names and versions of these packages, if they are installed."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _processor() -> str:
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpuinfo = ""
    names = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
