"""Adafactor and Muon: updates that look at a parameter as a matrix, not element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..backends.device.platform import platform_of
from ..core import Tensor
from ..core.tensor import beside
from ..core.types import dtypes
from ..errors import ConfigError, DTypeError
from ..ops.declare import primitive
from .algorithms import Choice
from .groups import given, take
from .optimizer import Optimizer


def _wide(a: np.ndarray) -> np.ndarray:
    """``a`` in the type that it is computed in: half precision in float32."""
    return a if a.dtype.itemsize >= 4 else a.astype(np.float32)


def _norm(a: Any) -> Any:
    """A number; of an accelerator's array one of no axes, which the host does not wait for."""
    flat = a.reshape(-1)
    if platform_of(a) is not None:
        return np.sqrt(np.dot(flat, flat))
    return math.sqrt(float(np.dot(flat, flat)))


def _root_mean_square(a: Any) -> Any:
    return _norm(a) / math.sqrt(a.size) if a.size else 0.0


def _at_least(low: float, x: Any) -> Any:
    return max(low, x) if isinstance(x, float) else np.maximum(x, x.dtype.type(low))


def _lerp(a: np.ndarray, target: np.ndarray, weight: float) -> np.ndarray:
    """``a`` moved in place towards ``target``; gives the result in the type of ``target``."""
    wide = _wide(a)
    out = wide + weight * (target - wide)
    a[...] = out
    return _wide(a)


# --- Adafactor (Shazeer and Stern 2018) ----------------------------------------------------------
def _adafactor(
    p: Any, g: Any, row: Any, column: Any, step: np.ndarray, *, lr, beta2_decay, eps1, eps2, d,
    weight_decay, maximize,
) -> tuple:  # fmt: skip
    """``row`` and ``column`` are those of a matrix; of a vector both are its second moment."""
    t = float(step.item()) + 1.0
    step[...] = t
    if not p.size:
        return p, row, column, step
    wide, g = _wide(p), _wide(-g if maximize else g)
    floor = eps1 if eps1 >= 0 else dtypes.finfo(dtypes.of(p.dtype)).eps
    share = t**beta2_decay
    size = _at_least(eps2, _root_mean_square(wide)) * min(lr, 1.0 / math.sqrt(t))
    kept = wide * (1.0 - lr * weight_decay) if weight_decay else wide
    if p.ndim > 1:
        rows = _lerp(row, np.mean(g * g, -1, keepdims=True), share)
        columns = _lerp(column, np.mean(g * g, -2, keepdims=True), share)
        square = rows * columns / np.maximum(np.mean(rows, -2, keepdims=True), floor)
    else:
        square = _lerp(row, g * g, share)
    update = g / np.sqrt(np.maximum(square, floor * floor))
    p[...] = kept - size / _at_least(1.0, _root_mean_square(update) / d) * update
    return p, row, column, step


adafactor = primitive(
    "adafactor_step", _adafactor, "p g row column step", multi=True, mutates=(0, 2, 3, 4)
)


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern 2018): of a matrix's second moment only the means of rows and
    columns are kept. ``eps[0]`` None is the precision of the parameter's type."""

    by_elements = False

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, given(locals()))

    def check(self, values: dict[str, Any]) -> None:
        super().check(values)
        eps1, eps2 = values["eps"]
        for wrong, text in (
            (
                values["beta2_decay"] > 0,
                f"beta2_decay should be <= 0 but is: {values['beta2_decay']}",
            ),
            (eps1 is not None and eps1 < 0, f"epsilon1 should be >= 0 but is: {eps1}"),
            (eps2 < 0, f"epsilon2 should be >= 0 but is: {eps2}"),
            (values["d"] < 1, f"Clipping threshold d should be >= 1 but is: {values['d']}"),
        ):
            if wrong:
                raise ConfigError(f"Adafactor: {text}")

    def choose(self, group: dict[str, Any]) -> Choice:
        eps1, eps2 = group["eps"]
        hyper = take(group, "lr", "beta2_decay", "d", "weight_decay", "maximize")
        hyper |= {"eps1": -1.0 if eps1 is None else eps1, "eps2": eps2}
        return adafactor, ("row_var", "col_var", "step"), hyper

    def _update(self, group: dict[str, Any]) -> None:
        _refuse_complex(self, group)
        super()._update(group)

    def _state_of(self, p: Tensor, names: tuple[str, ...], group: dict[str, Any]) -> list[Tensor]:
        if p.ndim > 1:  # a vector has none of these names, so it comes here at every step
            return super()._state_of(p, names, group)
        variance, step = super()._state_of(p, ("variance", "step"), group)
        return [variance, variance, step]

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        axis = {"row_var": -1, "col_var": -2}.get(name)
        if axis is None or p.is_meta:
            return super().initial(name, p, group)
        shape = list(p.shape)
        shape[axis] = 1
        return beside(p, np.zeros(shape, p.array.dtype))


def _refuse_complex(optimizer: Optimizer, group: dict[str, Any]) -> None:
    for p in group["params"]:
        if p._grad is not None and p.meta()[1].kind == "c":
            raise DTypeError(
                f"{type(optimizer).__name__} does not support complex parameters; use Adam for them"
            )


# --- Muon (Jordan et al. 2024) -------------------------------------------------------------------
_HALF = dtypes.bfloat16.np


def _rounded(a: np.ndarray) -> np.ndarray:
    """As bfloat16 would hold it, in float32."""
    return a.astype(_HALF).astype(np.float32)


def orthogonalized(g: np.ndarray, coefficients: tuple, steps: int, eps: float) -> np.ndarray:
    """About U V' of g = U S V', by a quintic Newton-Schulz iteration in bfloat16 precision. The
    singular values of the result lie in about 0.5..1.5."""
    a, b, c = coefficients
    x = _rounded(g)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    norm = _norm(x)
    norm = float(_rounded(np.asarray(norm))) if isinstance(norm, float) else _rounded(norm)
    x = _rounded(x / _at_least(eps, norm))
    for _ in range(steps):
        gram = _rounded(x @ x.T)
        x = _rounded(a * x + _rounded(b * gram + c * (gram @ gram)) @ x)
    return x.T if tall else x


def _muon(
    p: Any, g: Any, buf: Any, *, lr, size, weight_decay, momentum, nesterov, a, b, c, steps, eps
) -> tuple:
    wide = _wide(g)
    held = _lerp(buf, wide, 1.0 - momentum)
    update = wide + momentum * (held - wide) if nesterov else held
    update = orthogonalized(update, (a, b, c), int(steps), eps)
    rows, columns = p.shape
    ratio = math.sqrt(max(1.0, rows / columns)) if size else 0.2 * math.sqrt(max(rows, columns))
    p[...] = _wide(p) * (1.0 - lr * weight_decay) - lr * ratio * update
    return p, buf


muon = primitive("muon_step", _muon, "p g buf", multi=True, mutates=(0, 2))


class Muon(Optimizer):
    """Momentum, orthogonalized (Jordan et al. 2024); for matrices only.

    ``adjust_lr_fn`` "original" (the default) multiplies the rate by sqrt(max(1, rows / columns)),
    "match_rms_adamw" by 0.2 sqrt(max(rows, columns)) (Liu et al. 2025).
    """

    by_elements = False

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, given(locals()))
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ConfigError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{list(p.shape)}; give the others to AdamW"
                    )

    def check(self, values: dict[str, Any]) -> None:
        super().check(values)
        if values["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ConfigError(
                f"Muon: Adjust learning rate function {values['adjust_lr_fn']} is not supported; "
                "give 'original' or 'match_rms_adamw'"
            )
        if values["ns_steps"] >= 100 or len(values["ns_coefficients"]) != 3:
            raise ConfigError(
                f"Muon: ns_steps={values['ns_steps']}, ns_coefficients="
                f"{values['ns_coefficients']} given; needed fewer than 100 steps, 3 coefficients"
            )

    def choose(self, group: dict[str, Any]) -> Choice:
        a, b, c = group["ns_coefficients"]
        hyper = take(group, "lr", "weight_decay", "momentum", "nesterov", "eps")
        original = group["adjust_lr_fn"] != "match_rms_adamw"
        hyper |= {"a": a, "b": b, "c": c, "steps": group["ns_steps"], "size": original}
        return muon, ("momentum_buffer",), hyper

    def _update(self, group: dict[str, Any]) -> None:
        _refuse_complex(self, group)
        super()._update(group)
