"""``grad``, ``vjp``, ``jvp``, ``vmap`` and their kin with JAX's conventions, over ``dt.func``.

A function of pytrees of Arrays becomes one of a list of Tensors (``Flat``), which the transform of
``dt.func`` takes; so they compose in any order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import disttrain as dt

from ... import func
from ...core.tensor import Tensor
from ...func.vmap import BatchTracer
from ...ops.primitives.elementwise import conj
from . import tree
from .array import Array, kind_of, unwrap, wrap
from .errors import short
from .tracing import aval_text

float0 = np.dtype([("float0", np.void, 0)])
_registry = tree.default_registry
_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic)


def as_array(
    value: Any, what: str = "Argument {value!r} of type {kind} is not a valid JAX type"
) -> Array:
    """A leaf as an Array."""
    if isinstance(value, Array):
        return value
    if hasattr(value, "__jax_array__"):
        return as_array(value.__jax_array__())
    known = isinstance(value, (bool, int, float, complex, np.generic))
    if known or (isinstance(value, np.ndarray) and value.dtype.kind in "biufcV"):
        return wrap(unwrap(value), kind_of(value)[1])
    if isinstance(value, Tensor):
        return wrap(value)
    raise TypeError(what.format(value=value, kind=type(value)))


def is_float0(value: Any) -> bool:
    """Whether it is a cotangent or tangent of an integer: nothing."""
    return getattr(value, "dtype", None) == float0


def no_tangent(like: Any) -> np.ndarray:
    """The tangent of an integer."""
    return np.zeros(like.shape, float0)


def moves(array: Array) -> bool:
    """Whether its type has derivatives."""
    return array.dtype.kind in "fcV"


class Flat:
    """``fun`` as a function of a list of Tensors, which gives a list of Tensors. After a call:
    ``form``, the form of its result; ``weak``, which of its leaves have weak types; ``aux``."""

    def __init__(
        self, fun: Callable, args: tuple, kwargs: dict | None = None, has_aux: bool = False
    ) -> None:
        self.fun, self.has_aux = fun, has_aux
        leaves, self.of = _registry.flatten((args, kwargs or {}))
        self.given = [as_array(x) for x in leaves]
        self.tensors = [a._value for a in self.given]
        self.form: Any = None
        self.weak: list[bool] = []
        self.aux: Any = None

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        arrays = [wrap(t, a.weak_type) for t, a in zip(tensors, self.given, strict=True)]
        args, kwargs = self.of.build(iter(arrays))
        result = self.fun(*args, **kwargs)
        extra: list = []
        if self.has_aux:
            result, aux = _split_aux(result)
            extra, self.aux_form = _registry.flatten(aux)
        leaves, self.form = _registry.flatten(result)
        outs = [as_array(x) for x in leaves]
        self.weak = [o.weak_type for o in outs]
        self.aux_leaves = extra
        return [o._value for o in outs]

    def tree(self, tensors: Sequence[Tensor]) -> Any:
        """The result of these tensors."""
        pairs = zip(tensors, self.weak, strict=True)
        return self.form.build(iter([wrap(t, w) for t, w in pairs]))

    def with_aux(self, tensors: list) -> tuple[list, list]:
        """Outputs, and those of the aux leaves that are Arrays (for the transform to take out)."""
        return tensors, [x._value for x in self.aux_leaves if isinstance(x, Array)]

    def aux_of(self, tensors: Sequence[Tensor]) -> Any:
        """The aux tree, with these tensors in place of its Arrays."""
        left = iter(tensors)
        return self.aux_form.build(
            iter(
                [
                    wrap(next(left), x.weak_type) if isinstance(x, Array) else x
                    for x in self.aux_leaves
                ]
            )
        )


def _split_aux(result: Any) -> tuple:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(
            "expected function with aux output to return a two-element tuple, but got type "
            f"{type(result)} with value {result}"
        )
    return tuple(result)


def check_callable(fun: Any) -> None:
    """Raise ``TypeError`` unless it can be called."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")


def named(wrapper: Callable, fun: Any) -> Any:
    """``wrapper`` with the name and the signature of ``fun``."""
    try:
        return functools.wraps(fun)(wrapper)
    except (AttributeError, TypeError):
        return wrapper


# --- reverse ------------------------------------------------------------------------------------
class _Reverse:
    """One ``vjp`` of ``fun``: its result, and how cotangents are pulled back."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.places = [i for i, a in enumerate(flat.given) if moves(a)]
        aux: list = []

        def of(*moving: Tensor) -> Any:
            full = list(flat.tensors)
            for i, t in zip(self.places, moving, strict=True):
                full[i] = t
            outs, extra = flat.with_aux(flat(*full))
            return (outs, extra) if extra else outs

        def with_extra(*moving: Tensor) -> Any:
            found = of(*moving)
            return found if isinstance(found, tuple) else (found, [])

        moving = [flat.tensors[i] for i in self.places]
        self.pull: Callable | None = None
        if moving:
            outs, extra, self.pull = _pulled(with_extra, moving)
        else:
            outs, extra = with_extra()
        self.outs, aux = outs, extra
        self.result = flat.tree(outs)
        self.aux = flat.aux_of(aux) if flat.has_aux else None

    def __call__(self, cotangents: Sequence[Any]) -> list:
        """The cotangents of all arguments' leaves; ``cotangents`` are Tensors (None: zero)."""
        given = self.flat.given
        found: list = [no_tangent(a) for a in given]
        rows: Sequence = ()
        if self.pull is not None:
            rows = self.pull(cotangents)
        for i, row in zip(self.places, rows, strict=True):
            found[i] = wrap(row, given[i].weak_type)
        return found


def _conj(t: Tensor) -> Tensor:
    return conj(t) if t.dtype.is_complex else t


def _pulled(of: Callable, moving: list) -> tuple[list, list, Callable]:
    """Outputs, aux tensors, and the function from cotangents to those of ``moving``. (JAX's pulls
    back without conjugation, which the tape does.)"""
    none = dt.zeros(())

    def padded(*tensors: Tensor) -> Any:
        outs, extra = of(*tensors)
        return (outs or [none]), extra

    outs, pull, extra = func.vjp(padded, *moving, has_aux=True)
    empty = len(outs) == 1 and outs[0] is none

    def pull_back(cotangents: Sequence[Any]) -> list:
        full = [
            dt.zeros(tuple(o.meta()[0]), dtype=o.dtype) if c is None else _conj(c)
            for o, c in zip(outs, cotangents or [None] * len(outs), strict=True)
        ]
        return [_conj(r) for r in pull(full)]

    return ([] if empty else outs), extra, pull_back


def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Sequence = ()) -> Any:
    """(``fun(*primals)``, a function from a cotangent to the primals' cotangents[, aux])."""
    check_callable(fun)
    flat = Flat(fun, primals, has_aux=has_aux)
    reverse = _Reverse(flat)
    form = flat.of.children[0]

    def vjp_fun(*cotangents: Any) -> tuple:
        if len(cotangents) != 1:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {_name(fun)} was called with "
                f"{len(cotangents)} arguments, but functions returned by `jax.vjp` must be called "
                "with a single argument corresponding to the single value returned by the function "
                "being differentiated (even if that returned value is a tuple or other container)."
            )
        found = reverse(_checked_cotangents(fun, flat, reverse.outs, cotangents[0]))
        return form.build(iter(found))

    answer = (reverse.result, tree.Partial(vjp_fun))
    return (*answer, reverse.aux) if has_aux else answer


def _checked_cotangents(fun: Callable, flat: Flat, outs: list, given: Any) -> list:
    leaves, form = _registry.flatten(given)
    if form != flat.form:
        raise ValueError(
            "unexpected tree structure.\n\nThe argument to a VJP function returned by `jax.vjp` "
            f"must match the pytree structure of the differentiated function {_name(fun)}.\n\nBut "
            f"the tree structures differ: {tree.PyTreeDef(form)} given, "
            f"{tree.PyTreeDef(flat.form)} needed"
        )
    found: list = []
    for out, weak, leaf in zip(outs, flat.weak, leaves, strict=True):
        like = wrap(out, weak)
        if not moves(like):
            found.append(None)
            continue
        g = as_array(leaf)
        if g.shape != like.shape or g.dtype != like.dtype:
            raise ValueError(
                "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                f"{short(g)}, but expected {short(like)} because the corresponding output of the "
                f"differentiated function had JAX type {short(like)}"
            )
        found.append(g._value)
    return found


def _name(fun: Any) -> str:
    code = getattr(fun, "__code__", None)
    name = getattr(fun, "__name__", repr(fun))
    return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code else name


def _numbers(argnums: Any) -> tuple[int, ...]:
    if isinstance(argnums, (tuple, list)):
        if not argnums:
            raise ValueError("max() arg is an empty sequence")
        return tuple(int(n.__index__()) for n in argnums)
    if not hasattr(argnums, "__index__"):
        raise TypeError(f"'{type(argnums).__name__}' object cannot be interpreted as an integer")
    return (argnums.__index__(),)


def picked(fun: Callable, argnums: Any, args: tuple, kwargs: dict) -> tuple[tuple, Callable]:
    """The arguments ``argnums``, and ``fun`` as a function of those alone."""
    numbers = _numbers(argnums)
    needed = max(max(numbers) + 1, -min(numbers))
    if needed > len(args):
        raise TypeError(
            f"differentiating with respect to argnums={argnums} requires at least {needed} "
            f"positional arguments to be passed by the caller, but got only {len(args)} positional "
            "arguments."
        )
    places = [n % len(args) for n in numbers]

    def of(*values: Any) -> Any:
        full = list(args)
        for n, value in zip(places, values, strict=True):
            full[n] = value
        return fun(*full, **kwargs)

    return tuple(args[n] for n in places), named(of, fun)


def _check_input(where: str, array: Array, holomorphic: bool, allow_int: bool) -> None:
    kind = array.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"{where} with holomorphic=True requires inputs with complex dtype, but got {kind.name}."
        )
    if kind.kind in "biu" and not allow_int:
        raise TypeError(
            f"{where} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
            f"np.inexact), but got {kind.name}. If you want to use Boolean- or integer-valued "
            "inputs, use vjp or set allow_int to True."
        )


def _check_output(where: str, array: Array, holomorphic: bool) -> None:
    kind = array.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"{where} with holomorphic=True requires outputs with complex dtype, but got "
            f"{kind.name}."
        )
    if not holomorphic and kind.kind == "c":
        raise TypeError(
            f"{where} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {kind.name}. For holomorphic differentiation, pass "
            "holomorphic=True. For differentiation of non-holomorphic functions involving complex "
            f"outputs, use jax.vjp directly."
        )
    if kind.kind in "biu":
        raise TypeError(
            f"{where} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {kind.name}. For differentiation of functions with integer "
            "outputs, use jax.vjp directly."
        )


def value_and_grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence = (),
    *, _where: str = "value_and_grad",
) -> Callable:  # fmt: skip
    """``fun``'s value (a scalar) and gradient; with ``has_aux`` ((value, aux), gradient)."""
    check_callable(fun)

    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        chosen, of = picked(fun, argnums, args, kwargs)
        flat = Flat(of, chosen, has_aux=has_aux)
        for a in flat.given:
            _check_input(_where, a, holomorphic, allow_int)
        reverse = _Reverse(flat)
        out = _scalar(_where, reverse.result, holomorphic)
        found = reverse([dt.ones((), dtype=out._value.dtype)])
        grads = flat.of.children[0].build(iter(found))
        grads = grads[0] if not isinstance(argnums, (tuple, list)) else grads
        return ((out, reverse.aux) if has_aux else out), grads

    return named(value_and_grad_f, fun)


def _scalar(where: str, result: Any, holomorphic: bool) -> Array:
    if not isinstance(result, Array):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {result}.")
    if result.shape:
        raise TypeError(
            "Gradient only defined for scalar-output functions. Output had shape: "
            f"{tuple(result.shape)}."
        )
    _check_output(where, result, holomorphic)
    return result


def grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence = (),
) -> Callable:  # fmt: skip
    """The gradient of ``fun``, whose result is a scalar; with ``has_aux`` (gradient, aux)."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, _where="grad")

    def grad_f(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return named(grad_f, fun)


# --- forward ------------------------------------------------------------------------------------
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> tuple:
    """(``fun(*primals)``, its derivative along ``tangents``[, aux])."""
    check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; found "
            f"{type(primals).__name__} and {type(tangents).__name__}."
        )
    leaves, form = _registry.flatten(tangents)
    of = _registry.flatten(primals)[1]
    if form != of:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals "
            f"have tree structure {tree.PyTreeDef(of)} whereas tangents have tree structure "
            f"{tree.PyTreeDef(form)}."
        )
    flat = Flat(fun, tuple(primals), has_aux=has_aux)
    given = [_tangent(p, t) for p, t in zip(flat.given, leaves, strict=True)]
    places = [i for i, a in enumerate(flat.given) if moves(a)]
    outs, moved, extra = _pushed(flat, places, [given[i] for i in places])
    answer = flat.tree(outs), _moved_tree(flat, outs, moved)
    return (*answer, flat.aux_of(extra)) if has_aux else answer


def _tangent(primal: Array, tangent: Any) -> Any:
    expected = primal.dtype if moves(primal) else float0
    t = None if is_float0(tangent) else as_array(tangent)
    kind = float0 if t is None else t.dtype
    if kind != expected:
        name = getattr(expected, "name", expected) if expected != float0 else "[('float0', 'V')]"
        raise TypeError(
            "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case "
            "of int/bool primal dtype the tangent dtype must be float0."
            f"Got primal dtype {primal.dtype.name} and so expected tangent dtype {name}, but got "
            f"tangent dtype {'float0' if t is None else kind.name} instead."
        )
    shape = tuple(np.shape(tangent)) if t is None else t.shape
    if shape != primal.shape:
        raise ValueError(
            "jvp called with different primal and tangent shapes;Got primal shape "
            f"{primal.shape} and tangent shape as {shape}"
        )
    return None if t is None else t._value


def _of_moving(flat: Flat, places: list[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    full = list(flat.tensors)
    for i, t in zip(places, tensors, strict=True):
        full[i] = t
    return flat(*full)


def _pushed(flat: Flat, places: list[int], tangents: list) -> tuple[list, list, list]:
    if not places:
        outs, extra = flat.with_aux(flat(*flat.tensors))
        return outs, [_zeros(o) for o in outs], extra
    none = dt.zeros(())

    def of(*moving: Tensor) -> Any:
        outs, extra = flat.with_aux(_of_moving(flat, places, moving))
        return (outs or [none]), extra

    primals = tuple(flat.tensors[i] for i in places)
    outs, moved, extra = func.jvp(of, primals, tuple(tangents), has_aux=True)
    return (outs, moved, extra) if flat.form.num_leaves else ([], [], extra)


def _zeros(like: Tensor) -> Tensor:
    return dt.zeros(tuple(like.meta()[0]), dtype=like.dtype)


def _moved_tree(flat: Flat, outs: list, moved: Sequence[Any]) -> Any:
    """The tree of tangents of results; nothing for integers."""
    found = []
    for o, t, weak in zip(outs, moved, flat.weak, strict=True):
        like = wrap(o, weak)
        found.append(wrap(t, weak) if moves(like) else no_tangent(like))
    return flat.form.build(iter(found))


def linearize(fun: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(``fun(*primals)``, the function of tangents that gives its derivative there[, aux])."""
    check_callable(fun)
    flat = Flat(fun, primals, has_aux=has_aux)
    places = [i for i, a in enumerate(flat.given) if moves(a)]
    count = [0]

    def of(*moving: Tensor) -> list:
        outs, extra = flat.with_aux(_of_moving(flat, places, moving))
        count[0] = len(outs)
        return [*outs, *extra]

    if places:
        both, push = func.linearize(of, *[flat.tensors[i] for i in places])
    else:
        both = of()
    outs, extra = both[: count[0]], both[count[0] :]
    form = flat.of.children[0]

    def lin(*tangents: Any) -> Any:
        leaves, given = _registry.flatten(tangents)
        if given != form:
            raise TypeError(f"expected {tree.PyTreeDef(form)}, got {tree.PyTreeDef(given)}")
        pairs = zip(flat.given, leaves, strict=True)
        checked = [_linear_tangent(p, t) for p, t in pairs]
        moved = push(*[checked[i] for i in places])[: count[0]] if places else map(_zeros, outs)
        return _moved_tree(flat, outs, list(moved))

    answer = flat.tree(outs), tree.Partial(lin)
    return (*answer, flat.aux_of(extra)) if has_aux else answer


def _linear_tangent(primal: Array, tangent: Any) -> Any:
    if is_float0(tangent) and not moves(primal):
        return None
    t = as_array(tangent)
    if t.shape != primal.shape or t.dtype != primal.dtype or not moves(primal):
        needed = aval_text(primal) if moves(primal) else "float0[]"
        raise ValueError(
            "linearized function called on tangent values inconsistent with the original primal "
            f"values:\nGot tangent aval {aval_text(t)} for primal aval {aval_text(primal)} but "
            f"expected {needed}."
        )
    return t._value


# --- batches ------------------------------------------------------------------------------------
def vmap(
    fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
    axis_size: int | None = None, spmd_axis_name: Any = None, sum_match: bool = False,
) -> Callable:  # fmt: skip
    """``fun`` over a batch: ``in_axes`` and ``out_axes`` are trees of axes (None: no batch)."""
    check_callable(fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple))):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
            f"positional arguments passed to the function, but got {in_axes}."
        )

    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                f"positional arguments passed to the function, but got len(in_axes)={len(in_axes)},"
                f" len(args)={len(args)}"
            )
        flat = Flat(fun, args, kwargs)
        dims = _prefix("in_axes", in_axes, args) + [0] * flat.of.children[1].num_leaves
        size = _size(fun, flat, args, kwargs, dims, axis_size)
        where = [None if d is None else d % a.ndim for d, a in zip(dims, flat.given, strict=True)]
        places: list = []

        def of(*tensors: Tensor) -> list[Tensor]:
            outs = flat(*tensors)
            places[:] = _out_axes(out_axes, flat, outs)
            return outs

        named_axis = {} if axis_name is None else {"axis_name": axis_name}
        run = func.vmap(
            of, tuple(where), places, "different", axis_size=size, **named_axis
        )  # fmt: skip
        return flat.tree(run(*flat.tensors))

    return named(vmap_f, fun)


def _prefix(what: str, axes: Any, value: Any, transform: str = "vmap") -> list:
    try:
        return tree.prefix_leaves(axes, value, f"{transform} {what}")
    except ValueError as error:
        raise ValueError(
            f"{transform} {what} specification must be a tree prefix of the corresponding value; "
            f"\n  Mismatch details (1 found):\n  {error}"
        ) from None


def _size(
    fun: Callable, flat: Flat, args: tuple, kwargs: dict, dims: list, given: int | None
) -> int:
    if not flat.given and given is None:
        raise ValueError(
            "vmap wrapped function must be passed at least one argument containing an array or "
            f"axis_size must be specified, got empty *args={args} and **kwargs={kwargs}"
        )
    for a, d in zip(flat.given, dims, strict=True):
        if d is not None and not -a.ndim <= d < a.ndim:
            least = d + 1 if d >= 0 else -d
            raise ValueError(
                f"vmap was requested to map its argument along axis {d}, which implies that its "
                f"rank should be at least {least}, but is only {a.ndim} (its shape is {a.shape})"
            )
    sizes = {a.shape[d] for a, d in zip(flat.given, dims, strict=True) if d is not None}
    if given is not None:
        sizes.add(given)
    if not sizes:
        raise ValueError(
            "vmap must have at least one non-None value in in_axes or axis_size must be specified"
        )
    if len(sizes) > 1:
        raise ValueError(_inconsistent(fun, flat, args, kwargs, dims, given))
    return sizes.pop()


def _inconsistent(
    fun: Callable, flat: Flat, args: tuple, kwargs: dict, dims: list, given: int | None
) -> str:
    try:
        bound = list(inspect.signature(fun).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        bound = []
    lines = [] if given is None else [f"  * the `axis_size` argument was {given}"]
    paths = _registry.paths((args, kwargs))
    for (path, _), a, d in zip(paths, flat.given, dims, strict=True):
        if d is not None:
            i = getattr(path[1], "idx", None)
            rest = "".join(map(str, path[2:]))
            known = i is not None and i < len(bound)
            said = f"argument {bound[i]}{rest}" if known else f"args{''.join(map(str, path[1:]))}"
            lines.append(
                f"  * one axis had size {a.shape[d]}: axis {d} of {said} of type {short(a)}"
            )
    return "vmap got inconsistent sizes for array axes to be mapped:\n" + ";\n".join(lines)


def _out_axes(out_axes: Any, flat: Flat, outs: list) -> list:
    """One axis per result; checked."""
    result = flat.form.build(iter(range(len(outs))))
    found = _prefix("out_axes", out_axes, result)
    for t, d in zip(outs, found, strict=True):
        batched = isinstance(t, BatchTracer) and t.bdim is not None
        if d is None and batched and t.interp is dt.context.thread.stack[-1]:
            raise ValueError(
                f"at vmap out_axes, got axis spec None but output was batched on axis {t.bdim}"
            )
        n = len(t.meta()[0]) + 1
        if d is not None and not -n <= d < n:
            raise ValueError(f"axis {d} is out of bounds for array of dimension {n}")
    return found


# --- Jacobians ----------------------------------------------------------------------------------
def _basis(leaves: Sequence[Array]) -> list[Array]:
    """All unit vectors of the leaves together: per leaf [count, *shape]."""
    sizes = [int(np.prod(a.shape)) for a in leaves]
    total, at, found = sum(sizes), 0, []
    for a, n in zip(leaves, sizes, strict=True):
        eye = np.zeros((total, n), a.dtype)
        eye[at : at + n] = np.eye(n)
        found.append(wrap(unwrap(eye.reshape(total, *a.shape), a.dtype), a.weak_type))
        at += n
    return found


def _parts(rows: Array, leaves: Sequence[Array], axis_last: bool) -> list[Array]:
    """[total, *shape] cut to one array per leaf: [*shape, *leaf] or [*leaf, *shape]."""
    found, at = [], 0
    for a in leaves:
        n = int(np.prod(a.shape))
        piece = rows._value[at : at + n]
        if axis_last:
            piece = dt.movedim(piece, 0, -1).reshape((*rows.shape[1:], *a.shape))
        else:
            piece = piece.reshape((*a.shape, *rows.shape[1:]))
        found.append(wrap(piece, rows.weak_type))
        at += n
    return found


def jacfwd(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:  # fmt: skip
    """The Jacobian, column by column: results' trees of arguments' trees of [*out, *in]."""
    check_callable(fun)

    def jacfun(*args: Any, **kwargs: Any) -> Any:
        chosen, of = picked(fun, argnums, args, kwargs)
        leaves, form = _registry.flatten(chosen)
        given = [as_array(x) for x in leaves]
        for a in given:
            _check_forward(a, holomorphic)

        def push(*tangents: Array) -> Any:
            _, moved, *aux = jvp(of, chosen, form.build(iter(tangents)), has_aux=has_aux)
            return (moved, *aux)

        columns, *aux = vmap(push, out_axes=(-1, 0) if has_aux else (-1,))(*_basis(given))
        aux = [tree.tree_map(lambda a: wrap(as_array(a)._value[0], a.weak_type), x) for x in aux]
        for y in _registry.flatten(columns)[0]:
            _check_forward_output(as_array(y), holomorphic)
        out, out_form = _registry.flatten(columns)
        one = form.children[0] if not isinstance(argnums, (tuple, list)) else form

        def cut(column: Array) -> Any:
            moved = wrap(dt.movedim(column._value, -1, 0), column.weak_type)
            return one.build(iter(_parts(moved, given, axis_last=True)))

        answer = out_form.build(iter([cut(as_array(c)) for c in out]))
        return (answer, aux[0]) if has_aux else answer

    return named(jacfun, fun)


def _check_forward(array: Array, holomorphic: bool) -> None:
    kind = array.dtype
    if holomorphic and kind.kind != "c":
        raise TypeError(
            f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {kind.name}."
        )
    if not holomorphic and kind.kind not in "fV":
        raise TypeError(
            "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), "
            f"but got {kind.name}. For holomorphic differentiation, pass holomorphic=True. For "
            "differentiation of non-holomorphic functions involving complex inputs or integer "
            "inputs, use jax.jvp directly."
        )


def _check_forward_output(array: Array, holomorphic: bool) -> None:
    if holomorphic and array.dtype.kind != "c":
        raise TypeError(
            "jacfwd with holomorphic=True requires outputs with complex dtype, but got "
            f"{array.dtype.name}."
        )


def jacrev(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False,
) -> Callable:  # fmt: skip
    """The Jacobian, row by row: results' trees of arguments' trees of [*out, *in]."""
    check_callable(fun)

    def jacfun(*args: Any, **kwargs: Any) -> Any:
        chosen, of = picked(fun, argnums, args, kwargs)
        flat = Flat(of, chosen, has_aux=has_aux)
        for a in flat.given:
            _check_input("jacrev", a, holomorphic, allow_int)
        reverse = _Reverse(flat)
        outs = [wrap(o, w) for o, w in zip(reverse.outs, flat.weak, strict=True)]
        for y in outs:
            _check_output("jacrev", y, holomorphic)

        def pull(*cotangents: Array) -> list:
            return [x for x in reverse([c._value for c in cotangents]) if not is_float0(x)]

        rows = iter(vmap(pull)(*_basis(outs)) if outs else ())
        columns = [
            _parts(next(rows), outs, axis_last=False)
            if moves(a)
            else [np.zeros((*o.shape, *a.shape), float0) for o in outs]
            for a in flat.given
        ]
        form = flat.of.children[0]
        one = form.children[0] if not isinstance(argnums, (tuple, list)) else form
        answers = [one.build(iter([c[i] for c in columns])) for i in range(len(outs))]
        answer = flat.form.build(iter(answers))
        return (answer, reverse.aux) if has_aux else answer

    return named(jacfun, fun)


def hessian(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:  # fmt: skip
    """Second derivatives: forward over reverse."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


__all__ = [
    "as_array", "float0", "grad", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip
