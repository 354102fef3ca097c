"""Base classes of a mirror maker's handlers and listeners (docs/from-mirrormaker.md)."""

from .mirrormaker.handlers import (
    MirrorMakerMessageHandler,
    MirrorMakerRawBytesMessageHandler,
    MirrorMakerRebalanceListener,
    ProducerRecord,
)

__all__ = [
    "MirrorMakerMessageHandler",
    "MirrorMakerRawBytesMessageHandler",
    "MirrorMakerRebalanceListener",
    "ProducerRecord",
]
