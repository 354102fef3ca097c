"""The report of a run: the page with its final object inside."""

from __future__ import annotations

from ....result_file import write_result_file
from .data import Ending, PageData
from .html import html
from .sampler import Sampler

__all__ = ["write_report"]


def write_report(file: str, sampler: Sampler, ending: Ending) -> None:
    """
    Write the report of a mirror that has ended, in one step.

    Raises:
        ShoalError: The report cannot be written.

    """
    write_result_file("report", file, html(PageData(sampler).at_the_end(ending)))
