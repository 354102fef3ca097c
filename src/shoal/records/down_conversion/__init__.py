"""
Record sets for clients that read no magic 2: converted chunk by chunk, while they are sent (KIP-283).

:func:`convert` converts one batch, :class:`DownConversion` a partition's record set of a Fetch response.
"""

from .messages import convert
from .response import ConvertedCounts, DownConversion

__all__ = ["ConvertedCounts", "DownConversion", "convert"]
