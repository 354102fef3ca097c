"""The HTML file of page and report, with all code inside and a policy against external requests."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from ....static_page import style

__all__ = ["html"]

_POLICY = (
    "default-src 'none'; style-src '{css}'; script-src '{script}'; img-src data:; connect-src {connect}; "
    "base-uri 'none'; form-action 'none'"
)


def html(state: Mapping[str, Any] | None) -> str:
    """
    Return the page.

    Args:
        state: The object in a report; None for the live page, which polls it.

    """
    css, script = style() + _read("page.css"), _read("page.js")
    connect = "'self'" if state is None else "'none'"
    return Template(_read("page.html")).substitute(
        policy=_POLICY.format(css=_digest(css), script=_digest(script), connect=connect),
        css=css,
        script=script,
        # Nothing in the object can end the HTML element around it.
        state=json.dumps(state).replace("<", "\\u003c"),
    )


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
