"""Charts, as SVG, from Vega-Lite specifications.

vl-convert draws them: one wheel without dependencies. Matplotlib would bring NumPy into the environment. If
NumPy is installed, pyarrow loads it, and the measured Python workers would grow by it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import vl_convert

__all__ = ["bar_layer", "line_layer", "rule_layer", "svg"]

_VEGA_LITE = "5.21"
_CONFIG = {
    "background": "white",
    "font": "sans-serif",
    "axis": {"gridColor": "#eee", "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "legend": {"orient": "top", "title": None, "labelFontSize": 11},
    "view": {"stroke": "#ccc"},
}


def svg(panels: Sequence[Mapping[str, Any]], title: str, *, shared_colours: bool = True) -> str:
    """Return a chart of panels one above the other, each a view of Vega-Lite.

    Args:
        panels: Panels from top to bottom.
        title: Title of the chart.
        shared_colours: Whether a colour means the same in each panel, with one legend; otherwise each panel
            has its own.
    """
    resolve = {"scale": {"color": "shared" if shared_colours else "independent"}}
    heading = {"text": title, "anchor": "start"}
    spec = {"title": heading, "config": _CONFIG, "vconcat": list(panels), "resolve": resolve}
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
    """Return lines, one for each name in the rows' ``line``.

    Args:
        rows: Rows with the fields of ``x`` and ``y``, and ``line``.
        x: A field and the axis's title.
        y: Likewise.
        names: Names of the lines, in the legend's order.
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


def bar_layer(
    rows: Sequence[Mapping[str, Any]], x: tuple[str, str], names: Sequence[str], rows_by: str
) -> dict[str, Any]:
    """Return a horizontal bar for each row, coloured by its ``line``, with its extremes if it has any.

    Args:
        rows: Rows with the field of ``x``, ``line`` and the field that ``rows_by`` names; ``least`` and
            ``most`` are the extremes.
        x: A field and the axis's title.
        names: Names of the lines, in the bars' order.
        rows_by: The field by which bars form groups.
    """
    place = {"field": "line", "type": "nominal", "sort": list(names), "title": None}
    offset = {"yOffset": {"field": rows_by, "type": "nominal"}}
    return {
        "data": {"values": list(rows)},
        "layer": [
            {
                "mark": {"type": "bar"},
                "encoding": {
                    "x": _axis(*x, logarithmic=False),
                    "y": place,
                    "color": {"field": rows_by, "type": "nominal"},
                    **offset,
                },
            },
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {
                    "x": {"field": "least", "type": "quantitative"},
                    "x2": {"field": "most"},
                    "y": place,
                    **offset,
                },
            },
        ],
    }


def rule_layer(values: Mapping[float, str]) -> list[dict[str, Any]]:
    """Return dashed lines across the bars at values of their axis, each with its label."""
    rows = [{"at": at, "label": label} for at, label in values.items()]
    at = {"field": "at", "type": "quantitative"}
    return [
        {
            "data": {"values": rows},
            "mark": {"type": "rule", "strokeDash": [4, 3]},
            "encoding": {"x": at},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "text", "align": "left", "dx": 3, "fontSize": 11},
            "encoding": {"x": at, "y": {"value": 8}, "text": {"field": "label"}},
        },
    ]


def _axis(field: str, title: str, *, logarithmic: bool) -> dict[str, Any]:
    scale: dict[str, Any] = {"type": "log", "nice": False} if logarithmic else {"nice": False, "zero": True}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale}
