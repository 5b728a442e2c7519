"""In-place writes: how they are counted, and which may not be recorded."""

from __future__ import annotations

from ..context import PLAIN, thread
from ..errors import AutogradError
from ..trace import call_site
from .node import AccumulateGrad
from .tensor import Storage, Tensor


def touched(t: Tensor) -> None:
    """Note an in-place write to ``t``, so that nodes that saved it can tell."""
    st = t._st
    if st is None:
        st = t._st = Storage()
    t.watch_results(st)
    st.version += 1
    if thread.mode != PLAIN:
        st.site = call_site(2)


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
        t._gen = -1  # hooks belong to the value that is overwritten: go on from a node without any
        t.graph_node()
