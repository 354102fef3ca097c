"""The options of a mirror maker, from MirrorMaker 1's command line and properties."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..client.membership import MembershipSettings
from ..errors import ConfigError
from ..mirroring.model.options import MirrorOptions

__all__ = ["MOST_STREAMS", "MirrorMakerOptions", "parse_include"]

#: More tasks on one machine can only be a typing error.
MOST_STREAMS = 10_000


@dataclass(frozen=True, slots=True)
class MirrorMakerOptions:
    """
    The options of one mirror maker.

    Attributes:
        mirror: The options that any mirror has.
        include: The topics to mirror; the expression must match whole names.
        membership: The settings of the driver's membership in the group.
        streams: The number of tasks that share the partitions.
        listener: ``package.module:Class`` of a rebalance listener, and its argument; None for none.
    """

    mirror: MirrorOptions
    include: re.Pattern[str]
    membership: MembershipSettings
    streams: int
    listener: tuple[str, str | None] | None = None


def parse_include(option: str, text: str) -> re.Pattern[str]:
    """
    Read a list of topics as MirrorMaker 1 does (``org.apache.kafka.server.util.TopicFilter``).

    A comma is the same as ``|``. Blanks, and quotation marks around the whole text, have no meaning.

    Raises:
        ConfigError: The text is not a regular expression of Python's.

    """
    regex = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    if not regex:
        raise ConfigError(f"{option}: names no topic")
    try:
        return re.compile(regex)
    except re.error as error:
        raise ConfigError(
            f"{option} {text}: not a regular expression of Python's, which differ from Java's in little: "
            f"{error}"
        ) from None
