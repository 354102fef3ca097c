"""
``shoal inspect``: what is in the batches of a cluster, from their headers.

:func:`inspect` passes each header to :class:`~shoal.inspect.facts.Facts`. From the facts of a topic follow
the report and the findings. Payloads stay closed, except for a few batches of each topic that are
decompressed for the ratio.
"""

from .facts import Facts, OpenTransaction
from .options import InspectOptions
from .report import ClusterReport, NotInspected
from .run import InspectProgress, inspect

__all__ = [
    "ClusterReport",
    "Facts",
    "InspectOptions",
    "InspectProgress",
    "NotInspected",
    "OpenTransaction",
    "inspect",
]
