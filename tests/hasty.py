"""
Run ``shoal`` with other times than a user's: ``hasty.py places_look_s=2 commit_interval_s=0.5 mirror …``.

The names are those of :class:`shoal.timing.Timing`.
"""

import sys
from dataclasses import replace
from typing import Any

from shoal import timing

__all__ = ["hasty"]


def hasty(**times: float) -> tuple[str, ...]:
    """Return the arguments of Python that select ``shoal`` with these fields of its `Timing`."""
    return ("-P", __file__, *(f"{name}={value}" for name, value in times.items()))


if __name__ == "__main__":
    given: dict[str, Any] = {}
    while "=" in sys.argv[1]:
        name, _, value = sys.argv.pop(1).partition("=")
        given[name] = float(value)
    # Before anything else of shoal is imported: its classes have these times as defaults.
    timing.DEFAULT_TIMING = replace(timing.DEFAULT_TIMING, **given)
    from shoal.cli import main

    sys.exit(main())
