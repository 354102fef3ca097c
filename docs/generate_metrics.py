"""
Write the tables of docs/metrics.md from the declarations of the numbers.

    python docs/generate_metrics.py
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from shoal.cli import conversion_metrics
from shoal.mirroring.model.partition import PartitionState
from shoal.mirroring.model.progress import GarbageCollection, GroupsStatus, ProcessUsage
from shoal.mirroring.model.reports import Counted
from shoal.mirroring.model.state import FollowRound, MirrorState
from shoal.mirroring.model.steering import SteeringStatus
from shoal.numbers import Number, numbers_of

PAGE = Path(__file__).parent / "metrics.md"

#: The classes of each table, by its name in the page.
TABLES: Mapping[str, tuple[type, ...]] = {
    "partitions": (Counted, PartitionState),
    "mirror": (MirrorState, FollowRound),
    "steering": (SteeringStatus,),
    "groups": (GroupsStatus,),
    "gateway": (conversion_metrics.Conversions, conversion_metrics.Gateway),
    "processes": (ProcessUsage, GarbageCollection),
}

_TABLE = re.compile(r"(<!-- numbers: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Return the page with the tables of the declarations."""
    return _TABLE.sub(lambda found: found[1] + _table(found[2]), text)


def _table(name: str) -> str:
    numbers = [each for kind in TABLES[name] for each in numbers_of(kind).values()]
    rows = "".join(f"| {' | '.join(_cells(each))} |\n" for each in numbers)
    return f"\n| metric | type | meaning |\n|---|---|---|\n{rows}\n"


def _cells(number: Number) -> Iterable[str]:
    label = f"{{{number.label}}}" if number.label else ""
    return f"`{number.metric}{label}`", number.kind.value, number.meaning.rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
