"""``draw``: a model or a loss as a drawing, which shows itself, and is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.tensor import Tensor
from ..errors import ConfigError
from .dot import description
from .gradients import walked
from .graph import Graph
from .svg import picture
from .tracing import traced

_FORMATS = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".txt": "text"}


class Drawing:
    """A ``graph`` as ``svg()``, ``dot()`` or ``text()``; notebooks show the first of them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def svg(self) -> str:
        """As a picture."""
        return picture(self.graph)

    def dot(self) -> str:
        """In graphviz's language."""
        return description(self.graph)

    def text(self) -> str:
        """A line for each node."""
        return self.graph.text()

    __str__ = text

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"<drawing of {self.graph.title}, {len(self.graph.nodes)} nodes>"

    def save(self, path: str | Path) -> Path:
        """Write a file in the format that its name ends with: .svg, .dot, .gv or .txt."""
        path = Path(path)
        kind = _FORMATS.get(path.suffix)
        if kind is None:
            raise ConfigError(
                f"draw: {path.name} given to save to; the name is to end with {', '.join(_FORMATS)}"
            )
        path.write_text(getattr(self, kind)(), encoding="utf-8")
        return path


def draw(what: Any, *args: Any, **kwargs: Any) -> Drawing:
    """The graph of ``what``: of a model (or a function) the operations of ``what(*args, **kwargs)``
    by module, with shapes; of a tensor, or several, the nodes that backward would go through, with
    the leaves that get gradients. With a ``model=`` beside a tensor, leaves have its names."""
    tensors = list(what) if isinstance(what, (tuple, list)) else [what]
    if all(isinstance(t, Tensor) for t in tensors):
        model = kwargs.pop("model", None)
        if args or kwargs:
            raise ConfigError("draw: of a tensor nothing else is given but model=")
        named = model.named_parameters() if model is not None else ()
        return Drawing(walked(tensors, {id(p): name for name, p in named}))
    if not callable(what):
        raise ConfigError(f"draw: a model, a function or a loss is needed, {type(what)} given")
    return Drawing(traced(what, *args, **kwargs))
