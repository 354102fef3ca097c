r"""
Base classes of a mirror maker's handlers and listeners, and ready handlers (docs/from-mirrormaker.md).

``shoal mirror-maker --message.handler shoal.handlers:RenameTopics --message.handler.args '(.*)=west.\\1' …``
"""

from .mirrormaker.handlers import (
    ConvertCodec,
    Filter,
    MirrorMakerMessageHandler,
    MirrorMakerRawBytesMessageHandler,
    ProducerRecord,
    RenameTopics,
)
from .mirrormaker.rebalance_listener import MirrorMakerRebalanceListener

__all__ = [
    "ConvertCodec",
    "Filter",
    "MirrorMakerMessageHandler",
    "MirrorMakerRawBytesMessageHandler",
    "MirrorMakerRebalanceListener",
    "ProducerRecord",
    "RenameTopics",
]
