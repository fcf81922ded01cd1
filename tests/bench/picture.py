"""docs/reference/benchmarks.svg: bars on a logarithmic scale, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.bench.figures import number
from tests.bench.targets import BURST, UNARY

_WIDTH, _LEFT, _RIGHT = 760, 150, 90
_HEAD, _BAR, _GAP, _FOOT = 34, 18, 7, 30
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.tick { font-size: 11px; fill: #59636e; }
.line { stroke: #d1d9e0; }
.other { fill: #8c959f; }
.hub { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .tick { fill: #9198a1; }
  .line { stroke: #3d444d; }
  .other { fill: #656c76; }
  .hub { fill: #4493f8; }
}
"""


class Panel(NamedTuple):
    title: str
    bars: Sequence[tuple[str, float]]


def panels(values: Mapping[str, float], proxies: Sequence[str]) -> list[Panel]:
    wanted = [
        ("CPU of a plain call, 32 connections: µs, shorter is better", UNARY, "cpu"),
        ("CPU of a streamed event, 100 streams back to back: µs, shorter is better", BURST, "cpu"),
        ("Plain calls a second, 32 connections: longer is better", UNARY, "rate"),
        ("Events a second, 100 streams back to back: longer is better", BURST, "rate"),
    ]
    found = []
    for title, case, figure in wanted:
        bars = [(proxy, values[f"{case}/{proxy}/{figure}"]) for proxy in proxies if f"{case}/{proxy}/{figure}" in values]
        if bars:
            found.append(Panel(title, bars))
    return found


def draw(wanted: Sequence[Panel]) -> str:
    """One panel below the other, each with a scale of its own."""
    heights = [_HEAD + len(panel.bars) * (_BAR + _GAP) + _FOOT for panel in wanted]
    height = sum(heights)
    drawn = [_panel(panel, sum(heights[:at])) for at, panel in enumerate(wanted)]
    told = escape("; ".join(panel.title for panel in wanted))
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{told}</title>\n<style>\n{_STYLE}</style>\n" + "\n".join(drawn) + "\n</svg>\n"
    )


def _panel(panel: Panel, top: int) -> str:
    sizes = [size for _, size in panel.bars]
    # The shortest bar is to be seen as well.
    low, high = math.floor(math.log10(min(sizes) / 2)), math.ceil(math.log10(max(sizes)))
    first, last = top + _HEAD, top + _HEAD + len(sizes) * (_BAR + _GAP)

    def across(size: float) -> float:
        return (_WIDTH - _LEFT - _RIGHT) * (math.log10(size) - low) / (high - low)

    parts = [f'<text class="title" x="12" y="{top + 20}">{escape(panel.title)}</text>']
    for power in range(low, high + 1):
        at = _LEFT + across(10.0**power)
        parts.append(f'<line class="line" x1="{at:.1f}" x2="{at:.1f}" y1="{first - 4}" y2="{last}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{last + 14}" text-anchor="middle">{_tick(power)}</text>')
    for row, (name, size) in enumerate(panel.bars):
        y, wide = first + row * (_BAR + _GAP), across(size)
        kind = "hub" if name.startswith("hub") else "other"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{wide:.1f}" height="{_BAR}" rx="2"/>')
        parts.append(f'<text x="{_LEFT + wide + 6:.1f}" y="{y + 14}">{number(size)}</text>')
    return "\n".join(parts)


def _tick(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
