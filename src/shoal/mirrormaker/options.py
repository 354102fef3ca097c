"""Every option of a mirror maker, read from MirrorMaker 1's command line and properties."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..client.membership import MembershipSettings
from ..errors import ConfigError
from ..mirroring.model.options import MirrorOptions

__all__ = ["LARGEST_STREAMS", "MirrorMakerOptions", "parse_include"]

#: More tasks than that on one machine are a typing error.
LARGEST_STREAMS = 10_000


@dataclass(frozen=True, slots=True)
class MirrorMakerOptions:
    """
    The options of one mirror maker.

    Attributes:
        mirror: The options that any mirror has.
        include: Which topics: whole names match.
        membership: How its driver is a member of the group.
        streams: Into how many tasks its partitions are dealt.
        listener: ``package.module:Class`` of a rebalance listener, and its argument; None for none.
    """

    mirror: MirrorOptions
    include: re.Pattern[str]
    membership: MembershipSettings
    streams: int = 1
    listener: tuple[str, str | None] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= LARGEST_STREAMS:
            raise ConfigError(f"--num.streams {self.streams}: not between 1 and {LARGEST_STREAMS}")


def parse_include(option: str, text: str) -> re.Pattern[str]:
    """
    Read a list of topics as MirrorMaker 1 does (``org.apache.kafka.server.util.TopicFilter``).

    A comma is the same as ``|``, blanks mean nothing, and quotation marks around all of it neither.

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
