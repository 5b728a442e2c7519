"""A graph as an SVG picture: boxes where they stand, lines between them."""

from __future__ import annotations

from html import escape

from .arrangement import LINE, Box, arranged
from .graph import Graph, Node

FILLS = {
    "input": "#dbe9f6", "output": "#dbe9f6", "parameter": "#fff2cc", "buffer": "#eeeeee",
    "constant": "#eeeeee", "gradient": "#fff2cc",
}  # fmt: skip
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" '
    'viewBox="0 0 {w:.0f} {h:.0f}" font-family="monospace" font-size="11">'
)
_ARROW = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>'
)


def picture(graph: Graph) -> str:
    """The text of the file."""
    boxes, width, height = arranged(graph)
    lines = [_HEAD.format(w=width, h=height), f"<title>{escape(graph.title)}</title>", _ARROW]
    for i, node in enumerate(graph.nodes):
        lines += [_line(boxes[s], boxes[i]) for s in node.sources]
    lines += [_box(node, box) for node, box in zip(graph.nodes, boxes, strict=True)]
    return "\n".join([*lines, "</svg>", ""])


def _line(source: Box, target: Box) -> str:
    x, y, u, v = source.middle, source.y + source.height, target.middle, target.y
    bend = max((v - y) / 2, 8)
    path = f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {u:.1f} {v - bend:.1f} {u:.1f} {v:.1f}"
    return f'<path d="{path}" fill="none" stroke="#666" marker-end="url(#a)"/>'


def _box(node: Node, box: Box) -> str:
    fill = FILLS.get(node.kind, "#ffffff")
    tip = escape(f"{node.name} {node.details}".strip())
    rows = [
        f'<text x="{box.middle:.1f}" y="{box.y + 4 + (k + 0.75) * LINE:.1f}" '
        f'text-anchor="middle">{escape(line)}</text>'
        for k, line in enumerate(node.lines())
    ]
    rectangle = (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="4" fill="{fill}" stroke="#444"/>'
    )
    return f"<g><title>{tip}</title>{rectangle}{''.join(rows)}</g>"
