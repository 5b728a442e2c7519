"""Calling hooks during a walk: of tensors, before and after nodes. Knows the walk only as what
says whether gradients travel as Tensors (``walk.tensors``), and whose others may have
(``walk.lent``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...errors import AnomalyError, AutogradError
from ..algebra import Algebra
from ..tensor import Tensor, wrap
from ..tracer import Tracer

ndarray = np.ndarray


def run_tensor_hooks(walk: Any, node: Any, g: Any) -> Any:
    """The gradient(s) ``g`` of ``node``'s outputs after the hooks of the tensors there. Tensors
    that retain their gradient get it last."""
    several = g.__class__ is list
    for index, hooks in list(node.tensor_hooks.items()):
        current = g[index] if several else g
        for hook in list(hooks.values()):
            walk.lent.add(node)  # they may keep what they see
            given = current if walk.tensors or current is None else wrap(current)
            new = hook(given)
            if new is not None:
                _check_result(hook, new, given)
                current = new if walk.tensors else new.array
        if several:
            g[index] = current
        else:
            g = current
    if node.retained:
        for index, ref in list(node.retained.items()):
            tensor = ref()
            current = g[index] if several else g
            if tensor is not None and current is not None:
                _retain(walk, tensor, current)
    return g


def _retain(walk: Any, tensor: Tensor, g: Any) -> None:
    if walk.tensors:
        kept = Algebra.clone(g)
    else:
        kept = wrap(np.array(g) if g.__class__ is ndarray else g.owned(False))
    tensor._grad = kept if tensor._grad is None else Algebra.add(tensor._grad, kept)


def _check_result(hook: Callable[..., Any], new: Tensor | float, given: Tensor | None) -> None:
    name = getattr(hook, "__name__", type(hook).__name__)
    if given is None:
        raise AutogradError(
            f"hook {name!r}: can't replace a None gradient with a non-None value: no gradient has "
            "come here; return None, or test the argument for None"
        )
    if not isinstance(new, Tensor):
        raise AutogradError(
            f"hook {name!r}: returned a {type(new).__name__}; a tensor hook returns None or a "
            f"gradient of shape {list(given.shape)}"
        )
    if new.meta() != given.meta():
        what = "size" if new.meta()[0] != given.meta()[0] else "type"
        raise AutogradError(
            f"hook {name!r} has changed the {what} of value: it returned {new.dtype!r} of shape "
            f"{list(new.shape)}, the gradient is {given.dtype!r} of shape {list(given.shape)}; "
            "return None or a gradient of the same shape and type"
        )


def run_pre_hooks(walk: object, node: Any, g: object) -> Any:
    """What the hooks before ``node`` make of its gradient (a tuple of several outputs')."""
    several = g.__class__ is tuple
    for hook in list(node.pre_hooks.values()):
        given = _as_tensors(walk, g)
        new = hook(given)
        if new is not None:
            new = _back(walk, hook, new, given)
            g = new if several else new[0]
    return g


def run_post_hooks(walk: object, node: Any, results: tuple, g: object) -> tuple:
    """What the hooks after ``node``, which gave ``results`` for ``g``, make of them."""
    for hook in list(node.post_hooks.values()):
        given = _as_tensors(walk, results)
        new = hook(given, _as_tensors(walk, g))
        if new is not None:
            results = _back(walk, hook, new, given)
    return results


def run_accumulate_hooks(acc: Any) -> None:
    """The hooks for when the gradient of a leaf is there, also where none has come."""
    leaf = acc.leaf
    if leaf is None or leaf._node is None or not acc.accumulate_hooks:
        return
    for hook in list(acc.accumulate_hooks.values()):
        if hook(leaf) is not None:
            raise AutogradError(
                "post accumulate grad hooks should return None: change tensor.grad instead"
            )


def _as_tensors(walk: Any, values: object) -> tuple:
    values = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(v if v is None or walk.tensors else wrap(v) for v in values)


def _back(walk: Any, hook: Any, values: object, given: tuple) -> tuple:
    values = values if isinstance(values, (tuple, list)) else (values,)
    if len(values) != len(given) and given:
        raise AutogradError(
            f"hook {getattr(hook, '__name__', type(hook).__name__)!r} has returned an incorrect "
            f"number of values (got {len(values)}, but expected {len(given)})"
        )
    for new, old in zip(values, given, strict=False):
        if new is not None:
            _check_result(hook, new, old)
    return tuple(v if v is None or walk.tensors else v.array for v in values)


def check_nan(node: Any, results: tuple) -> None:
    """Anomaly detection: raise when ``node`` gave a gradient with nan."""
    for i, r in enumerate(results):
        r = r.plain() if isinstance(r, Tracer) else r
        array = r.array if isinstance(r, Tensor) else r
        if array.__class__ is not ndarray:
            array = array.whole() if array.__class__ is DeviceArray else None
        if array is not None and array.dtype.kind in "fcV" and np.isnan(array).any():
            raise AnomalyError(
                f"backward: Function '{node.name()}' returned nan values in its {i}th output, the "
                f"gradient of its input {i}{node.made_at() if node.site else ''}"
            )
