"""
Record sets for clients that read no magic 2: converted chunk by chunk, while they are sent (KIP-283).

:func:`convert` is for one batch, :class:`DownConversion` for what a partition of a Fetch response holds.
"""

from .messages import convert
from .response import ConvertedCounts, DownConversion

__all__ = ["ConvertedCounts", "DownConversion", "convert"]
