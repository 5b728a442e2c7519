"""L-BFGS (Nocedal and Wright 2006, algorithm 7.4), with PyTorch's arguments, tests and state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray, Located
from ..backends.device.platform import platform_of
from ..core import Tensor, enable_grad, no_grad, wrap
from ..core.types.device import located, on
from ..core.writes import touched
from ..errors import ConfigError, DeviceError
from .line_search import Point, strong_wolfe
from .optimizer import Optimizer

_CURVED = 1e-10  # a step along which the gradient changes by less tells nothing of the curvature


class LBFGS(Optimizer):
    """Limited-memory BFGS. ``step(closure)`` makes up to ``max_iter`` iterations and calls the
    closure for each, and more often with ``line_search_fn="strong_wolfe"``.

    All parameters are one vector here: there can be only one group, and the state is kept under
    the first parameter.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ConfigError(
                "LBFGS doesn't support per-parameter options (parameter groups); "
                f"{len(self.param_groups)} groups were given"
            )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimize; gives what the closure gave at the point where the step began."""
        if closure is None:
            raise ConfigError("LBFGS.step: a closure is needed, which computes the loss anew")
        run = _Run(self, enable_grad()(closure))
        with no_grad(), on(run.params[0].device):
            first = run.closure()
            run.state["func_evals"] += 1
            run.iterate(float(first))
        return first


class _Run:
    """One call of ``step``: the parameters as one vector, and what is remembered between calls."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any]) -> None:
        self.closure = closure
        self.group = optimizer.param_groups[0]
        self.params = self.group["params"]
        if any(p.is_meta for p in self.params):
            raise DeviceError("LBFGS: a parameter is on the meta device; it has no values to move")
        first = self.params[0].device
        for i, p in enumerate(self.params):
            if p.device != first:
                raise DeviceError(
                    "LBFGS: Expected all tensors to be on the same device, as they are one vector: "
                    f"parameter 0 is on {first}, parameter {i} on {p.device}; move one with .to()"
                )
        self.there = located(first)
        self.state = optimizer.state[self.params[0]]
        self.state.setdefault("func_evals", 0)
        self.state.setdefault("n_iter", 0)

    # -- parameters as a vector ----------------------------------------------------------------

    def gradient(self) -> np.ndarray:
        """All gradients, one after the other; zeros where there is none."""
        return np.concatenate([_pairs(_gradient(p)) for p in self.params])

    def move(self, t: float, direction: np.ndarray) -> None:
        """Add ``t * direction`` to the parameters."""
        start = 0
        for p in self.params:
            a = _raw(p.array)
            count = a.size * (2 if a.dtype.kind == "c" else 1)
            part = direction[start : start + count] * direction.dtype.type(t)
            kind = np.result_type(part, a.dtype) if a.dtype.kind == "c" else None
            a += (part.view(kind) if kind is not None else part).reshape(a.shape).astype(a.dtype)
            touched(p)
            start += count

    # -- iterations ----------------------------------------------------------------------------

    def iterate(self, loss: float) -> None:
        """Iterate from the present point, whose loss and gradients are known, and remember."""
        g = self.gradient()
        if not g.size or _number(np.abs(g).max()) <= self.group["tolerance_grad"]:
            return
        memory = _Memory(self.state, self.group["history_size"], g, self.there)
        evaluations = 1
        for n in range(1, self.group["max_iter"] + 1):
            self.state["n_iter"] += 1
            memory.turn(g, first=self.state["n_iter"] == 1)
            before, memory.loss = loss, loss
            t, slope = self._first_step(g), _number(g @ memory.direction)
            memory.t = t
            if slope > -self.group["tolerance_change"]:
                break
            start = Point(0.0, loss, slope, g)
            limit = self.group["max_eval"] - evaluations
            loss, g, memory.t, calls = self._go(
                start, t, memory.direction, limit, n == self.group["max_iter"]
            )
            evaluations += calls
            self.state["func_evals"] += calls
            if self._ends(n, evaluations, g, memory.t * memory.direction, loss - before):
                break
        memory.keep(self.state)

    def _first_step(self, g: np.ndarray) -> float:
        lr, size = float(self.group["lr"]), _number(np.abs(g).sum())
        return lr / size if self.state["n_iter"] <= 1 and size > 1.0 else lr

    def _go(
        self, start: Point, t: float, direction: np.ndarray, limit: int, last: bool
    ) -> tuple[float, np.ndarray, float, int]:
        """Move along ``direction``. Gives the loss and the gradient there, the step size, and how
        often the closure was called."""
        name = self.group["line_search_fn"]
        if name is None:
            self.move(t, direction)
            if last:  # the next step begins with this very evaluation
                return start.value, start.gradient, t, 0
            return float(self.closure()), self.gradient(), t, 1
        if name != "strong_wolfe":
            raise ConfigError(f"LBFGS: line_search_fn={name!r}: only 'strong_wolfe' is supported")
        origin = [_raw(p.array).copy() for p in self.params]

        def ask(t: float) -> Point:
            self.move(t, direction)
            value, g = float(self.closure()), self.gradient()
            for p, a in zip(self.params, origin):
                _raw(p.array)[...] = a
                touched(p)
            return Point(t, value, _number(g @ direction), g)

        widest = _number(np.abs(direction).max())
        narrow = self.group["tolerance_change"] / widest if widest else math.inf
        found, calls = strong_wolfe(ask, start, t, narrow, limit)
        self.move(found.t, direction)
        return found.value, found.gradient, found.t, calls

    def _ends(
        self, n: int, evaluations: int, g: np.ndarray, moved: np.ndarray, gained: float
    ) -> bool:
        group = self.group
        return bool(
            n == group["max_iter"]
            or evaluations >= group["max_eval"]
            or _number(np.abs(g).max()) <= group["tolerance_grad"]
            or _number(np.abs(moved).max()) <= group["tolerance_change"]
            or abs(gained) < group["tolerance_change"]
        )


class _Memory:
    """The last steps and how the gradient changed along them: an inverse Hessian, by products."""

    def __init__(self, state: dict[str, Any], size: int, g: Any, there: Located | None) -> None:
        self.size, self.there = size, there
        self.changes = [_raw(t.array) for t in state.get("old_dirs") or ()]
        self.steps = [_raw(t.array) for t in state.get("old_stps") or ()]
        self.scales = [float(x) for x in state.get("ro") or ()]
        self.diagonal = float(state.get("H_diag", 1.0))
        self.shares = [None if x is None else float(x) for x in state.get("al") or ()]
        self.t, self.loss = state.get("t"), state.get("prev_loss")
        self.direction = _raw(state["d"].array) if state.get("d") is not None else -g
        before = state.get("prev_flat_grad")
        self.gradient = None if before is None else _raw(before.array)

    def turn(self, g: np.ndarray, first: bool) -> None:
        """Choose the direction in which to go from a point with gradient ``g``."""
        if first:
            self.changes, self.steps, self.scales, self.diagonal = [], [], [], 1.0
            self.direction = -g
        else:
            self._learn(g)
            self.direction = self._descent(g)
        self.gradient = g.copy()

    def _learn(self, g: np.ndarray) -> None:
        change, step = g - self.gradient, self.direction * self.direction.dtype.type(self.t)
        curvature = _number(change @ step)
        if curvature <= _CURVED:
            return
        if len(self.changes) == self.size:
            for held in (self.changes, self.steps, self.scales):
                held.pop(0)
        self.changes.append(change)
        self.steps.append(step)
        self.scales.append(1.0 / curvature)
        self.diagonal = curvature / _number(change @ change)

    def _descent(self, g: np.ndarray) -> np.ndarray:
        """The two loops of algorithm 7.4."""
        q = -g
        shares = []
        known = list(zip(self.changes, self.steps, self.scales))
        for change, step, scale in reversed(known):
            shares.append(_number(step @ q) * scale)
            q -= change * q.dtype.type(shares[-1])
        self.shares = [*reversed(shares), *(self.shares or [None] * self.size)[len(known) :]]
        q *= q.dtype.type(self.diagonal)
        for (change, step, scale), share in zip(known, reversed(shares)):
            q += step * q.dtype.type(share - _number(change @ q) * scale)
        return q

    def keep(self, state: dict[str, Any]) -> None:
        """Write everything into the optimizer's state."""
        if self.shares:
            state["al"] = [None if x is None else self._single(x) for x in self.shares]
        state["d"], state["t"] = self._kept(self.direction), self.t
        state["old_dirs"] = [self._kept(a) for a in self.changes]
        state["old_stps"] = [self._kept(a) for a in self.steps]
        state["ro"] = [self._single(x) for x in self.scales]
        state["H_diag"] = self._single(self.diagonal) if self.scales else 1
        state["prev_flat_grad"], state["prev_loss"] = self._kept(self.gradient), self.loss

    def _single(self, number: float) -> Tensor:
        return wrap(np.asarray(number, self.direction.dtype))

    def _kept(self, raw: Any) -> Tensor:
        return wrap(raw if self.there is None else self.there.hold(raw))


def _raw(array: DeviceArray | np.ndarray) -> Any:
    """What numpy's functions take: also of an accelerator, whose module answers them."""
    return array.data if isinstance(array, DeviceArray) else array


def _number(x: Any) -> float:
    """A result on the host, which waits for an accelerator here."""
    platform = platform_of(x)
    return float(x if platform is None else platform.download(x))


def _gradient(p: Tensor) -> Any:
    return np.zeros_like(_raw(p.array)) if p.grad is None else _raw(p.grad.array)


def _pairs(a: np.ndarray) -> np.ndarray:
    """As a vector of reals; half precision in float32."""
    flat = a.reshape(-1)
    flat = flat.astype(np.float32) if flat.dtype.itemsize < 4 else flat
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


__all__ = ["LBFGS"]
