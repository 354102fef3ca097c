"""
Charts, as SVG, from Vega-Lite specifications.

vl-convert draws them: one wheel without dependencies. Matplotlib would bring NumPy into the environment, and
pyarrow loads NumPy where it finds it: the Python workers that are measured would grow by it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import vl_convert

__all__ = ["line_layer", "span_layer", "svg"]

_VEGA_LITE = "5.21"
_CONFIG = {
    "background": "white",
    "font": "sans-serif",
    "axis": {"gridColor": "#eee", "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "legend": {"orient": "top", "title": None, "labelFontSize": 11},
    "view": {"stroke": "#ccc"},
}


def svg(panels: Sequence[Mapping[str, Any]], title: str) -> str:
    """Return a picture of panels one above the other, each a view of Vega-Lite."""
    spec = {"title": {"text": title, "anchor": "start"}, "config": _CONFIG, "vconcat": list(panels)}
    return str(vl_convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE))


def line_layer(
    rows: Sequence[Mapping[str, Any]],
    x: tuple[str, str],
    y: tuple[str, str],
    names: Sequence[str],
    *,
    logarithmic_x: bool = False,
    logarithmic_y: bool = False,
    stepped: bool = False,
) -> dict[str, Any]:
    """
    Return lines, one for each name in the rows' ``line``.

    Args:
        rows: With the fields of ``x`` and ``y``, and ``line``.
        x: A field and the axis's title.
        y: Likewise.
        names: Of the lines, in the legend's order.

    """
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "line", "strokeWidth": 1.2, "interpolate": "step-after" if stepped else "linear"},
        "encoding": {
            "x": _axis(*x, logarithmic=logarithmic_x),
            "y": _axis(*y, logarithmic=logarithmic_y),
            "color": {"field": "line", "type": "nominal", "sort": list(names)},
        },
    }


def span_layer(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return shaded spans: rows with ``from``, ``to`` and ``span``, the name by which they are coloured."""
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "rect", "opacity": 0.25},
        "encoding": {
            "x": {"field": "from", "type": "quantitative"},
            "x2": {"field": "to"},
            "color": {
                "field": "span",
                "type": "nominal",
                "sort": list(names),
                "scale": {"scheme": "tableau10"},
                "legend": {"orient": "bottom", "columns": 4},
            },
        },
    }


def _axis(field: str, title: str, *, logarithmic: bool) -> dict[str, Any]:
    scale: dict[str, Any] = {"type": "log", "nice": False} if logarithmic else {"nice": False, "zero": True}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale}
