"""Drawings of models and of graphs of gradients: as SVG without graphviz, and in its language.

    dt.draw(model, x).save("model.svg")
    dt.draw(loss)

A call is drawn by its operations, in boxes of the modules that they belong to; a tensor by the
nodes that backward goes through. Pure data between (``graph.py``): what is found, where it stands
(``arrangement.py``), how that looks (``svg.py``, ``dot.py``).
"""

from .draw import Drawing, draw
from .graph import Graph, Node
from .tracing import traced

__all__ = ["Drawing", "Graph", "Node", "draw", "traced"]
