"""How values of transforms print, and what a program may know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.gate import Tracer
from ...core.tensor import Tensor
from ..jvp import DualTracer
from ..staging import StagedTracer
from ..structured_bodies import aval
from ..vmap import BatchTracer
from .flat import is_traced
from .listing import short_kind


class Names(NamedTuple):
    """What values are called: of a tape, of a program being staged, of a batch, with a tangent."""

    followed: str = "Followed"
    staged: str = "Staged"
    batched: str = "Batched"
    moved: str = "Moved"


def text_of(value: Any, weak: bool, names: Names, plain: Callable[[Tensor], str]) -> str | None:
    """How a value of a transform prints; None for one that is of none. ``plain``: of one that has
    numbers."""

    def again(x: Tensor) -> str | None:
        return text_of(x, weak, names, plain)

    def inner(x: Tensor) -> str:
        text = again(x)
        return plain(x) if text is None else text

    shape, kind = value.meta()
    tangent = f"{short_kind(kind)}[{','.join(map(str, shape))}]"
    if value.graph_node() is not None:
        below = value.alias() if isinstance(value, Tracer) else value.detach()
        return f"{names.followed}(primal={inner(below)}, typeof(tangent)={tangent})"
    if isinstance(value, StagedTracer):
        return f"{names.staged}({aval(value, weak)!r})"
    if isinstance(value, BatchTracer):
        if value.bdim is None:
            return again(value.inner)
        return f"{names.batched}(aval={aval(value, weak)!r}, batched={aval(value.inner, weak)!r})"
    if isinstance(value, DualTracer):
        if value.interp.deferred:
            return f"{names.followed}(primal={inner(value.inner)}, typeof(tangent)={tangent})"
        if value.tangent is None:
            return again(value.inner)
        return f"{names.moved}(primal={inner(value.inner)}, tangent={inner(value.tangent)})"
    return None


def numbers_of(value: Any, traced: Callable[[], Exception], leaked: Callable[[], Exception]) -> Any:
    """The plain tensor that has the numbers of ``value``. Raised where it is traced: ``traced()``,
    or ``leaked()``, if it has outlived its function."""
    if is_traced(value):
        raise leaked() if isinstance(value, Tracer) and value.interp.over else traced()
    plain = value.plain() if isinstance(value, Tracer) else value
    return plain.detach() if plain.requires_grad else plain


__all__ = ["Names", "numbers_of", "text_of"]
