"""``tf.cond``, ``tf.while_loop``, ``tf.map_fn`` and the like: names of
``disttrain.graphs.structured`` over TensorFlow's values. And AutoGraph's
border: which values are TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compile.autograph import Statements
from ...graphs import control
from ...graphs.structured import Structured
from ..tables import passing
from . import arrays, math
from .debugging import Assert
from .dispatch import OPS
from .tensor import SymbolicTensor, is_tensor


class _Flow(Structured):
    kinds = ("StatelessIf", "Case", "Pack", "Unpack")
    names = "true_fn and false_fn arguments to tf.cond"
    called = {"yes": "true_fn", "no": "false_fn", "test": "cond"}
    unknown = (
        "tf.map_fn, tf.scan and tf.foldl in a traced function need to know how many elements "
        "there are: give the first dimension in the input signature, or use `for x in tensor`"
    )


_FLOW = _Flow(OPS)
_WAYS = "_parallel_iterations=None _back_prop=True _swap_memory=False"
NAMES: dict[str, Any] = {word: passing(word, text, fn) for word, text, fn in (
    ("cond", "pred true_fn=None false_fn=None _name=None", _FLOW.cond),
    ("switch_case", "branch_index branch_fns default=None _name=None", _FLOW.switch),
    ("case", "pred_fn_pairs default=None _exclusive=False _name=None", _FLOW.case),
    ("while_loop", f"cond body loop_vars _shape_invariants=None {_WAYS} maximum_iterations=None "
     "_name=None", _FLOW.while_loop),
    ("map_fn", f"fn elems _dtype=None {_WAYS} _infer_shape=True _name=None "
     "_fn_output_signature=None", _FLOW.map),
    ("scan", f"fn elems initializer=None {_WAYS} _infer_shape=True reverse=False _name=None",
     _FLOW.scan),
    ("foldl", f"fn elems initializer=None {_WAYS} _infer_shape=True _name=None", _FLOW.fold),
    ("foldr", f"fn elems initializer=None {_WAYS} _infer_shape=True _name=None", _FLOW.fold_back),
    ("vectorized_map", "fn elems _fallback_to_while_loop=True _warn=True", _FLOW.at_once),
)}  # fmt: skip


# --- AutoGraph --------------------------------------------------------------------------------
class _Tensors(control.Staging):
    kind_of_branch = "StatelessIf"

    def logical(self, word: str, *values: Any) -> Any:
        return math.NAMES[f"logical_{word}"](*values)

    def check(self, test: Any, message: Any) -> None:
        Assert(test, [message])


def _len(value: Any) -> Any:
    if not isinstance(value, SymbolicTensor):
        return len(value)
    known = value.shape[0] if value.shape.rank else None
    return arrays.NAMES["shape"](value)[0] if known is None else known


def _number(kind: type, name: str) -> Callable:
    return lambda *a: math.cast(a[0], name) if a and isinstance(a[0], SymbolicTensor) else kind(*a)


_Tensors.builtins = {
    range: lambda *a: arrays.NAMES["range"](*a) if any(map(is_tensor, a)) else range(*a),
    enumerate: lambda values, start=0: enumerate(
        _FLOW.unstack(values) if isinstance(values, SymbolicTensor) else values, start),
    len: _len, int: _number(int, "int32"), float: _number(float, "float32"),
}  # fmt: skip
STATEMENTS = Statements(_Tensors(OPS))
