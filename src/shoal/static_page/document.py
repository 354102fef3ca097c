"""The document around a page's own sections."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Literal

from ..printable import printable

__all__ = ["Pill", "static_page", "style", "text_in_html"]


@dataclass(frozen=True, slots=True)
class Pill:
    """One word beside the heading, in the colour of its kind."""

    kind: Literal["good", "warn", "bad"]
    text: str


def static_page(title: str, about: str, headline: str, body: str, *, pill: Pill | None = None) -> str:
    """
    Return an HTML file.

    Args:
        title: The heading, and the title of the window; text, as are ``about`` and ``headline``.
        about: Where the values come from.
        headline: The result, as one sentence.
        body: HTML; the caller has escaped its texts (``text_in_html``).
        pill: The outcome, if the page has one.

    """
    span = f'<span class="pill {pill.kind}">{text_in_html(pill.text)}</span>' if pill else ""
    return Template(_read("document.html")).substitute(
        title=text_in_html(title),
        css=style(),
        pill=span,
        about=text_in_html(about),
        headline=text_in_html(headline),
        body=body,
    )


def style() -> str:
    """Return the style sheet of all pages."""
    return _read("style.css")


def text_in_html(text: str) -> str:
    """Return a text that HTML shows as it is, with what no terminal prints written out."""
    return escape(printable(text))


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
