"""The charts of docs/performance.md: bars of figures, as SVG.

vl-convert draws them from Vega-Lite: one wheel without dependencies. Matplotlib would bring NumPy into the
environment. If NumPy is installed, pyarrow loads it, and the measured Python workers would grow by it.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import vl_convert

__all__ = ["bars", "svg"]

_VEGA_LITE = "5.21"
_CONFIG = {
    "background": "white",
    "font": "sans-serif",
    "axis": {"gridColor": "#eee", "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "legend": {"orient": "top", "title": None, "labelFontSize": 11},
    "view": {"stroke": "#ccc"},
}
_BAR_HEIGHT = 14

#: The least value of a logarithmic axis.
_LEAST = 0.05


def svg(panels: Sequence[Mapping[str, Any]], title: str) -> str:
    """Return a chart of panels one above the other, each of :func:`bars`."""
    heading = {"text": title, "anchor": "start"}
    resolve = {"scale": {"color": "independent", "x": "independent"}}
    spec = {"title": heading, "config": _CONFIG, "vconcat": list(panels), "resolve": resolve}
    return str(vl_convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE))


def bars(
    figures: Mapping[str, Mapping[str, Sequence[float]]],
    title: str,
    *,
    logarithmic: bool = False,
    marks: Mapping[float, str] | None = None,
) -> dict[str, Any]:
    """
    Return groups of horizontal bars of medians, with the extremes.

    Args:
        figures: The turns by the name of the bar's place, and by that of its colour.
        title: The title of the axis.
        logarithmic: Whether the axis is logarithmic.
        marks: Labels of dashed lines across the bars, by their place on the axis.
    """
    rows = [
        {
            "place": place,
            "colour": colour,
            "value": statistics.median(turns),
            "least": min(turns),
            "most": max(turns),
        }
        for place, found in figures.items()
        for colour, turns in found.items()
    ]
    colours = list(dict.fromkeys(row["colour"] for row in rows))
    scale = {"type": "log", "domainMin": _LEAST} if logarithmic else {"zero": True}
    # A bar of a logarithmic axis begins at its least value.
    begin = {"x2": {"datum": _LEAST}} if logarithmic else {}
    place = {
        "y": {"field": "place", "type": "nominal", "sort": list(figures), "title": None},
        "yOffset": {"field": "colour", "type": "nominal", "sort": colours},
    }
    value = {"field": "value", "type": "quantitative", "title": title, "scale": scale}
    extremes = {"x": {"field": "least", "type": "quantitative"}, "x2": {"field": "most"}}
    colour = {"color": {"field": "colour", "type": "nominal", "sort": colours}}
    dashed = [{"at": at, "label": label} for at, label in (marks or {}).items()]
    at = {"x": {"field": "at", "type": "quantitative"}}
    return {
        "width": 620,
        "height": max(60, (_BAR_HEIGHT * len(colours) + 8) * len(figures)),
        "layer": [
            {"data": {"values": rows}, "mark": "bar", "encoding": {"x": value, **begin, **place, **colour}},
            {"data": {"values": rows}, "mark": "rule", "encoding": {**extremes, **place}},
            {
                "data": {"values": dashed},
                "mark": {"type": "rule", "strokeDash": [4, 3]},
                "encoding": at,
            },
            {
                "data": {"values": dashed},
                "mark": {"type": "text", "align": "left", "dx": 3, "fontSize": 11},
                "encoding": {**at, "y": {"value": 8}, "text": {"field": "label"}},
            },
        ],
    }
