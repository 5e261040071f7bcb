"""Figures of a benchmark as an SVG: a panel a figure, concurrency to the right, an earlier run dashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

Levels = Sequence[Mapping[str, Any]]
Points = Sequence[tuple[float, float]]

_PANELS = (
    ("tokens a second, in total", "tokens_per_second", ""),
    ("tokens a second, a user", "user_tokens_per_second", ""),
    ("seconds to the first token, p50", "ttft", "p50"),
    ("seconds between tokens, p50", "inter_token", "p50"),
)
_WIDE, _HIGH, _MARGIN, _GAP = 320, 220, 56, 24
_TICKS = 4
_NOW, _BEFORE, _INK = "#1f6feb", "#8c959f", "#24292f"


def svg(levels: Levels, before: Levels, title: str) -> str:
    """The document as text."""
    width, height = 2 * (_WIDE + _MARGIN + _GAP), 2 * (_HIGH + _MARGIN + _GAP) + 40
    size = {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
    style = {"font-family": "sans-serif", "font-size": "12", "fill": _INK}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **style})
    SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(root, 16, 24, title, **{"font-size": "16"})
    for number, (name, key, part) in enumerate(_PANELS):
        column, row = number % 2, number // 2
        place = f"translate({_MARGIN + column * (_WIDE + _MARGIN + _GAP)},{64 + row * (_HIGH + _MARGIN + _GAP)})"
        panel = SubElement(root, "g", {"transform": place})
        _panel(panel, name, _points(levels, key, part), _points(before, key, part))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _points(levels: Levels, key: str, part: str) -> Points:
    """(concurrency, figure) of the levels that have it."""
    found = [(each.get("concurrency"), _figure(each.get(key), part)) for each in levels]
    return [(float(at), value) for at, value in found if isinstance(at, int | float) and value is not None]


def _figure(value: object, part: str) -> float | None:
    one = value.get(part) if part and isinstance(value, Mapping) else value
    return float(one) if isinstance(one, int | float) else None


def _panel(panel: Element, name: str, now: Points, before: Points) -> None:
    _text(panel, 0, -10, name, **{"font-weight": "bold"})
    steps = sorted({at for at, _ in (*now, *before)})
    top = max((value for _, value in (*now, *before)), default=0.0) * 1.1 or 1.0
    for tick in range(_TICKS + 1):
        y = _HIGH - _HIGH * tick / _TICKS
        line = {"x1": "0", "x2": str(_WIDE), "y1": f"{y:.1f}", "y2": f"{y:.1f}", "stroke": "#d0d7de"}
        SubElement(panel, "line", line)
        _text(panel, -6, y + 4, _tick(top * tick / _TICKS), **{"text-anchor": "end"})
    across = {at: _WIDE * (number + 0.5) / len(steps) for number, at in enumerate(steps)}
    for at, x in across.items():
        _text(panel, x, _HIGH + 18, f"{at:g}", **{"text-anchor": "middle"})
    _text(panel, _WIDE, _HIGH + 34, "requests at a time", **{"text-anchor": "end", "fill": _BEFORE})
    for points, colour, dash in ((before, _BEFORE, "5 4"), (now, _NOW, "none")):
        _curve(panel, [(across[at], _HIGH - _HIGH * value / top) for at, value in points], colour, dash)


def _curve(panel: Element, points: Points, colour: str, dash: str) -> None:
    if not points:
        return
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    line = {"points": path, "fill": "none", "stroke": colour, "stroke-width": "2", "stroke-dasharray": dash}
    SubElement(panel, "polyline", line)
    for x, y in points:
        SubElement(panel, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3", "fill": colour})


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(parent: Element, x: float, y: float, text: str, **style: str) -> None:
    SubElement(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **style}).text = text
