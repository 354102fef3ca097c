"""
The sentences that the judge of trials reads numbers from.

Each incident of a task must be read by a form of its kind: a sentence that changes makes trials red, and no
check goes quiet. Tests of single refusals compare with the other sentences here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shoal.mirroring.model.incidents import IncidentKind

__all__ = ["GROWN", "NO_POSITION", "UNFAITHFUL", "read"]

_AGAIN = r", and the mirror copies source offsets? (?P<again>\d+)(?: to (?P<again_to>\d+))? again$"

#: The end of a sentence about a loss of the copy. Advice follows if the partition stops.
_BEHIND_LOSS = r"(?:: the destination lost its tail \(unclean leader election\?\))?(?:$|\. )"

_FORMS: Mapping[IncidentKind, tuple[str, ...]] = {
    IncidentKind.FOREIGN_RECORDS: (
        r"has a foreign record at offset (?P<foreign>\d+), behind the mirror's records up to offset "
        r"(?P<ours>\d+) \(its log ends behind offset (?P<last>\d+)\)",
    ),
    IncidentKind.DESTINATION_LOSS: (
        r"ends at offset (?P<end>\d+), but the acknowledged records, those before source offset "
        r"(?P<source>\d+), end at (?P<acknowledged>\d+)",
        r"ends at offset (?P<end>\d+), and its last batch is one that belongs before offset \d+",
        r"has records of another program before offset \d+, in place of those that were acknowledged",
        r"was deleted and created again since it was mirrored \(.*\), and now it ends at offset "
        r"(?P<created_end>(?P<end>\d+))",
        r"was deleted since it was mirrored(?: \(.*\), and the topic of this name is empty now)?",
        r"lost its records from offset \d+ on, and its mirror's map is not exact so far back",
    ),
    IncidentKind.SOURCE_RESET: (
        r"its log on .* ends at offset (?P<end>\d+), and it ended at (?P<planned>\d+) or later",
        r"its log on .* is the one that was mirrored only before offset \d+",
        r"was deleted and created again since it was mirrored before offset \d+",
        r"was deleted while it was mirrored, up to offset \d+ of \d+",
        r"has no committed position for it, .* but the source ends at offset \d+: its topic was created",
    ),
    IncidentKind.SOURCE_RETENTION: (
        r"does not have offset (?P<missing>\d+) any more, its log begins at (?P<begin>\d+)",
        r"begins later than the source\. From offset \d+ on the source has \d+ records",
    ),
    IncidentKind.SOURCE_GAP: (
        r"does not send offset (?P<silent>\d+): .* reaches to offset (?P<reached>\d+)",
    ),
    IncidentKind.SEND_FAILURE: (
        r"refuses offsets? (?P<refused>\d+)(?: to (?P<refused_to>\d+))? of .*: skipped, and lost",
    ),
}

#: A copy to take over has got more records while it was compared.
GROWN = re.compile(r"ended at offset (\d+) and ends at (\d+) now: another program")

#: A partition has no position, and its copy has records.
NO_POSITION = "has no committed position for it"

#: Parts of the sentences that call a copy unfaithful; the others are about who writes to it now.
UNFAITHFUL = (
    "is not shown to be a faithful copy",
    "begins later than the source",
    "too few of them differ",
)


def read(kind: IncidentKind, reason: str) -> dict[str, int] | None:
    """Return the numbers of an incident's sentence by their names; None if no form of its kind reads it."""
    again = re.search(_AGAIN, reason)
    before = reason[: again.start()] if again else reason
    behind = _BEHIND_LOSS if kind is IncidentKind.DESTINATION_LOSS else ""
    for form in _FORMS.get(kind, ()):
        if found := re.search(form + behind, before):
            named = found.groupdict() | (again.groupdict() if again else {})
            return {name: int(text) for name, text in named.items() if text is not None}
    return None
