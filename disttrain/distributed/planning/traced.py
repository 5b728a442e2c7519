"""The dimensions of a program's transformer, found by running its loss on the meta device.

What its products, its attention and its tables of embeddings are given says all; that the weights
counted so are those that the model has is checked. Knows no cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ... import context
from ...core.observers import OperationObserver
from ...core.tensor import Tensor
from ...core.types.device import device
from ...errors import ConfigError
from .subject import Subject
from .transformer import Transformer

_NEEDED = "give the dimensions in a table [model] instead (docs/plan.md)"


@dataclass
class _Seen(OperationObserver):
    """Shapes of the operations that tell a transformer's dimensions."""

    tables: list[tuple[int, ...]] = field(default_factory=list)
    products: list[tuple[int, int, int]] = field(default_factory=list)  # attentions before, n, k
    attentions: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    biases: bool = False

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        out = forward(prim, args, params)
        shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor)]
        if prim.name == "take" and len(shapes[0]) == 2:
            self.tables.append(shapes[0])
        elif prim.name == "linear" and len(shapes[1]) == 2:
            self.products.append((len(self.attentions), *shapes[1]))
            self.biases = self.biases or len(shapes) > 2
        elif prim.name == "matmul" and len(shapes[1]) == 2:
            self.products.append((len(self.attentions), *shapes[1][::-1]))
        elif prim.name == "attention":
            self.attentions.append((shapes[0], shapes[1]))
        return out


def transformer_of_program(subject: Subject) -> tuple[Transformer, int]:
    """The dimensions, and the length of the sequences that its loss makes.

    Raises ``ConfigError`` for what is no transformer as it knows them.
    """
    seen = _Seen()
    with device("meta"):
        model = subject.build()
        with context.interpreter(seen):
            subject.loss(model, 1)
        shapes = [tuple(p.shape) for p in model.parameters()]
        elements = sum(p.numel() for p in model.parameters())
    if not seen.attentions or len(set(seen.attentions)) > 1:
        raise ConfigError(
            f"the program's loss runs {len(set(seen.attentions))} kinds of attention "
            f"(scaled_dot_product_attention); one is needed; {_NEEDED}"
        )
    found, seq = _read(seen, shapes)
    if abs(found.weights - elements) > 0.01 * elements:
        raise ConfigError(
            f"the program's model has {elements:,} weights, a transformer of its dimensions "
            f"{found.weights:,}; {_NEEDED}"
        )
    return found, seq


def _read(seen: _Seen, shapes: list[tuple[int, ...]]) -> tuple[Transformer, int]:
    query, key = seen.attentions[0]
    heads, seq, dim = query[-3:]
    layers = len(seen.attentions)
    if not seen.products:
        raise ConfigError(f"the program's model has no products; {_NEEDED}")
    _, vocab, hidden = seen.products[-1]
    # From the first attention to the one before the head: what follows it, and its successor's
    # queries, keys and values.
    last = [p for p in seen.products[:-1] if p[0] == layers]
    if len(last) < 3:
        raise ConfigError(f"a layer has {len(last)} products behind its attention; {_NEEDED}")
    inner = last[1:]  # the first one is attention's own
    width = inner[-1][2]
    weights = sum(n * k for _, n, k in inner)
    gated = weights == 3 * width * hidden
    if not gated and weights != 2 * width * hidden:
        raise ConfigError(
            f"a layer's feed-forward has {weights:,} weights, neither two nor three times "
            f"{width} x {hidden}; {_NEEDED}"
        )
    words = [t for t in shapes if t == (vocab, hidden)]
    others = {t for t in seen.tables if t[1] == hidden and t != (vocab, hidden)}
    model = Transformer(
        layers, hidden, heads, vocab, key[-3], dim, width, gated, len(words) == 1,
        sum(t[0] for t in others), seen.biases,
    )  # fmt: skip
    return model, seq
