"""The lines of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report import markdown

__all__ = ["Line", "table"]


@dataclass(frozen=True)
class Line:
    """A figure of one pair of clusters.

    Attributes:
        figure: The quantity, with its unit.
        clusters: The versions of the source and the destination.
        shoal: Its figure.
        peer: That of MirrorMaker 2; empty if it has no such thing.
        aim: The bound; empty if there is none.
        is_met: Whether shoal keeps it.
    """

    figure: str
    clusters: str
    shoal: str
    peer: str = ""
    aim: str = ""
    is_met: bool = True

    @property
    def verdict(self) -> str:
        """The word in the last column."""
        if not self.aim:
            return ""
        return "met" if self.is_met else "**missed**"


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a Markdown table."""
    columns = ["figure", "clusters", "shoal", "MirrorMaker 2", "aim", ""]
    return markdown(
        columns,
        [
            [each.figure, each.clusters, f"**{each.shoal}**", each.peer, each.aim, each.verdict]
            for each in lines
        ],
    )
