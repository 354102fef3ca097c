"""
Numbers that are declared once, as fields of dataclasses: name for Prometheus, kind and meaning.

Everything that shows numbers loops over the fields: the text for Prometheus, sums, tables of the documents.
A value is a number, None if it is unknown, or a collection, which stands for its size. A mapping has a number
for each value of one more label.
"""

from __future__ import annotations

import enum
import functools
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from .printable import printable

__all__ = [
    "CONTENT_TYPE",
    "WORKED_OUT",
    "Kind",
    "Number",
    "counter",
    "gauge",
    "labels",
    "measured",
    "numbers_of",
    "process_text",
    "summed",
    "text",
]

#: The initial value of a field that ``__post_init__`` sets.
WORKED_OUT = object()

#: Of Prometheus's text format.
CONTENT_TYPE = "text/plain;version=0.0.4;charset=utf-8"


class Kind(enum.Enum):
    """The type of a metric; the value is Prometheus's word."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Number:
    """
    The declaration of a number.

    Attributes:
        metric: Its name for Prometheus, which names the unit.
        meaning: Its meaning, as a sentence.
        label: The label of the keys, if the value is a mapping.
        total: The function that makes one of several known values.

    """

    metric: str
    kind: Kind
    meaning: str
    label: str = ""
    total: Callable[[Iterable[Any]], Any] = sum


def counter(metric: str, meaning: str, *, label: str = "") -> Any:
    """Declare a field with a number that only grows, from 0."""
    number = Number(metric, Kind.COUNTER, meaning, label)
    return field(**_initial(0, label), metadata={"number": number})


def gauge(
    metric: str,
    meaning: str,
    *,
    label: str = "",
    total: Callable[[Iterable[Any]], Any] = sum,
    initial: Any = None,
) -> Any:
    """Declare a field with a number that grows and falls."""
    number = Number(metric, Kind.GAUGE, meaning, label, total)
    return field(**_initial(initial, label), metadata={"number": number})


class _Measured(property):
    """A number that is worked out when it is read."""

    number: Number


def measured(
    metric: str, meaning: str, *, total: Callable[[Iterable[Any]], Any] = sum
) -> Callable[[Callable[[Any], Any]], Any]:
    """Declare a property as a number that grows and falls."""

    def declare(read: Callable[[Any], Any]) -> Any:
        found = _Measured(read)
        found.number = Number(metric, Kind.GAUGE, meaning, total=total)
        return found

    return declare


def _initial(value: Any, label: str) -> dict[str, Any]:
    if value is WORKED_OUT:
        return {"init": False, "compare": False}
    return {"default_factory": Counter} if label else {"default": value}


@functools.cache
def numbers_of(kind: type) -> Mapping[str, Number]:
    """Return the numbers that a dataclass declares, by the names of its fields and properties."""
    found = {each.name: each.metadata["number"] for each in fields(kind) if "number" in each.metadata}
    read = {name: each.number for name, each in vars(kind).items() if isinstance(each, _Measured)}
    return found | read


def summed(kind: type, values: Sequence[object]) -> dict[str, Any]:
    """Return the totals of several objects of a class, by the numbers' names; None if all are unknown."""
    found: dict[str, Any] = {}
    for name, number in numbers_of(kind).items():
        of_all = map(attrgetter(name), values)
        if number.label:
            found[name] = Counter()
            for each in of_all:
                found[name].update(each)
        else:
            known = [each for each in of_all if each is not None]
            found[name] = number.total(known) if known else None
    return found


# Prometheus


def labels(**values: object) -> str:
    """Return labels as Prometheus reads them: ``topic="a",partition="0"``."""
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in values.items())


def _escaped(value: str) -> str:
    return printable(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def text(kind: type, rows: Sequence[tuple[str, object]]) -> str:
    """
    Return the numbers of objects in Prometheus's text format.

    Args:
        kind: The class of the objects.
        rows: Each object, behind its labels; without any there is no text.

    """
    if not rows:
        return ""
    lines = []
    for name, number in numbers_of(kind).items():
        metric, get = number.metric, attrgetter(name)
        lines.append(f"# HELP {metric} {number.meaning}\n# TYPE {metric} {number.kind.value}")
        if number.label:
            lines += [
                f"{metric}{_braced(known, labels(**{number.label: key}))} {_value(value)}"
                for known, each in rows
                for key, value in (get(each) or {}).items()
            ]
        else:
            lines += [
                f"{metric}{{{known}}} {_value(value)}" if known else f"{metric} {_value(value)}"
                for known, each in rows
                if (value := get(each)) is not None
            ]
    return "\n".join([*lines, ""])


def _braced(*known: str) -> str:
    return f"{{{','.join(filter(None, known))}}}"


def _value(value: Any) -> str:
    if isinstance(value, Collection):
        return str(len(value))
    return str(int(value)) if isinstance(value, bool) else repr(value)


@dataclass(frozen=True, slots=True)
class _Process:
    """The standard metrics of a process, which all of Prometheus's clients have."""

    cpu_s: float = counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
    rss_bytes: int | None = gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
    virtual_bytes: int | None = gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")
    open_files: int | None = gauge("process_open_fds", "Number of open file descriptors.")
    most_files: int | None = gauge("process_max_fds", "Maximum number of open file descriptors.")
    started_at: float | None = gauge(
        "process_start_time_seconds", "Start time of the process since unix epoch in seconds."
    )


def process_text() -> str:
    """Return the standard metrics of this process; without ``/proc``, its CPU time alone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    try:
        # The name of the program may have spaces.
        stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        process = _Process(
            cpu_s,
            int(stat[21]) * resource.getpagesize(),
            int(stat[20]),
            len(list(Path("/proc/self/fd").iterdir())),
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(stat[19]) / os.sysconf("SC_CLK_TCK"),
        )
    except OSError:
        process = _Process(cpu_s)
    return text(_Process, [("", process)])
