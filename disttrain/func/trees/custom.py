"""``custom_vjp``, ``custom_jvp`` and ``checkpoint`` of functions of trees, over ``func.custom``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from ...errors import EscapedValue
from ...ops.functions.creation import create
from ..custom import Rules, apply
from ..jvp import jvp as push_forward
from ..reverse import vjp as pull_back_of
from ..structured_bodies import Border, aval
from .derivatives import conjugate
from .flat import Taken, check_callable, is_traced, moves, placed, tangent_of
from .programs import Programs


class Custom:
    """What both have in common: arguments by place, and which of them are not differentiated."""

    border: Border
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
            for t in Taken(self.border).values(fixed):
                if is_traced(t) or t.graph_node() is not None:
                    raise EscapedValue(_TRACED_NONDIFF.format(self.border.api.upper()))
        rest = [a for i, a in enumerate(args) if i not in apart]

        def whole(values: Sequence[Any]) -> list:
            left, kept = iter(values), iter(fixed)
            return [next(kept) if i in apart else next(left) for i in range(len(args))]

        return fixed, rest, whole


_TRACED_NONDIFF = (
    "Found a {0} Tracer object passed as an argument to a custom_vjp function in a position "
    "indicated by nondiff_argnums as non-differentiable. Tracers cannot be passed as "
    "non-differentiable arguments to custom_vjp functions; instead, nondiff_argnums should only be "
    "used for arguments that can't be or contain {0} tracers, e.g. function-valued arguments. In "
    "particular, array-valued arguments should typically not be indicated as nondiff_argnums."
)


class _Call:
    """One call: its arguments as leaves, and the form of its result, which is known afterwards."""

    def __init__(self, border: Border, whole: Callable, rest: list) -> None:
        self.border, self.whole = border, whole
        leaves, self.form = border.registry.flatten(tuple(rest))
        taken = [border.take(x) for x in leaves]
        self.tensors = [t for t, _ in taken]
        self.avals = [aval(t, weak) for t, weak in taken]
        self.out: Any = None
        self.weak: list[bool] = []

    def tree(self, tensors: Sequence[Any]) -> tuple:
        """The arguments that are differentiated, with these values."""
        give = self.border.give
        pairs = zip(tensors, self.avals, strict=True)
        made: tuple = self.form.build(iter([give(t, a.weak) for t, a in pairs]))
        return made

    def args(self, tensors: Sequence[Any]) -> list:
        """The arguments of the function, with these values."""
        found: list = self.whole(self.tree(tensors))
        return found

    def tangents(self, tensors: Sequence[Any], ts: Sequence[Any]) -> Any:
        """The tree of tangents of the arguments (None: zero)."""
        rows = [
            tangent_of(self.border, x, a.weak, _or_zeros(t, x))
            for x, a, t in zip(tensors, self.avals, ts, strict=True)
        ]
        return self.form.build(iter(rows))

    def cotangents(self, gs: Sequence[Tensor]) -> Any:
        """The tree of cotangents of the result. (The tape's are the conjugates.)"""
        pairs = zip(gs, self.weak, strict=True)
        rows = [tangent_of(self.border, g, w, _conjugate(g)) for g, w in pairs]
        return self.out.build(iter(rows))

    def outs(self, result: Any) -> list[Tensor]:
        """The values of a result, whose form is kept."""
        leaves, self.out = self.border.registry.flatten(result)
        taken = [self.border.take(x) for x in leaves]
        self.weak = [weak for _, weak in taken]
        return [t for t, _ in taken]

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """The result with these values."""
        pairs = zip(tensors, self.weak, strict=True)
        return self.out.build(iter([self.border.give(t, w) for t, w in pairs]))


def _or_zeros(t: Any, like: Tensor) -> Any:
    shape, kind = like.meta()
    return create.zeros(*shape, dtype=like.dtype) if t is None and moves(kind) else t


def _conjugate(g: Tensor) -> Tensor:
    return conjugate(g).resolve_conj() if g.dtype.is_complex else g


class CustomVjp(Custom):
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
        call, residuals = _Call(self.border, whole, rest), Taken(self.border)
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
            found = bwd(*fixed, residuals.tree(res), call.cotangents(gs))
            return _checked(call, found)

        rules = Rules(
            "custom_vjp_call", run, forward=forward, pull=pull, no_push=TypeError(_NO_JVP),
            params={"name": self.name, "bwd": bwd, "fwd": fwd, "symbolic_zeros": False},
        )  # fmt: skip
        return call.result(apply(rules, call.tensors))


_NO_JVP = "can't apply forward-mode autodiff (jvp) to a custom_vjp function."


def _checked(call: _Call, found: Any) -> list:
    """The values of what ``bwd`` gave, a cotangent for each leaf."""
    form, border, registry = call.form, call.border, call.border.registry
    ok = isinstance(found, (tuple, list)) and len(found) == len(form.parts)
    if not ok:
        raise TypeError(_odd_structure(call, found))
    try:
        parts = [registry.up_to(f, x) if x is not None else [None] * f.num_leaves
                 for f, x in zip(form.parts, found, strict=True)]  # fmt: skip
    except ValueError:
        raise TypeError(_odd_structure(call, found)) from None
    leaves = [x for part in parts for x in part]
    values: list[Any] = []
    for i, (g, x, like) in enumerate(zip(leaves, call.tensors, call.avals, strict=True)):
        if g is None or border.is_nothing(g) or not moves(like.dtype):
            values.append(None)
            continue
        value = border.take(g)[0]
        given = aval(value)
        if given.shape != like.shape:
            raise ValueError(
                "Custom VJP bwd rule must produce an output with the same type as the "
                "args tuple of "
                f"the primal function, but at output[{i}] the bwd rule produced an output of type "
                f"{given} corresponding to an input of type {like}, so the shapes do not match"
            )
        value = _conjugate(value)
        values.append(value if given.dtype == like.dtype else value.to(x.dtype))
    return values


def _odd_structure(call: _Call, found: Any) -> str:
    given = call.border.registry.flatten(tuple(found) if isinstance(found, list) else found)[1]
    return (
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure as "
        "the args tuple of the primal function, and in particular must produce a tuple of length "
        "equal to the number of arguments to the primal function, but got bwd output structure "
        f"{given} for primal input structure {call.form}."
    )


class CustomJvp(Custom):
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
                    total = term if total is None else self._summed(total, term)
            if total is None:
                leaves, form = self.border.registry.flatten(out)
                found = [create.zeros_like(self.border.take(x)[0]) for x in leaves]
                total = form.build(iter([self.border.give(x, False) for x in found]))
            return out, total

        self.jvp = jvp

    def _summed(self, one: Any, two: Any) -> Any:
        (a, form), (b, _) = map(self.border.registry.flatten, (one, two))
        return form.build(iter([x + y for x, y in zip(a, b, strict=True)]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise AttributeError(
                f"No JVP defined for custom_jvp function {self.name} using defjvp."
            )
        args = self.positional(args, kwargs)
        fixed, rest, whole = self.parts(args)
        call, rule = _Call(self.border, whole, rest), self.jvp

        def run(*xs: Any) -> list[Tensor]:
            return call.outs(self.fun(*call.args(xs)))

        def push(xs: Sequence, ts: Sequence) -> tuple[list[Tensor], list[Any]]:
            return self._checked(call, rule(*fixed, call.tree(xs), call.tangents(xs, ts)))

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
        leaves, form = self.border.registry.flatten(moved)
        values = call.outs(outs)
        if form != call.out:
            raise TypeError(
                f"Custom JVP rule {name} for function {self.name} must produce primal and tangent "
                f"outputs with equal container (pytree) structures, but got "
                f"{call.out} and {form} respectively."
            )
        found: list[Any] = []
        for out, leaf in zip(values, leaves, strict=True):
            like = aval(out)
            if not moves(like.dtype):
                found.append(None)
                continue
            t = self.border.take(leaf)[0]
            if not aval(t).matches(like):
                raise TypeError(
                    "Custom JVP rule must produce primal and tangent outputs with corresponding "
                    f"shapes and dtypes. Expected {like} (tangent type of {like}) but got "
                    f"{aval(t)}."
                )
            found.append(t)
        return values, found


def recomputed(programs: Programs, prevent_cse: bool = True) -> Callable:
    """A function of which backward keeps the arguments, and computes it once more."""

    @functools.wraps(programs.fun)
    def fun_remat(*args: Any, **kwargs: Any) -> Any:
        call = programs.kind(args, kwargs)
        call = call._replace(key=("checkpoint", call.key))
        program = programs.staged(call, "checkpoint / remat")
        body, consts = program.staged.body, program.staged.consts
        rules = Rules(
            "checkpoint", body,
            pull=lambda res, gs, xs: _pulled_back(body, gs, xs),
            push=lambda xs, ts: _pushed_along(body, xs, ts),
            params={"name": program.name, "policy": None, "prevent_cse": prevent_cse},
        )  # fmt: skip
        values = [programs.border.take(v)[0] for v in call.values]
        return program.result(apply(rules, [*consts, *values]))

    return fun_remat


def _pulled_back(body: Callable, gs: Sequence, xs: Sequence) -> list:
    """The cotangents of the arguments of ``body``, computed anew."""
    places = [i for i, x in enumerate(xs) if moves(x.meta()[1])]
    found: list = [None] * len(xs)
    outs, pull = pull_back_of(lambda *v: body(*placed(xs, places, v)), *[xs[i] for i in places])
    given = [g if o.dtype.is_floating_point or o.dtype.is_complex else create.zeros_like(o)
             for g, o in zip(gs, outs, strict=True)]  # fmt: skip
    for i, g in zip(places, pull(given), strict=True):
        found[i] = g
    return found


def _pushed_along(body: Callable, xs: Sequence, ts: Sequence) -> tuple[list, list]:
    """Results and tangents of ``body``."""
    places = [i for i, t in enumerate(ts) if t is not None]
    primals = tuple(xs[i] for i in places)
    return push_forward(
        lambda *v: body(*placed(xs, places, v)), primals, tuple(ts[i] for i in places)
    )
