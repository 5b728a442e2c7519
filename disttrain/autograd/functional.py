"""``dt.autograd.functional``: products with Jacobians and Hessians, and these matrices whole.

``func`` takes tensors and returns a tensor or a tuple of tensors. Inputs and directions are a
tensor or a tuple of tensors; answers have the same form. ``create_graph``: the answer can be
differentiated again. ``strict``: an output that does not depend on an input is an error, where it
otherwise counts as a derivative of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.backward.autograd import grad
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..errors import AutogradError, ShapeError
from ..func import grad as func_grad
from ..func import jacfwd, vmap
from ..ops.functions.creation import create
from ..ops.functions.views.join import stack
from ..ops.primitives.views import reshape


def vjp(
    func: Callable, inputs: object, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(``func(*inputs)``, ``v`` times the Jacobian). ``v`` has the form of the result; None where
    that is a scalar."""
    with enable_grad():
        given, outs, form = _prepared("vjp", func, inputs, create_graph, strict)
        seeds = _directions("vjp", v, outs, "output", form.several_out)
        rows = _pull(outs, given, seeds, create_graph)
        rows = _filled(rows, given, strict, create_graph, "vjp")
    return form.out(outs), form.like_inputs(rows)


def jvp(
    func: Callable, inputs: object, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(``func(*inputs)``, the Jacobian times ``v``). ``v`` has the form of the inputs; None where
    that is one tensor of one element. By the transpose of the transpose: reverse mode twice."""
    with enable_grad():
        given, outs, form = _prepared("jvp", func, inputs, create_graph, strict)
        directions = _directions("jvp", v, given, "input", form.several_in)
        seeds = tuple(create.zeros_like(o).requires_grad_() for o in outs)
        rows = _filled(_pull(outs, given, seeds, True), given, strict, True, "jvp")
        used = [(r, d) for r, d in zip(rows, directions, strict=True) if r.requires_grad]
        moved: Sequence = (None,) * len(outs)
        if used:
            moved = grad(
                [r for r, _ in used], seeds, [d for _, d in used], create_graph=create_graph,
                allow_unused=True,
            )  # fmt: skip
        tangents = _filled(moved, outs, strict, create_graph, "jvp", "output")
    return form.out(outs), form.like_outputs(tangents)


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for each output and input a tensor [*output, *input]. Nested as (outputs,
    inputs), without the level of what is a single tensor.

    ``vectorize``: all rows in one walk (``vmap``); ``strategy="forward-mode"`` goes by columns and
    needs it.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AutogradError(
            f"jacobian: strategy={strategy!r}; expected one of 'forward-mode' and 'reverse-mode'"
        )
    if strategy == "forward-mode":
        return _by_columns(func, inputs, create_graph, strict, vectorize)
    with enable_grad():
        given, outs, form = _prepared("jacobian", func, inputs, create_graph, strict)
        if vectorize and strict:
            raise AutogradError(
                "jacobian: torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` "
                "are not supported together: choose one"
            )
        rule = _rows_at_once if vectorize else _rows_one_by_one
        blocks = tuple(rule(o, i, given, create_graph, strict) for i, o in enumerate(outs))
    rows = tuple(form.like_inputs(b) if form.several_in else b[0] for b in blocks)
    return _finished(rows if form.several_out else rows[0], create_graph)


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar function: for each pair of inputs a tensor
    [*input, *other input]."""
    several = _is_several(inputs)

    def gradient(*given: Tensor) -> Any:
        outs, _ = _outputs("hessian", func(*given))
        _one_scalar("hessian", outs)
        _must_depend("hessian", outs, strict)
        rows = _pull(outs, given, (None,), True)
        rows = _filled(rows, given, strict, True, "hessian")
        return rows if several else rows[0]

    inner: Callable = gradient
    if outer_jacobian_strategy == "forward-mode":
        inner = func_grad(func, argnums=tuple(range(len(inputs))) if several else 0)
    return jacobian(inner, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(``func(*inputs)``, ``v`` times the Hessian) of a scalar function."""
    with enable_grad():
        given, outs, form, rows, directions = _second("vhp", func, inputs, v, create_graph, strict)
        moved = _pull(rows, given, directions, create_graph)
        moved = _filled(moved, given, strict, create_graph, "vhp")
    return form.out(outs), form.like_inputs(moved)


def hvp(
    func: Callable,
    inputs: object,
    v: object = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(``func(*inputs)``, the Hessian times ``v``) of a scalar function, whose Hessian is
    symmetric: the same as ``vhp``."""
    return vhp(func, inputs, v, create_graph, strict)


# --- parts ------------------------------------------------------------------------------------


class _Form:
    """What inputs and outputs look like, and whether answers keep their graph."""

    def __init__(self, several_in: bool, create_graph: bool) -> None:
        self.several_in, self.create_graph = several_in, create_graph
        self.several_out = False

    def out(self, outs: Sequence) -> Any:
        return _finished(outs if self.several_out else outs[0], self.create_graph)

    def like_inputs(self, rows: Sequence) -> Any:
        return _finished(tuple(rows) if self.several_in else rows[0], self.create_graph)

    def like_outputs(self, rows: Sequence) -> Any:
        return _finished(tuple(rows) if self.several_out else rows[0], self.create_graph)


def _finished(value: Any, create_graph: bool) -> Any:
    if create_graph:
        return value
    if isinstance(value, tuple):
        return tuple(_finished(v, False) for v in value)
    return value.detach()


def _is_several(value: Tensor | float | tuple) -> bool:
    return isinstance(value, (tuple, list))


def _tensors(where: str, what: str, value: Any) -> tuple:
    values = tuple(value) if _is_several(value) else (value,)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but "
                f"the value at index {i} has type {type(t).__name__}"
            )
    return values


def _outputs(where: str, result: Tensor | int | tuple) -> tuple[tuple, bool]:
    outs = _tensors(where, "outputs of the user-provided function", result)
    return outs, _is_several(result)


def _prepared(
    where: str, func: Callable, inputs: Any, create_graph: bool, strict: bool
) -> tuple[tuple, tuple, _Form]:
    """Inputs that can be differentiated, and ``func`` of them."""
    form = _Form(_is_several(inputs), create_graph)
    given = tuple(
        t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_()
        for t in _tensors(where, "inputs", inputs)
    )
    outs, form.several_out = _outputs(where, func(*given))
    _must_depend(where, outs, strict)
    return given, outs, form


def _must_depend(where: str, outs: Sequence, strict: bool) -> None:
    for i, o in enumerate(outs):
        if strict and not o.requires_grad:
            raise AutogradError(
                f"{where}: Output {i} of the user-provided function does not require gradients. "
                "The outputs must be computed in a differentiable manner from the input when "
                "running in strict mode."
            )


def _one_scalar(where: str, outs: Sequence) -> None:
    if len(outs) != 1 or outs[0].numel() != 1 or outs[0].ndim > 1:
        raise AutogradError(
            f"{where}: The output of the user-provided function should be a single element tensor "
            f"(returned: {[list(o.shape) for o in outs]})"
        )


def _directions(
    where: str, v: Tensor | tuple | None, like: Sequence, what: str, several: bool
) -> tuple:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise AutogradError(
                f"{where}: The vector v can only be None if the {what} of the user-provided "
                "function is a single Tensor with a single element."
            )
        return (create.ones_like(like[0]),)
    vs = _tensors(where, "vector v", v)
    if len(vs) != len(like):
        raise AutogradError(
            f"{where}: v is a tuple of invalid length: should be {len(like)} but got {len(vs)}."
        )
    for i, (t, o) in enumerate(zip(vs, like, strict=True)):
        if tuple(t.shape) != tuple(o.shape):
            raise ShapeError(
                f"{where}: v has invalid size: entry {i} should be {list(o.shape)} but is "
                f"{list(t.shape)}."
            )
    return vs


def _pull(outs: Sequence, given: Sequence, seeds: Sequence, create: bool) -> tuple:
    """Gradients of the outputs that have any; None where there are none."""
    pairs = [(o, s) for o, s in zip(outs, seeds, strict=True) if o.requires_grad]
    if not pairs:
        return (None,) * len(given)
    return grad(
        [o for o, _ in pairs], given, [s for _, s in pairs], create_graph=create,
        retain_graph=True, allow_unused=True,
    )  # fmt: skip


def _filled(
    rows: Sequence, like: Sequence, strict: bool, create_graph: bool, where: str,
    what: str = "input",
) -> tuple:  # fmt: skip
    """``rows`` with zeros for what is missing; an error in strict mode."""
    out = []
    for i, (r, t) in enumerate(zip(rows, like, strict=True)):
        if r is None and strict:
            raise AutogradError(
                f"{where}: The user-provided function is independent of {what} {i}. This is not "
                "allowed in strict mode."
            )
        if r is not None and strict and create_graph and not r.requires_grad:
            raise AutogradError(
                f"{where}: The derivative with respect to {what} {i} of the user-provided function "
                "is independent of the inputs. This is not allowed in strict mode when "
                "create_graph=True."
            )
        out.append(create.zeros_like(t) if r is None else r)
    return tuple(out)


def _second(
    where: str,
    func: Callable,
    inputs: Tensor | tuple,
    v: Tensor | tuple,
    create_graph: bool,
    strict: bool,
) -> tuple:
    """The gradient of a scalar function, to be differentiated again, and the directions."""
    given, outs, form = _prepared(where, func, inputs, create_graph, strict)
    _one_scalar(where, outs)
    directions = _directions(where, v, given, "input", form.several_in)
    rows = _filled(_pull(outs, given, (None,), True), given, strict, True, where)
    return given, outs, form, rows, directions


def _rows_one_by_one(out: Tensor, i: int, given: tuple, create_graph: bool, strict: bool) -> tuple:
    """One walk per element of ``out``."""
    flat = reshape(out, shape=(out.numel(),))
    rows: list[list] = [[] for _ in given]
    for j in range(out.numel()):
        found = _pull((flat[j],), given, (None,), create_graph)
        for column, g in zip(rows, _filled(found, given, strict, create_graph, "jacobian"),
                             strict=True):  # fmt: skip
            column.append(g)
    return tuple(
        stack(column).reshape(*out.shape, *t.shape) if column
        else create.zeros(*out.shape, *t.shape, dtype=t.dtype)
        for column, t in zip(rows, given, strict=True)
    )  # fmt: skip


def _rows_at_once(out: Tensor, i: int, given: tuple, create_graph: bool, strict: bool) -> tuple:
    """All elements of ``out`` in one walk under vmap."""
    n = out.numel()
    zeros = tuple(create.zeros(*out.shape, *t.shape, dtype=t.dtype) for t in given)
    if not out.requires_grad or not n:
        return zeros
    basis = reshape(create.eye(n, dtype=out.dtype), shape=(n, *out.shape))

    def row(seed: Tensor) -> tuple:
        return grad(
            out, given, seed, create_graph=create_graph, retain_graph=True, materialize_grads=True
        )

    found = vmap(row)(basis)
    return tuple(g.reshape(*out.shape, *t.shape) for g, t in zip(found, given, strict=True))


def _by_columns(
    func: Callable, inputs: Tensor | tuple, create_graph: bool, strict: bool, vectorize: bool
) -> Any:
    if strict:
        raise AutogradError(
            'jacobian: `strict=True` and `strategy="forward-mode"` are not supported together '
            '(yet). Please either set `strict=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotImplementedError(
            "jacobian: Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            "implemented for `vectorize=True`."
        )
    several = _is_several(inputs)
    given = _tensors("jacobian", "inputs", inputs)
    given = given if create_graph else tuple(t.detach() for t in given)
    with enable_grad():
        found = jacfwd(func, argnums=tuple(range(len(given))) if several else 0)(*given)
    return _finished(found, create_graph)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
