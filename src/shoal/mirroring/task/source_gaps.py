"""
Partitions of which the source sends nothing, though their logs go on: a gap at the log's end, or a slow read.

Only a cleaner leaves such a gap. A broker that reads from remote storage may send empty answers for minutes,
and the next read brings records. So a gap is skipped only if :func:`~shoal.client.scan.look_for_gap` confirms
it, and its offsets are counted. Otherwise the partition waits. A range with an end waits for some request
timeouts, and then has an incident. No policy skips what the source may still send.

A look takes as long as the source lets a fetch wait, up to a request timeout. So after some empty answers a
pair passes the partition on to an aligner that may be slow, which looks, and passes it back.
"""

from __future__ import annotations

from ...client.cluster import Cluster
from ...client.scan import ANSWERS_OF_A_GAP, GapLook, look_for_gap
from ...errors import PartitionStopped, ShoalError
from ..model.copy_options import CopySettings
from ..model.incidents import IncidentKind
from .partition import PartitionCopy
from .trouble import Trouble

__all__ = ["look_into_silence", "take_empty_answer"]


def take_empty_answer(copy: PartitionCopy, source: Cluster) -> None:
    """
    React to an answer without records for the first partition of a full request.

    Args:
        copy: A partition whose fetch offset lies before the end of its range, and of its log in the answer.
        source: The source cluster, for names in messages.

    """
    offset = copy.intake.fetch_offset
    if copy.troubles.meet(offset, Trouble.SILENCE).times >= ANSWERS_OF_A_GAP:
        copy.is_slow = True
        copy.wait(f"{source} to send offset {offset}")


def look_into_silence(copy: PartitionCopy, source: Cluster, settings: CopySettings) -> None:
    """
    Find out why the source sent nothing at the offset of an aligned partition, and react to that.

    Raises:
        PartitionStopped: A range with an end has waited long enough, and may not skip the offsets.

    """
    offset, range_end = copy.next_offset, copy.range.end_offset
    spell = copy.troubles.at(offset, Trouble.SILENCE)
    if spell is None:
        return
    try:
        look = look_for_gap(source, copy.source, offset, settings.source.isolation_level)
    except ShoalError as error:
        look = GapLook(None, False, str(error))
    silence = (
        f"since {spell.since:%Y-%m-%d %H:%M:%S} UTC its answers have no records, though its log reaches to "
        f"offset {copy.source_end} ({look.why})"
    )
    patience_s = settings.timing.gap_patience_timeouts * source.config.request_timeout_s
    if look.end is not None and look.is_gap_to(offset + 1 if copy.range.is_open else range_end):
        copy.skip_unproved_gap(min(look.end, copy.end_offset))
    elif copy.range.is_open or spell.lasted_s < patience_s:
        copy.state.waiting_for = f"{source} to send offset {offset}: {silence}"
    else:
        kind, reason = IncidentKind.SOURCE_GAP, f"{source} does not send offset {offset}: {silence}"
        if look.end is None or look.end < range_end:
            advice = "Look for the reason at its broker. The next start continues there"
            raise PartitionStopped(*copy.source, offset, f"{reason}. {advice}", cause=kind)
        copy.meet(kind, reason, f"{kind.continuing} skips the offsets before {range_end}")
        copy.report_continued(kind, reason, range_end - offset)
        copy.skip_unproved_gap(range_end)
