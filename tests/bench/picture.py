"""docs/reference/benchmarks.svg: bars on a logarithmic scale, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.bench.figures import number
from tests.bench.targets import BACK_TO_BACK, PLAIN_CALLS

_WIDTH, _LEFT, _RIGHT = 760, 150, 90
_HEAD, _ROW_HEIGHT, _GAP, _SCALE_HEIGHT = 34, 18, 7, 30
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


class Graph(NamedTuple):
    title: str
    rows: Sequence[tuple[str, float]]


def graph_list(values: Mapping[str, float], proxies: Sequence[str]) -> list[Graph]:
    wanted = [
        ("CPU of a plain call, 32 connections: µs, shorter is better", PLAIN_CALLS, "cpu"),
        ("CPU of a streamed event, 100 streams back to back: µs, shorter is better", BACK_TO_BACK, "cpu"),
        ("Plain calls a second, 32 connections: longer is better", PLAIN_CALLS, "rate"),
        ("Events a second, 100 streams back to back: longer is better", BACK_TO_BACK, "rate"),
    ]
    found = []
    for title, case, figure in wanted:
        rows = [(proxy, values[f"{case}/{proxy}/{figure}"]) for proxy in proxies if f"{case}/{proxy}/{figure}" in values]
        if rows:
            found.append(Graph(title, rows))
    return found


def render(wanted: Sequence[Graph]) -> str:
    """The graphs below each other, each with its own scale."""
    sizes = [_HEAD + len(graph.rows) * (_ROW_HEIGHT + _GAP) + _SCALE_HEIGHT for graph in wanted]
    total_size = sum(sizes)
    parts = [_render_graph(graph, sum(sizes[:at])) for at, graph in enumerate(wanted)]
    title = escape("; ".join(graph.title for graph in wanted))
    size = f'viewBox="0 0 {_WIDTH} {total_size}" width="{_WIDTH}" height="{total_size}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _render_graph(graph: Graph, top: int) -> str:
    sizes = [size for _, size in graph.rows]
    # The shortest bar must be visible too.
    low, high = math.floor(math.log10(min(sizes) / 2)), math.ceil(math.log10(max(sizes)))
    first, last = top + _HEAD, top + _HEAD + len(sizes) * (_ROW_HEIGHT + _GAP)

    def across(size: float) -> float:
        return (_WIDTH - _LEFT - _RIGHT) * (math.log10(size) - low) / (high - low)

    parts = [f'<text class="title" x="12" y="{top + 20}">{escape(graph.title)}</text>']
    for exponent in range(low, high + 1):
        at = _LEFT + across(10.0**exponent)
        parts.append(f'<line class="line" x1="{at:.1f}" x2="{at:.1f}" y1="{first - 4}" y2="{last}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{last + 14}" text-anchor="middle">{_tick(exponent)}</text>')
    for row, (name, size) in enumerate(graph.rows):
        y, wide = first + row * (_ROW_HEIGHT + _GAP), across(size)
        kind = "hub" if name.startswith("hub") else "other"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{wide:.1f}" height="{_ROW_HEIGHT}" rx="2"/>')
        parts.append(f'<text x="{_LEFT + wide + 6:.1f}" y="{y + 14}">{number(size)}</text>')
    return "\n".join(parts)


def _tick(exponent: int) -> str:
    return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:g}"
