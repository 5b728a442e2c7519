"""``custom_vjp``, ``custom_jvp`` and ``checkpoint``: JAX's conventions over ``func.custom``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import disttrain as dt

from ... import func
from ...core.tensor import Tensor
from ...func.custom import Rules, apply
from . import tree
from .array import Array, wrap
from .errors import UnexpectedTracerError, short
from .flat import as_array, check_callable, is_float0, moves, no_tangent
from .jit import Jitted
from .tracing import is_traced

_registry = tree.default_registry


class _Custom:
    """What both have in common: arguments by place, and which of them are not differentiated."""

    kind = ""

    def __init__(
        self, fun: Callable, nondiff_argnums: Sequence[int] | int = (),
        nondiff_argnames: Sequence[str] | str = (),
    ) -> None:  # fmt: skip
        check_callable(fun)
        functools.update_wrapper(self, fun, updated=())  # type: ignore[arg-type]
        self.fun = fun
        nums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        names = (
            (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        )
        if names:
            places = list(inspect.signature(fun).parameters)
            nums = tuple(sorted({*nums, *(places.index(n) for n in names)}))
        self.nondiff_argnums = nums

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.fun, "__name__", str(self.fun))

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def positional(self, args: tuple, kwargs: dict) -> tuple:
        """The arguments by place, with defaults."""
        try:
            bound = inspect.signature(self.fun).bind(*args, **kwargs)
        except ValueError:
            return args
        except TypeError as error:
            raise TypeError(
                f"The input arguments to the {self.kind}-decorated function {self.name} could not "
                f"be resolved to positional-only arguments. Binding failed with the error:\n{error}"
            ) from None
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"The input arguments to the {self.kind}-decorated function {self.name} could not "
                f"be resolved to positional-only arguments: {list(bound.kwargs)} are keywords"
            )
        return bound.args

    def parts(self, args: tuple) -> tuple[list, list, Callable]:
        """The arguments that are not differentiated, the others, and how all are put together."""
        apart = {n % len(args) for n in self.nondiff_argnums if -len(args) <= n < len(args)}
        fixed = [args[i] for i in sorted(apart)]
        if self.kind == "custom_vjp":
            for leaf in _registry.flatten(fixed)[0]:
                if isinstance(leaf, Array) and (
                    is_traced(leaf._value) or leaf._value.graph_node() is not None
                ):
                    raise UnexpectedTracerError(_TRACED_NONDIFF)
        rest = [a for i, a in enumerate(args) if i not in apart]

        def whole(values: Sequence[Any]) -> list:
            left, kept = iter(values), iter(fixed)
            return [next(kept) if i in apart else next(left) for i in range(len(args))]

        return fixed, rest, whole


_TRACED_NONDIFF = (
    "Found a JAX Tracer object passed as an argument to a custom_vjp function in a position "
    "indicated by nondiff_argnums as non-differentiable. Tracers cannot be passed as "
    "non-differentiable arguments to custom_vjp functions; instead, nondiff_argnums should only be "
    "used for arguments that can't be or contain JAX tracers, e.g. function-valued arguments. In "
    "particular, array-valued arguments should typically not be indicated as nondiff_argnums."
)


class _Call:
    """One call: its arguments as leaves, and the form of its result, which is known afterwards."""

    def __init__(self, whole: Callable, rest: list) -> None:
        leaves, self.form = _registry.flatten(tuple(rest))
        self.given = [as_array(x) for x in leaves]
        self.whole = whole
        self.out: Any = None
        self.weak: list[bool] = []

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments' values."""
        return [a._value for a in self.given]

    def arrays(self, tensors: Sequence[Any]) -> list[Array]:
        """Values of the arguments as arrays."""
        return [wrap(t, a.weak_type) for t, a in zip(tensors, self.given, strict=True)]

    def args(self, tensors: Sequence[Any]) -> list:
        """The arguments of the function, with these values."""
        return self.whole(self.form.build(iter(self.arrays(tensors))))

    def outs(self, result: Any) -> list[Tensor]:
        """The values of a result, whose form is kept."""
        leaves, self.out = _registry.flatten(result)
        arrays = [as_array(x) for x in leaves]
        self.weak = [a.weak_type for a in arrays]
        return [a._value for a in arrays]

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """The result with these values."""
        pairs = zip(tensors, self.weak, strict=True)
        return self.out.build(iter([wrap(t, w) for t, w in pairs]))


class custom_vjp(_Custom):  # noqa: N801  (JAX's name)
    """A function whose derivative in reverse mode is told by ``defvjp(fwd, bwd)``."""

    kind = "custom_vjp"
    fwd: Callable | None = None
    bwd: Callable | None = None

    def defvjp(
        self,
        fwd: Callable,
        bwd: Callable,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """``fwd(*args)`` gives (result, residuals), ``bwd(residuals, g)`` a cotangent for each
        argument; those in ``nondiff_argnums`` come first."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(
                f"No VJP defined for custom_vjp function {self.name} using defvjp."
            )
        args = self.positional(args, kwargs)
        fixed, rest, whole = self.parts(args)
        call, residuals = _Call(whole, rest), _Residuals()
        fwd, bwd = self.fwd, self.bwd

        def run(*xs: Any) -> list[Tensor]:
            return call.outs(self.fun(*call.args(xs)))

        def forward(*xs: Any) -> tuple[list[Tensor], list[Tensor]]:
            pair = fwd(*call.args(xs))
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                name = getattr(fwd, "__name__", str(fwd))
                raise TypeError(
                    f"Custom VJP fwd rule {name} for function {self.name} must produce a "
                    f"pair (list "
                    "or tuple of length two) where the first element represents the primal output "
                    f"(equal to those of the custom_vjp-decorated function {self.name}) and the "
                    "second element represents residuals (i.e. values stored from the forward pass "
                    f"for use on the backward pass), but instead of a pair the fwd rule {name} "
                    f"produced {pair}."
                )
            outs, res = pair
            return call.outs(outs), residuals.values(res)

        def pull(res: Sequence, gs: Sequence, xs: Sequence) -> list:
            g = call.out.build(iter(_cotangents(call, gs)))
            found = bwd(*fixed, residuals.tree(res), g)
            return _checked(call, found)

        rules = Rules(
            "custom_vjp_call", run, forward=forward, pull=pull, no_push=TypeError(_NO_JVP),
            params={"name": self.name, "bwd": bwd, "fwd": fwd, "symbolic_zeros": False},
        )  # fmt: skip
        return call.result(apply(rules, call.tensors))


_NO_JVP = "can't apply forward-mode autodiff (jvp) to a custom_vjp function."


def _cotangents(call: _Call, gs: Sequence[Tensor]) -> list[Any]:
    found = [wrap(g, w) for g, w in zip(gs, call.weak, strict=True)]
    return [_conjugated(a) if moves(a) else no_tangent(a) for a in found]


def _conjugated(a: Array) -> Array:
    """The tape's cotangents are the conjugates of JAX's."""
    return wrap(dt.conj(a._value).resolve_conj(), a.weak_type) if a.dtype.kind == "c" else a


class _Residuals:
    """A tree of which the Arrays are taken out."""

    def values(self, res: Any) -> list[Tensor]:
        """Its Arrays' values."""
        self.leaves, self.form = _registry.flatten(res)
        return [x._value for x in self.leaves if isinstance(x, Array)]

    def tree(self, values: Sequence[Tensor]) -> Any:
        """The tree with these values."""
        left = iter(values)
        return self.form.build(
            iter([wrap(next(left), x.weak_type) if isinstance(x, Array) else x
                  for x in self.leaves])
        )  # fmt: skip


def _checked(call: _Call, found: Any) -> list:
    """The values of what ``bwd`` gave, a cotangent for each leaf."""
    form = call.form
    ok = isinstance(found, (tuple, list)) and len(found) == len(form.parts)
    if not ok:
        raise TypeError(_odd_structure(found, form))
    try:
        parts = [_registry.up_to(f, x) if x is not None else [None] * f.num_leaves
                 for f, x in zip(form.parts, found, strict=True)]  # fmt: skip
    except ValueError:
        raise TypeError(_odd_structure(found, form)) from None
    leaves = [x for part in parts for x in part]
    values: list[Any] = []
    for i, (g, like) in enumerate(zip(leaves, call.given, strict=True)):
        if g is None or is_float0(g) or not moves(like):
            values.append(None)
            continue
        array = as_array(g)
        if array.shape != like.shape:
            raise ValueError(
                "Custom VJP bwd rule must produce an output with the same type as the "
                "args tuple of "
                f"the primal function, but at output[{i}] the bwd rule produced an output of type "
                f"{short(array)} corresponding to an input of type {short(like)}, so the shapes do "
                "not match"
            )
        value = _conjugated(array)._value
        values.append(value if array.dtype == like.dtype else value.to(like._value.dtype))
    return values


def _odd_structure(found: Any, form: Any) -> str:
    given = tree.tree_structure(tuple(found) if isinstance(found, list) else found)
    return (
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure as "
        "the args tuple of the primal function, and in particular must produce a tuple of length "
        "equal to the number of arguments to the primal function, but got bwd output structure "
        f"{given} for primal input structure {form}."
    )


class custom_jvp(_Custom):  # noqa: N801  (JAX's name)
    """A function whose derivative is told by ``defjvp``."""

    kind = "custom_jvp"
    jvp: Callable | None = None

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """``jvp(primals, tangents)`` gives (result, tangent); ``nondiff_argnums`` come first."""
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """One rule for each argument, ``jvp(tangent, result, *primals)``; None: no derivative."""

        def jvp(primals: tuple, tangents: tuple) -> tuple:
            out = self(*primals)
            total = None
            for rule, t in zip(jvps, tangents, strict=True):
                if rule is not None:
                    term = rule(t, out, *primals)
                    total = (
                        term if total is None else tree.tree_map(lambda a, b: a + b, total, term)
                    )
            if total is None:
                total = tree.tree_map(lambda x: wrap(dt.zeros_like(as_array(x)._value)), out)
            return out, total

        self.jvp = jvp

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise AttributeError(
                f"No JVP defined for custom_jvp function {self.name} using defjvp."
            )
        args = self.positional(args, kwargs)
        fixed, rest, whole = self.parts(args)
        call, rule = _Call(whole, rest), self.jvp

        def run(*xs: Any) -> list[Tensor]:
            return call.outs(self.fun(*call.args(xs)))

        def push(xs: Sequence, ts: Sequence) -> tuple[list[Tensor], list[Any]]:
            primals = call.form.build(iter(call.arrays(xs)))
            tangents = call.form.build(iter([_or_zeros(t, a) for t, a in zip(ts, call.arrays(xs))]))
            pair = rule(*fixed, primals, tangents)
            return self._checked(call, pair)

        rules = Rules(
            "custom_jvp_call", run, push=push,
            params={"name": self.name, "jvp": rule, "symbolic_zeros": False},
        )  # fmt: skip
        return call.result(apply(rules, call.tensors))

    def _checked(self, call: _Call, pair: Any) -> tuple[list[Tensor], list[Any]]:
        name = getattr(self.jvp, "__name__", str(self.jvp))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"Custom JVP rule {name} for function {self.name} must produce a pair "
                f"(list or tuple "
                f"of length two) representing primal and tangent outputs, but got {pair}."
            )
        outs, moved = pair
        leaves, form = _registry.flatten(moved)
        values = call.outs(outs)
        if form != call.out:
            raise TypeError(
                f"Custom JVP rule {name} for function {self.name} must produce primal and tangent "
                f"outputs with equal container (pytree) structures, but got "
                f"{call.out} and {form} respectively."
            )
        found: list[Any] = []
        for out, w, leaf in zip(values, call.weak, leaves, strict=True):
            like = wrap(out, w)
            if not moves(like):
                found.append(None)
                continue
            t = as_array(leaf)
            if t.shape != like.shape or t.dtype != like.dtype:
                raise TypeError(
                    "Custom JVP rule must produce primal and tangent outputs with corresponding "
                    f"shapes and dtypes. Expected {short(like)} (tangent type of "
                    f"{short(like)}) but "
                    f"got {short(t)}."
                )
            found.append(t._value)
        return values, found


def _or_zeros(t: Any, like: Array) -> Any:
    if not moves(like):
        return no_tangent(like)
    return wrap(dt.zeros(like.shape, dtype=like._value.dtype) if t is None else t, like.weak_type)


# --- checkpoint -----------------------------------------------------------------------------------
def checkpoint(
    fun: Callable | None = None, *, prevent_cse: bool = True, policy: Callable | None = None,
    static_argnums: int | Sequence[int] = (), concrete: bool = False,
) -> Any:  # fmt: skip
    """``fun``, of which backward keeps the arguments, and computes it once more. (Policies are
    taken, and all is computed once more: what is saved are results' bits, not memory.)"""
    if fun is None:
        return functools.partial(
            checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums
        )
    jitted = Jitted(fun, static_argnums=static_argnums) if callable(fun) else None

    @functools.wraps(fun)
    def fun_remat(*args: Any, **kwargs: Any) -> Any:
        if jitted is None:
            raise TypeError(f"Expected a callable value, got {fun!r}")
        kind = jitted.kind(args, kwargs)
        trace = jitted.staged(kind, "checkpoint / remat")
        body, consts = trace.staged.body, trace.staged.consts

        def pull(res: Sequence, gs: Sequence, xs: Sequence) -> list:
            return _pulled_back(body, gs, xs)

        def push(xs: Sequence, ts: Sequence) -> tuple[list, list]:
            return _pushed_along(body, xs, ts)

        rules = Rules(
            "checkpoint", body, pull=pull, push=push,
            params={"name": trace.name, "policy": None, "prevent_cse": prevent_cse},
        )  # fmt: skip
        values = [as_array(v)._value for v in kind.values]
        return trace.result(apply(rules, [*consts, *values]))

    return fun_remat


def _pulled_back(body: Callable, gs: Sequence, xs: Sequence) -> list:
    """The cotangents of the arguments of ``body``, computed anew."""
    places = [i for i, x in enumerate(xs) if x.meta()[1].kind in "fcV"]
    found: list = [None] * len(xs)
    outs, pull = func.vjp(lambda *v: body(*_among(xs, places, v)), *[xs[i] for i in places])
    given = [g if o.dtype.is_floating_point or o.dtype.is_complex else dt.zeros_like(o)
             for g, o in zip(gs, outs, strict=True)]  # fmt: skip
    for i, g in zip(places, pull(given), strict=True):
        found[i] = g
    return found


def _pushed_along(body: Callable, xs: Sequence, ts: Sequence) -> tuple[list, list]:
    """Results and tangents of ``body``."""
    places = [i for i, t in enumerate(ts) if t is not None]
    primals = tuple(xs[i] for i in places)
    return func.jvp(lambda *v: body(*_among(xs, places, v)), primals, tuple(ts[i] for i in places))


def _among(xs: Sequence, places: Sequence[int], values: Sequence) -> list:
    full = list(xs)
    for i, v in zip(places, values, strict=True):
        full[i] = v
    return full


class checkpoint_policies:  # noqa: N801  (JAX's name)
    """Which results ``checkpoint`` is to keep: names that are taken."""

    everything_saveable = staticmethod(lambda *_, **__: True)
    nothing_saveable = staticmethod(lambda *_, **__: False)
    dots_saveable = checkpoint_dots = staticmethod(lambda *_, **__: True)
    dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = dots_saveable
    save_only_these_names = staticmethod(lambda *_: lambda *_, **__: False)
    save_any_names_but_these = staticmethod(lambda *_: lambda *_, **__: True)
    save_anything_except_these_names = save_any_names_but_these


__all__ = [
    "checkpoint", "checkpoint_policies", "custom_jvp", "custom_vjp",
]  # fmt: skip
