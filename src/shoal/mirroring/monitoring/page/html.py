"""The HTML file of page and report, with all code inside and a policy against external requests."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from ....static_page import style

__all__ = ["html"]

#: Plotly adds styles to the document, so they are allowed. Scripts are allowed by their digests.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; connect-src {connect}; "
    "base-uri 'none'; form-action 'none'; script-src {scripts}"
)


def html(data: Mapping[str, Any] | None) -> str:
    """
    Return the page.

    Args:
        data: The object in a report; None for the live page, which polls it.

    """
    scripts = {"plotly": _plotly(), "javascript": _read("page.js")}
    policy = _POLICY.format(
        connect="'self'" if data is None else "'none'",
        scripts=" ".join(f"'sha256-{_digest(each)}'" for each in scripts.values()),
    )
    return Template(_read("page.html")).substitute(
        scripts, policy=policy, css=style(), data=_json_in_html(data)
    )


def _json_in_html(data: Mapping[str, Any] | None) -> str:
    """Return JSON that cannot end the HTML element around it."""
    return json.dumps(data).replace("<", "\\u003c")


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> str:
    # Imported here: the import is slow, and most mirrors have no page.
    from plotly.offline import get_plotlyjs

    code: str = get_plotlyjs()
    if "</script" in code.lower():
        raise ValueError(
            "plotly.js contains '</script', which would end its HTML element. Install another plotly"
        )
    return code


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
