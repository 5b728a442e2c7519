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
from .arrays import stack, unstack
from .debugging import Assert
from .tensor import SymbolicTensor, convert, is_tensor

_COND = "StatelessIf"


class _Flow(Structured):
    kinds, names = (_COND, "Case"), "true_fn and false_fn arguments to tf.cond"
    unknown = (
        "tf.map_fn, tf.scan and tf.foldl in a traced function need to know how many elements "
        "there are: give the first dimension in the input signature, or use `for x in tensor`"
    )
    is_value, value = staticmethod(is_tensor), staticmethod(convert)
    stack, unstack = staticmethod(stack), staticmethod(unstack)  # type: ignore[assignment]

    def plain(self, value: Any) -> Any:
        return convert(value)._value


def _callables(fn: Callable, **places: int) -> Callable:
    """``fn``, whose arguments at ``places`` must be functions."""

    def function(*args: Any) -> Any:
        for word, i in places.items():
            if not callable(args[i]):
                raise TypeError(f"'{word}' must be callable.")
        return fn(*args)

    function.__doc__ = fn.__doc__
    return function


_FLOW = _Flow()
_WAYS = "_parallel_iterations=None _back_prop=True _swap_memory=False"
NAMES: dict[str, Any] = {word: passing(word, text, fn) for word, text, fn in (
    ("cond", "pred true_fn=None false_fn=None _name=None",
     _callables(_FLOW.cond, true_fn=1, false_fn=2)),
    ("switch_case", "branch_index branch_fns default=None _name=None", _FLOW.switch),
    ("case", "pred_fn_pairs default=None _exclusive=False _name=None", _FLOW.case),
    ("while_loop", f"cond body loop_vars _shape_invariants=None {_WAYS} maximum_iterations=None "
     "_name=None", _callables(_FLOW.while_loop, cond=0, body=1)),
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
    kind_of_branch = _COND

    def is_value(self, value: Any) -> bool:
        return is_tensor(value)

    def value(self, value: Any) -> Any:
        return value if is_tensor(value) else convert(value)

    def kind(self, value: Any) -> str:
        return self.value(value).dtype.name

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
        unstack(values) if isinstance(values, SymbolicTensor) else values, start),
    len: _len, int: _number(int, "int32"), float: _number(float, "float32"),
}  # fmt: skip
STATEMENTS = Statements(_Tensors())
