"""Elementwise update rules as mutating primitives: one call changes a parameter and its state.

A rule takes the parameter, its gradient, its state (arrays like the parameter first, then single
numbers, ``step``, a count of updates, last) and hyperparameters by name. The state stands in
tensors so that a captured step goes on with it. Nothing is recorded for backward.

Each rule is an ``Update`` (what happens to every element; see ``backends/fused/updates.py``) and a
function that gives the numbers the update takes, from the count of updates and the hyperparameters.
Those functions use plain operators only, so they work on numbers and on Tensors alike
(``differentiable.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..backends.device.platform import platform_of
from ..backends.fused import updates as fused
from ..backends.lang.expr import Expr, where
from ..backends.lang.expr import max as largest
from ..backends.lang.kernel import COMPUTE
from ..backends.program import sets_of
from ..core import Primitive
from ..ops.declare import primitive
from .capturable import counted_there, update_there


class Rule(NamedTuple):
    """What stands behind a primitive: ``numbers(t, **hyperparameters)`` gives the scalars of the
    update; with ``moving`` (names of single numbers that change at every step) it is
    ``numbers(t, moving, **hyperparameters)`` -> (scalars, moving)."""

    update: fused.Update
    numbers: Callable[..., Any]
    counted: bool = True
    moving: tuple[str, ...] = ()


BEHIND: dict[Primitive, Rule] = {}  # filled below, then only read


def _rule(
    name: str,
    update: fused.Update,
    numbers: Callable[..., Any],
    counted: bool = True,
    moving: tuple[str, ...] = (),
) -> Primitive:
    """A primitive that changes its first argument and those after the gradient."""
    args = ("p", "g", *update.state, *moving, *(("step",) if counted else ()))
    rule = Rule(update, numbers, counted, moving)
    changes = (0, *range(2, len(args)))
    make = _moving if moving else _counted if counted else _plain

    last: tuple = ((), None)  # a replayed step asks for the same numbers for every parameter

    def forward(p: object, g: object, *state: object, **hyper: object) -> tuple:
        nonlocal last
        key, run = tuple(hyper.values()), last[1]
        if key != last[0] or run is None:
            run = make(rule, hyper)
            last = (key, run)
        run(p, g, *state)
        return (p, *state)

    def away(platform: object, *arrays: object, **hyper: object) -> tuple:
        together(prim, hyper)([arrays])
        return (arrays[0], *arrays[2:])

    prim = primitive(f"{name}_step", forward, " ".join(args), multi=True, mutates=changes)
    prim.on_device = away
    BEHIND[prim] = rule
    prim.together = functools.partial(together, prim)
    prim.grouped = functools.partial(grouped, prim)
    return prim


def prepared(prim: Primitive, hyper: dict[str, Any]) -> Callable[..., Any]:
    """``prim`` on arrays with these hyperparameters, ready for all parameters of a group."""
    rule = BEHIND.get(prim)
    if rule is None:
        return functools.partial(prim.forward, **hyper)
    return (_moving if rule.moving else _counted if rule.counted else _plain)(rule, hyper)


def grouped(prim: Primitive, sets: Sequence[Sequence[Any]]) -> Callable[[dict, Any], bool] | None:
    """``run(hyperparameters, gradients)``: ``prim`` for many parameters by one call; ``sets``:
    each parameter with its state, numpy's. It gives False, with nothing done, where they do not
    go together now: counts differ, gradients lie otherwise. None where they never do."""
    rule = BEHIND.get(prim)
    if rule is None or rule.moving or any(s[0].dtype != sets[0][0].dtype for s in sets):
        return None
    last = -1 if rule.counted else None
    counters = [s[-1] for s in sets] if rule.counted else None
    kind = sets[0][0].dtype
    if kind.name not in COMPUTE:
        return None
    whole = sets_of(rule.update.programs[kind].kernel, [s[:last] for s in sets], counters)
    if whole is None:
        return None

    def run(hyper: dict, gradients: Any) -> bool:
        count = 0 if counters is None else counters[0].item()
        return whole(gradients, count, rule.numbers(int(count) + 1, **hyper))

    return run


def together(prim: Primitive, hyper: dict[str, Any]) -> Callable[[Sequence[Sequence[Any]]], None]:
    """As ``prepared``, for (p, g, *state) of many parameters on accelerators, in few launches: one
    for those on one device that share a type and numbers. Counts and single numbers are numpy's, or
    the device's (``capturable.py``)."""
    rule = BEHIND.get(prim)
    if rule is None:
        return functools.partial(_one_by_one, functools.partial(prim.forward, **hyper))
    programs = rule.update.programs

    def run(sets: Sequence[Sequence[Any]]) -> None:
        if rule.counted and any(map(counted_there, sets)):
            update_there(rule, hyper, [s for s in sets if counted_there(s)], _real)
            sets = [s for s in sets if not counted_there(s)]
        alike: dict[tuple, list[tuple]] = {}
        for p, g, *state in sets:
            arrays, values = _given(rule, hyper, state)
            arguments = (*map(_real, (p, g, *arrays)), *values)
            platform = platform_of(p)
            assert platform is not None
            key = (platform, platform.index_of(p), arguments[0].dtype, values)
            alike.setdefault(key, []).append(arguments)
        for (platform, _, dtype, _), same in alike.items():
            platform.launch_many(programs[dtype].kernel, same)

    return run


def _one_by_one(each: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> None:
    for one in sets:
        each(*one)


def _given(rule: Rule, hyper: dict[str, Any], state: list[Any]) -> tuple[list[Any], tuple]:
    """The arrays and the numbers of one more step; the counts in ``state`` go on."""
    if not rule.counted:
        return state, tuple(rule.numbers(0, **hyper))
    *arrays, step = state
    t = int(step.item()) + 1
    step[...] = t
    if not rule.moving:
        return arrays, tuple(rule.numbers(t, **hyper))
    at = len(arrays) - len(rule.moving)
    arrays, singles = arrays[:at], arrays[at:]
    values, after = rule.numbers(t, [s[()] for s in singles], **hyper)
    for single, value in zip(singles, after):
        single[...] = value
    return arrays, tuple(map(float, values))


def _plain(rule: Rule, hyper: dict[str, Any]) -> Callable[..., None]:
    programs, values = rule.update.programs, rule.numbers(0, **hyper)

    def run(p: Any, g: object, *state: object) -> None:
        kind = p.dtype
        if kind.kind == "c":
            rule.update(*map(_real, (p, g, *state)), *values)
        else:
            program = programs[kind]
            program.fast(p, g, *state, *values) is None and program.slow(p, g, *state, *values)

    return run


def _counted(rule: Rule, hyper: dict[str, Any]) -> Callable[..., None]:
    programs = rule.update.programs
    known: dict[int, tuple] = {}

    def run(p: Any, g: object, *state: Any) -> None:
        *arrays, step = state
        t = int(step.item()) + 1
        step[...] = t
        values = known.get(t)
        if values is None:
            if len(known) > 8:
                known.clear()
            values = known[t] = rule.numbers(t, **hyper)
        kind = p.dtype
        if kind.kind == "c":
            rule.update(*map(_real, (p, g, *arrays)), *values)
        else:
            program = programs[kind]
            program.fast(p, g, *arrays, *values) is None and program.slow(p, g, *arrays, *values)

    return run


def _moving(rule: Rule, hyper: dict[str, Any]) -> Callable[..., None]:
    def run(p: object, g: object, *state: Any) -> None:
        *rest, step = state
        arrays, singles = rest[: -len(rule.moving)], rest[-len(rule.moving) :]
        t = int(step.item()) + 1
        step[...] = t
        values, after = rule.numbers(t, [s[()] for s in singles], **hyper)
        rule.update(*map(_real, (p, g, *arrays)), *values)
        for single, value in zip(singles, after):
            single[...] = value

    return run


def _real(a: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs of reals (..., 2), over the same memory."""
    if a.dtype.kind != "c":
        return a
    platform = platform_of(a)
    if platform is not None:
        strided = platform.xp.lib.stride_tricks.as_strided
        return strided(a.real, (*a.shape, 2), (*a.strides, a.itemsize // 2))
    return as_strided(a.real, (*a.shape, 2), (*a.strides, a.itemsize // 2))


# --- the numbers of each update ------------------------------------------------------------------
def _exact(x: Expr | float | np.generic) -> Any:
    """A number that was rounded as the state keeps it, as a float to go on with."""
    return x.item() if isinstance(x, np.generic) else x


def _kept(x: Expr | float) -> Any:
    """A new number as PyTorch hands it to the state, whatever type that has: in float32."""
    return float(np.float32(x)) if isinstance(x, float) else x


def _moments(
    beta1: float, beta2: float, lr: float, weight_decay: float, decoupled: bool, maximize: bool
):  # noqa: ANN202  (a tuple of numbers)
    """sign keep decay one_minus_beta1 beta2 one_minus_beta2"""
    keep = 1.0 - lr * weight_decay if decoupled else 1.0
    decay = 0.0 if decoupled else weight_decay
    return (-1.0 if maximize else 1.0, keep, decay, 1.0 - beta1, beta2, 1.0 - beta2)


def _adam(t: int, *, lr, beta1, beta2, eps, weight_decay, decoupled, maximize) -> tuple:
    return (
        *_moments(beta1, beta2, lr, weight_decay, decoupled, maximize),
        lr / (1.0 - beta1**t),
        1.0 / (1.0 - beta2**t) ** 0.5,
        eps,
    )


def _nadam(
    t: int, moving: list, *, lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled,
    maximize,
) -> tuple:  # fmt: skip
    now = beta1 * (1.0 - 0.5 * 0.96 ** (t * momentum_decay))
    then = beta1 * (1.0 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
    product = _exact(moving[0] * now)
    values = (
        *_moments(beta1, beta2, lr, weight_decay, decoupled, maximize),
        1.0 - beta2**t,
        eps,
        lr * (1.0 - now) / (1.0 - product),
        lr * then / (1.0 - product * then),
    )
    return values, [product]


def _radam(t: int, *, lr, beta1, beta2, eps, weight_decay, decoupled, maximize) -> tuple:
    correction2, longest = 1.0 - beta2**t, 2.0 / (1.0 - beta2) - 1.0
    length = longest - 2.0 * t * beta2**t / correction2
    size = lr / (1.0 - beta1**t)
    rectified = length > 5.0

    def rectify() -> Any:
        share = (length - 4.0) * (length - 2.0) / ((longest - 4.0) * (longest - 2.0))
        return size * correction2**0.5 * (share * longest / length) ** 0.5

    moments = _moments(beta1, beta2, lr, weight_decay, decoupled, maximize)
    if isinstance(rectified, Expr):
        return (*moments, eps, where(rectified, rectify(), size), where(rectified, 1.0, 0.0))
    return (*moments, eps, rectify() if rectified else size, 1.0 if rectified else 0.0)


def _adamax(t: int, *, lr, beta1, beta2, eps, weight_decay, maximize) -> tuple:
    sign = -1.0 if maximize else 1.0
    return sign, weight_decay, 1.0 - beta1, beta2, eps, lr / (1.0 - beta1**t)


def _sgd(t: int, *, lr, weight_decay, maximize) -> tuple:
    return -1.0 if maximize else 1.0, weight_decay, lr


def _momentum(t: int, *, lr, momentum, dampening, weight_decay, maximize) -> tuple:
    return -1.0 if maximize else 1.0, weight_decay, lr, momentum, 1.0 - dampening


def _adagrad(t: int, *, lr, lr_decay, eps, weight_decay, maximize) -> tuple:
    return lr / (1.0 + (t - 1) * lr_decay), eps, -1.0 if maximize else 1.0, weight_decay


def _adadelta(t: int, *, lr, rho, eps, weight_decay, maximize) -> tuple:
    return lr, rho, eps, -1.0 if maximize else 1.0, weight_decay


def _rmsprop(t: int, *, lr, alpha, eps, weight_decay, maximize, **momentum) -> tuple:
    return lr, alpha, eps, -1.0 if maximize else 1.0, weight_decay, *momentum.values()


def _asgd(t: int, moving: list, *, lr, lambd, alpha, t0, weight_decay, maximize) -> tuple:
    eta, average = map(_exact, moving)
    values = (-1.0 if maximize else 1.0, weight_decay, 1.0 - lambd * eta, eta, average)
    counted = t - t0
    average = largest(counted, 1.0) if isinstance(counted, Expr) else max(1.0, counted)
    return values, [_kept(lr / (1.0 + lambd * lr * t) ** alpha), _kept(1.0 / average)]


def _rprop(t: int, *, eta_minus, eta_plus, smallest, largest, maximize) -> tuple:
    return -1.0 if maximize else 1.0, eta_minus, eta_plus, smallest, largest


adam = _rule("adam", fused.ADAM[False], _adam)
amsgrad = _rule("amsgrad", fused.ADAM[True], _adam)
nadam = _rule("nadam", fused.NADAM, _nadam, moving=("mu_product",))
radam = _rule("radam", fused.RADAM, _radam)
adamax = _rule("adamax", fused.ADAMAX, _adamax)
sgd = _rule("sgd", fused.SGD[False, False], _sgd, counted=False)
momentum = _rule("momentum", fused.SGD[True, False], _momentum, counted=False)
nesterov = _rule("nesterov", fused.SGD[True, True], _momentum, counted=False)
adagrad = _rule("adagrad", fused.ADAGRAD, _adagrad)
adadelta = _rule("adadelta", fused.ADADELTA, _adadelta)
asgd = _rule("asgd", fused.ASGD, _asgd, moving=("eta", "mu"))
rprop = _rule("rprop", fused.RPROP, _rprop)
rmsprop = {
    (c, m): _rule(f"rmsprop{'_centered' * c}{'_momentum' * m}", fused.RMSPROP[c, m], _rmsprop)
    for c in (False, True)
    for m in (False, True)
}
