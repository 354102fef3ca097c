"""The pauses that a JVM logs with ``-Xlog:gc:file=FILE:time``.

One line each, in local time with its offset from UTC::

    [2026-11-22T15:25:01.123+0000] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 24M->5M(256M) 2.345ms

If a collector works concurrently with the program (``Concurrent Mark Cycle``), that is no pause.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Pause", "pauses"]

_PAUSE = re.compile(r"^\[(?P<at>[^]]+)\]\s*GC\(\d+\) Pause .*?(?P<ms>[\d.,]+)ms$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a JVM to collect garbage.

    Attributes:
        at: Its end, as Unix time.
        seconds: Its duration.
    """

    at: float
    seconds: float


def pauses(log: str) -> Iterable[Pause]:
    """Yield the pauses in a log, in its order, without a last line that is incomplete."""
    for found in _PAUSE.finditer(log):
        at = datetime.fromisoformat(found["at"]).timestamp()
        yield Pause(at, float(found["ms"].replace(",", ".")) / 1000)
