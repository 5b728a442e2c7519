"""Updates whose counts of steps lie on an accelerator: ``capturable=True``, so that a recorded step
goes on counting when it is replayed, and the host waits for nothing.

The numbers of an update are functions of the count and of the hyperparameters by plain operators.
Here they are run on expressions, which makes a kernel that counts and computes, for every parameter
(in few launches), those that change from step to step: in float64 in memory of the device, where
the update reads them. Hyperparameters may be tensors of the device, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backends.device.platform import platform_of
from ..backends.lang import expr as ex
from ..backends.lang.kernel import Array, Kernel, Loop, Scalar, Store, wide_type

_WIDE = "float64"


class Numbers:
    """How the numbers of one rule come from a count. ``moving``: those that go on from step to
    step, with their types; ``given``: names of hyperparameters that are numbers; ``there``: those
    that the device knows, with their types; ``fixed``: switches.

    ``changing``: which of the update's numbers depend on what the device knows. The kernel takes
    (step, *moving, *there, *changing, *given)."""

    def __init__(
        self, name: str, numbers: Any, moving: tuple[tuple[str, str], ...], given: tuple[str, ...],
        there: tuple[tuple[str, str], ...], fixed: tuple[tuple[str, bool], ...], wide: str,
    ) -> None:  # fmt: skip
        def read(what: str) -> ex.Expr:
            return ex.cast(ex.var(what), _WIDE)

        step = ex.var("step") + 1.0
        hyper = {**{n: ex.var(n) for n in given}, **{n: read(n) for n, _ in there}, **dict(fixed)}
        count = ex.cast(step, _WIDE)
        if moving:
            values, after = numbers(count, [read(m) for m, _ in moving], **hyper)
        else:
            values, after = numbers(count, **hyper), ()
        known_there = {"step", *(n for n, _ in (*moving, *there))}
        self.changing = tuple(
            k for k, v in enumerate(values)
            if isinstance(v, ex.Expr) and known_there & set(ex.variables(v))
        )  # fmt: skip
        names = [f"number{k}" for k in self.changing]
        params = [Array("step", "float32", writes=True)]
        params += [Array(m, dtype, writes=True) for m, dtype in moving]
        params += [Array(n, dtype) for n, dtype in there]
        params += [Array(n, wide, writes=True) for n in names]
        stores = [Store("step", step), *map(Store, [m for m, _ in moving], map(ex.as_expr, after))]
        stores += [Store(n, values[k]) for n, k in zip(names, self.changing)]
        used = {v for s in stores for v in ex.variables(s.value)}
        self.given = tuple(n for n in given if n in used)
        scalars = [Scalar(n, _WIDE) for n in self.given]
        self.kernel = Kernel(f"{name}_numbers", (*params, *scalars), (Loop(tuple(stores)),), True)


_numbers = functools.cache(Numbers)


def counted_there(one: Sequence[Any]) -> bool:
    """Whether the count, the last of (p, g, *state), is a device's array."""
    return platform_of(one[-1]) is not None


def update_there(
    rule: Any, hyper: Mapping[str, Any], sets: Sequence[Sequence[Any]], real: Callable[[Any], Any]
) -> None:
    """One step of ``sets``, (p, g, *state) each, all on the current device. ``real``: complex
    arrays as pairs."""
    platform = platform_of(sets[0][0])
    assert platform is not None
    there = {k: v for k, v in hyper.items() if platform_of(v) is not None}
    fixed = tuple((k, v) for k, v in hyper.items() if isinstance(v, bool))
    given = tuple(k for k in hyper if k not in there and k not in dict(fixed))
    kinds = tuple((k, v.dtype.name) for k, v in there.items())
    counts: dict[Numbers, list[tuple]] = {}
    updates = []
    plain: dict[str, Any] = {k: 1.0 if k in there else v for k, v in hyper.items()}
    for p, g, *state in sets:
        arrays = state[: len(rule.update.state)]
        singles, step = state[len(arrays) : -1], state[-1]
        whole = tuple(map(real, (p, g, *arrays)))
        wide = wide_type(whole[0].dtype.name)
        moving = tuple((m, s.dtype.name) for m, s in zip(rule.moving, singles))
        how = _numbers(rule.update.name, rule.numbers, moving, given, kinds, fixed, wide)
        one = step.shape
        made = [platform.empty(one, np.dtype(wide)) for _ in how.changing]
        shared = [v.reshape(one) for v in there.values()]
        numbers = tuple(float(hyper[n]) for n in how.given)
        counts.setdefault(how, []).append((step, *singles, *shared, *made, *numbers))
        full = list(_values(rule, plain))
        for k, array in zip(how.changing, made):
            full[k] = array
        updates.append((rule.update.programs[whole[0].dtype].kernel, (*whole, *full), how.changing))
    for how, many in counts.items():
        platform.launch_many(how.kernel, many)
    alike: dict[tuple, list[tuple]] = {}
    for kernel, arguments, changing in updates:
        if changing:  # it reads numbers of its own
            platform.launch(kernel, arguments)
        else:
            alike.setdefault((kernel, arguments[len(kernel.arrays) :]), []).append(arguments)
    for (kernel, _), sets in alike.items():
        platform.launch_many(kernel, sets)


def _values(rule: Any, plain: dict[str, Any]) -> Sequence[Any]:
    """The numbers of an update, of which those that change mean nothing."""
    if rule.moving:
        return rule.numbers(1, [0.5] * len(rule.moving), **plain)[0]
    return rule.numbers(1, **plain)
