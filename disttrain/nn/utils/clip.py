"""Clipping gradients by their norm or by value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ... import ops
from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...context import thread
from ...core import Tensor, no_grad, wrap
from ...core.gate import Tracer
from ...core.tensor import note_read
from ...core.types import dtypes
from ...core.types.device import HOST
from ...core.writes import touched
from ...errors import AutogradError, ConfigError
from ...ops.declare import primitive
from . import device_norms


def _tensors(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in _tensors(parameters) if p.grad is not None]


def norm_of(t: Tensor, p: float) -> float:
    """The p-norm of one tensor (0: how many elements are not 0); float16 and bfloat16 are summed
    in float32."""
    few = t.is_sparse and p >= 0  # zeros elsewhere change nothing
    a = t.coalesce().values().array if few else t.detach().array  # type: ignore[attr-defined]
    if isinstance(a, DeviceArray):
        note_read(t)
        a = a.to_host()
    if a.dtype.itemsize < 4 or a.dtype.kind == "V":
        a = a.astype(np.float32)
    if a.size == 0:
        return 0.0
    if p == 2:
        if a.dtype.kind != "c" and a.flags.c_contiguous:
            flat = a.reshape(-1)
            square = float(np.dot(flat, flat))
            if math.isfinite(square) and square > 1e-30:
                return math.sqrt(square)
        return float(np.linalg.norm(np.abs(a).astype(np.float64).reshape(-1)))
    if p == 0:
        return float(np.count_nonzero(a))
    size = np.abs(a)
    if p == math.inf:
        return float(size.max())
    if p == -math.inf:
        return float(size.min())
    return float(np.sum(size.astype(np.float64) ** p) ** (1.0 / p))


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of all tensors together, as a 0-d tensor."""
    values = _tensors(tensors)
    if device_norms.on_device(values):
        return _on_device(values, [], norm_type, error_if_nonfinite)
    return _total(values, [], norm_type, error_if_nonfinite, values)


def _total(
    values: list[Tensor], elsewhere: list[float], norm_type: float, error_if_nonfinite: bool,
    typed: list[Tensor],
) -> Tensor:  # fmt: skip
    """The norm of ``values`` together with what has the norms ``elsewhere``, in the type of
    ``typed``."""
    p = float(norm_type)
    with np.errstate(over="ignore"):  # looked at by norm_of
        spread = [t for t in values if not t.is_sparse and isinstance(t.array, ArrayKind)]
        own = [norm_of(t, p) for t in values if t.is_sparse or not isinstance(t.array, ArrayKind)]
        norms = own + _norms_of_parts(spread, p) + elsewhere
    total = joined_norm(norms, norm_type, error_if_nonfinite)
    number = np.asarray(total, type_of_norm(t.meta()[1] for t in typed))
    return wrap(spread[0].array.everywhere(number) if spread else number)


def _on_device(values: list[Tensor], parts: list[Any], norm_type: float, strict: bool) -> Tensor:
    """As ``_total``, of tensors on a device: the host waits for nothing unless it is ``strict``."""
    total = device_norms.total_norm(values, float(norm_type), parts)
    if strict and not math.isfinite(float(total)):
        raise _not_finite(norm_type, float(total))
    found: Any = total
    found = found.to(dtypes.of(type_of_norm(t.meta()[1] for t in [*values, *parts])))
    kinds = [t.array for t in values if isinstance(t.array, ArrayKind)]
    spread = next((a for a in kinds if a.where() is not None), None)
    return found if spread is None else wrap(spread.everywhere(found.array))


def joined_norm(
    parts: Sequence[float], norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> float:
    """The norm of all elements together, from the norms of the tensors that they are in. (Of order
    0 it is as PyTorch has it: how many tensors there are with elements that are not 0.)"""
    p, norms = float(norm_type), np.array(parts, np.float64)
    if not norms.size:
        total = 0.0
    elif p == 0:
        total = float(np.count_nonzero(norms))
    elif math.isinf(p):
        total = float(norms.max() if p > 0 else norms.min())
    else:
        total = float(np.sum(norms**p) ** (1.0 / p))
    if error_if_nonfinite and not math.isfinite(total):
        raise _not_finite(norm_type, total)
    return total


def _not_finite(norm_type: float, total: float) -> AutogradError:
    return AutogradError(
        f"clip_grad_norm_: The total norm of order {norm_type} for gradients is {total}, so it "
        "cannot be clipped; find the gradient that is not finite (set_detect_anomaly(True) "
        "names the line), or pass error_if_nonfinite=False"
    )


def _norms_of_parts(tensors: list[Tensor], p: float) -> list[float]:
    """The norms of tensors whose parts lie on several ranks, those that lie alike together: every
    rank computes that of its parts, one message joins them."""
    alike: dict[Any, list[Any]] = {}
    for t in tensors:
        alike.setdefault(t.array.where(), []).append(t.array)
    how = "sum" if math.isfinite(p) else "max" if p > 0 else "min"
    norms = []
    for arrays in alike.values():
        wholes = [a.together(()) for a in arrays]
        if None in wholes:  # sums that are not done: make them whole first
            arrays = [a.as_gradient(a) for a in arrays]
            wholes = [a.together(()) for a in arrays]
        own = [norm_of(wrap(part), p) if part.size else _NOTHING[how] for (part,) in wholes]
        values = np.array(own, np.float64)
        if how == "sum" and p:
            values **= p
        arrays[0].over_parts(values, how)
        norms += list(values ** (1.0 / p) if how == "sum" and p else values)
    return norms


_NOTHING = {"sum": 0.0, "max": 0.0, "min": math.inf}  # the norm of no elements


def type_of_norm(kinds: Iterable[np.dtype]) -> np.dtype:
    """The type of the norm of tensors of these types: theirs, real; the widest of several."""
    found = {np.dtype(f"f{k.itemsize // 2}") if k.kind == "c" else k for k in kinds}
    if len(found) < 2:
        return found.pop() if found else np.dtype(np.float32)
    return np.dtype(np.float64 if np.dtype(np.float64) in found else np.float32)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients by max_norm / total_norm where that is below 1, in place."""
    if device_norms.on_device([total_norm]):
        device_norms.scale(_grads(parameters), float(max_norm), total_norm)
        return
    total = float(total_norm)
    scale = float(max_norm) / (total + 1e-6)
    if scale >= 1.0:
        return
    with no_grad():
        for grad in _grads(parameters):
            parts = grad.array.together(()) if isinstance(grad.array, ArrayKind) else None
            if parts is None:
                grad.mul_(scale)
            else:
                np.multiply(parts[0], parts[0].dtype.type(scale), out=parts[0])
                touched(grad)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients so that their norm together is at most ``max_norm``; gives the norm.

    The norm is taken over all elements of all gradients, as if they were one vector.
    """
    params = _tensors(parameters)
    if thread.stack:
        return _clip_by_operations(params, float(max_norm), float(norm_type), error_if_nonfinite)
    parts = [p for p in params if "over_parts" in p.__dict__]
    if parts and device_norms.on_device(params):
        whole = _grads([p for p in params if "over_parts" not in p.__dict__])
        total = _on_device(whole, parts, norm_type, error_if_nonfinite)
    elif parts:
        total = _norm_with_parts(params, parts, float(norm_type), error_if_nonfinite)
    else:
        total = get_total_norm(_grads(params), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(params, max_norm, total)
    return total


def _norm_with_parts(params: list[Tensor], parts: list[Any], p: float, strict: bool) -> Tensor:
    """The norm where some parameters are parts of larger ones, of which other ranks have the rest:
    ``param.over_parts(values, how)`` joins what the ranks have found. Every rank calls it."""
    how = "sum" if math.isfinite(p) else "max" if p > 0 else "min"
    groups: dict[Any, list[Any]] = {}
    for part in parts:
        groups.setdefault(part.over_parts, []).append(part)
    norms = []
    for over_parts, members in groups.items():
        if p == 0:
            counts = [0.0 if m.grad is None else norm_of(m.grad, p) for m in members]
            norms += list(_joined(over_parts, counts, how))
            continue
        found = [norm_of(g, p) for g in _grads(members) if g.array.size]
        if how == "sum":
            norms.append(float(_joined(over_parts, [sum(n**p for n in found)], how)[0] ** (1 / p)))
        else:
            best = (max if how == "max" else min)([*found, _NOTHING[how]])
            norms.append(float(_joined(over_parts, [best], how)[0]))
    whole = [q for q in params if "over_parts" not in q.__dict__]
    return _total(_grads(whole), norms, p, strict, _grads(params))


def _joined(over_parts: Any, values: list[float], how: str) -> np.ndarray:
    joined = np.array(values, np.float64)
    over_parts(joined, how)
    return joined


def _clip_by_operations(
    params: list[Tensor], max_norm: float, norm_type: float, strict: bool
) -> Any:
    """As ``clip_grad_norm_``, in tensor operations alone, for interpreters to see. Where all are
    plain tensors the norm is one operation, the same arithmetic as without interpreters."""
    with no_grad():
        grads = _grads(params)
        if not grads:
            return get_total_norm(grads, norm_type)
        if any(isinstance(g, Tracer) for g in grads):
            norms = ops.stack([ops.norm(g.detach(), norm_type) for g in grads])
            total = ops.norm(norms, norm_type)
            scale = ops.clamp(max_norm / (total + 1e-6), max=1.0)
        elif any(
            not g.is_sparse and g.device.type not in HOST for g in grads
        ):  # which is made of operations already
            total = _on_device(grads, [], norm_type, strict)
            device_norms.scale(grads, max_norm, total)
            return total
        else:
            total = total_norm(*grads, norm_type=norm_type, strict=strict)
            scale = clip_scale(total, max_norm=max_norm)
            spread = scale.__dict__.get("array")
            if isinstance(spread, ArrayKind):  # for gradients on any mesh
                scale = spread.whole_of(scale)
            for g in grads:
                scale_gradient(g, scale)
            return total
        for g in grads:
            g.mul_(scale)
    return total


def _total_norm(*arrays: np.ndarray, norm_type: float, strict: bool) -> Any:
    return get_total_norm([wrap(a) for a in arrays], norm_type, strict).array


def _total_type(*arrays: ArrayKind, norm_type: float, strict: bool) -> tuple:
    return (), type_of_norm(a.dtype for a in arrays)


def _clip_scale(total: np.ndarray, max_norm: float) -> Any:
    scale = np.minimum(max_norm / (total.astype(np.float64) + 1e-6), 1.0).astype(total.dtype)
    return np.asarray(scale) if isinstance(scale, np.generic) else scale


def _scale_gradient(g: np.ndarray, scale: np.ndarray) -> Any:
    factor = float(scale)
    if not factor >= 1.0:
        np.multiply(g, g.dtype.type(factor), out=g)
    return g


scale_gradient = primitive("scale_gradient", _scale_gradient, "g scale", mutates=(0,))
total_norm = primitive("total_norm", _total_norm, "", shape=_total_type)
total_norm.kinds = True  # each kind's norm is taken in its own way
clip_scale = primitive(
    "clip_scale",
    _clip_scale,
    "total",
    shape=lambda total, max_norm: (total.shape, total.dtype),
    samples=lambda rng: [((rng.uniform(0.5, 2.0, 3),), {"max_norm": 1.0})],
)
clip_scale.elementwise = True


def _clip_scale_there(platform: Any, total: Any, max_norm: float) -> Any:
    """On a device, which nobody waits for."""
    wide = max_norm / (total.astype(np.float64) + 1e-6)
    return platform.xp.minimum(wide, 1.0).astype(total.dtype)


def _scale_gradient_there(platform: Any, g: Any, scale: object) -> Any:
    """(By 1 where nothing is to be cut: to look would be to wait.)"""
    g *= platform.xp.minimum(scale, 1.0).astype(g.dtype)
    return g


clip_scale.on_device = _clip_scale_there
scale_gradient.on_device = _scale_gradient_there


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Cut every element of the gradients to [-clip_value, clip_value], in place."""
    bound = float(clip_value)
    with no_grad():
        for grad in _grads(parameters):
            grad.clamp_(-bound, bound)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, one after the other, as one vector."""
    return ops.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: object, parameters: Iterable[Tensor]) -> None:
    """Cut ``vec`` into the parameters' shapes and make it their data."""
    params = list(parameters)
    needed = sum(p.numel() for p in params)
    if not isinstance(vec, Tensor) or vec.ndim != 1 or vec.numel() != needed:
        given = list(vec.shape) if isinstance(vec, Tensor) else type(vec).__name__
        raise ConfigError(
            f"vector_to_parameters: {given} given; needed a vector of {needed} elements"
        )
    start = 0
    for p in params:
        p.data = vec[start : start + p.numel()].reshape(p.shape).detach()
        start += p.numel()
