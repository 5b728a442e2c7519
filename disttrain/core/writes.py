"""In-place writes: how they are counted, which may not be recorded, and which not be done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..context import PLAIN, thread
from ..errors import AutogradError, CaptureError
from ..trace import call_site
from .node import AccumulateGrad
from .tensor import Storage, Tensor
from .tracer import Tracer


class Inside:
    """A function that a transform runs, and whose memory is its own to write to: what ``given``
    lies in, and all that is made while it runs. Knows no transform but its ``name``."""

    def __init__(self, name: str, given: Any) -> None:
        self.name, self.outer = name, thread.inside
        self.over = self.open = False
        self.given = {memory(t) for t in given if isinstance(t, Tensor)}

    def owner(self, cell: Storage | None) -> Any:
        """The function that the memory of ``cell`` is of; None: the world outside of all."""
        if cell in self.given:
            return self
        made = None if cell is None else cell.inside
        while made is not None and made.over:
            made = made.outer
        return made

    @contextmanager
    def running(self) -> Iterator[None]:
        """The function runs in the block. What it has made then belongs to the one around it."""
        thread.inside = self
        thread.refresh()
        try:
            yield
        finally:
            self.over = True
            thread.inside = self.outer
            thread.refresh()


@contextmanager
def opened() -> Iterator[None]:
    """In the block captured tensors may be written to: by the operations that PyTorch lets."""
    inside = thread.inside
    if inside is None:
        yield
        return
    before, inside.open = inside.open, True
    try:
        yield
    finally:
        inside.open = before


def memory(t: Tensor) -> Storage:
    """The storage of the Tensor that ``t`` stands for below all transforms."""
    return (t.plain() if isinstance(t, Tracer) else t).storage_cell()


def check_captured(t: Tensor, name: str) -> None:
    """Refuse that a function which a transform runs writes to a tensor of the world outside."""
    inside = thread.inside
    if inside is None or inside.open or inside.owner(memory(t)) is inside:
        return
    raise CaptureError(
        f"{name}: inside {inside.name}, a captured tensor of shape {list(t.shape)} would be "
        "changed in place (it would mutate a captured Tensor); a transformed function may write to "
        "its arguments and to what it makes itself: pass the tensor as an argument, write to a "
        ".clone(), or use the out-of-place form"
    )


def touched(t: Tensor) -> None:
    """Note an in-place write to ``t``, so that nodes that saved it can tell."""
    st = t._st
    if st is None:
        st = t._st = Storage()
    t.watch_results(st)
    st.version += 1
    if thread.mode != PLAIN:
        st.site = call_site(2)


def hides_graph(t: Tensor) -> bool:
    """Whether ``t`` is a view, made under no_grad, of what is in a graph."""
    view = t._view
    return view is not None and view[1] is None and view[0].graph_node() is not None


def check_inplace(t: Tensor, name: str) -> None:
    """Refuse to record an in-place operation that autograd cannot get right."""
    node = t.graph_node()
    if node.__class__ is AccumulateGrad:
        raise AutogradError(
            f"{name}: a leaf of shape {list(t.shape)} that requires grad is changed in place while "
            "gradients are recorded; do it under no_grad(), or use the out-of-place form"
        )
    source = t
    while source._view is not None:
        source, prim, part, _ = source._view
        if prim is None or part is not None:
            how = (
                "is the output of a function that returns multiple views. Such functions do not "
                "allow the output views to be modified inplace: it"
                if part is not None
                else "was created in no_grad mode"
            )
            raise AutogradError(
                f"{name} on a tensor of shape {list(t.shape)}: This view {how}, and is being "
                "modified inplace while gradients are recorded; use an index such as x[a:b] "
                "instead, change it under no_grad(), or change a .clone()"
            )
        if source.graph_node().__class__ is AccumulateGrad:
            raise AutogradError(
                f"{name}: a view of a leaf of shape {list(source.shape)} that requires grad is "
                "changed in place; do it under no_grad(), or on a .clone() of the leaf"
            )
    if t._view is not None and getattr(node, "tensor_hooks", None) is not None:
        t._refresh_node(anew=True)  # hooks belong to the value that is overwritten: leave them
