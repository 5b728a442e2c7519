"""``tf.cond``, ``tf.while_loop``, ``tf.map_fn`` and the like: names of
``disttrain.graphs.structured`` over TensorFlow's values. And AutoGraph's
border: which values are TensorFlow's."""

from __future__ import annotations

from typing import Any

from ...compile.autograph import Statements
from ...graphs import control
from ...graphs.structured import Structured
from ..tables import passing
from . import math
from .debugging import Assert
from .dispatch import OPS


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


STATEMENTS = Statements(_Tensors(OPS))
