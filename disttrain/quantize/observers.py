"""Observers: modules that pass on what they are given and remember its range, from which the grid
of a quantized tensor is computed (``calculate_qparams``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..core import Tensor, no_grad, wrap
from ..core.types.dtypes import finfo, float32
from ..errors import ConfigError
from ..nn import Module
from ..trace import warn
from . import types
from .histogram import best_limits, merged
from .types import limits, per_tensor_affine, qscheme, qtype


class _Partial:
    """A class with some arguments given; calling it makes one. ``with_args`` gives more."""

    def __init__(self, made: Callable) -> None:
        self.made = made
        self.given_later: dict[str, Callable] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        later = {k: f() for k, f in self.given_later.items() if k not in kwargs}
        return self.made(*args, **{**kwargs, **later})

    def __repr__(self) -> str:
        return f"{self.made!r}{self.given_later or ''}"

    def with_args(self, **kwargs: Any) -> _Partial:
        out = _Partial(partial(self.made, **kwargs))
        out.given_later = self.given_later
        return out

    def with_callable_args(self, **kwargs: Any) -> _Partial:
        out = _Partial(self.made)
        out.given_later = {**self.given_later, **kwargs}
        return out


class ObserverBase(Module):
    """What all observers have: a type, and how they are given to a QConfig."""

    with_args = classmethod(lambda cls, **kwargs: _Partial(cls).with_args(**kwargs))
    with_callable_args = classmethod(
        lambda cls, **kwargs: _Partial(cls).with_callable_args(**kwargs)
    )

    def __init__(self, dtype: Any = types.quint8, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    def calculate_qparams(self) -> Any:
        """(scales, zero points), as tensors."""
        raise NotImplementedError


class UniformObserver(ObserverBase):
    """Remembers a least and a greatest number, of all elements or of each channel."""

    min_val: Tensor
    max_val: Tensor
    ch_axis = -1

    def __init__(
        self,
        dtype: Any = types.quint8,
        qscheme: qscheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict | None = None,
        eps: float = finfo(float32).eps,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.qscheme, self.reduce_range = qscheme, reduce_range
        if reduce_range and qscheme in types.SYMMETRIC and self._unsigned():
            raise NotImplementedError(
                "Cannot reduce range for symmetric quantization for quint8; use qint8"
            )
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        self.quant_min, self.quant_max = self._limits(quant_min, quant_max)
        self.register_buffer("eps", wrap(np.array([eps], np.float32)))
        self.register_buffer("min_val", wrap(np.array(np.inf, np.float32)))
        self.register_buffer("max_val", wrap(np.array(-np.inf, np.float32)))

    def _limits(self, low: int | None, high: int | None) -> tuple[int, int]:
        where = type(self).__name__
        if low is None or high is None:
            return limits(types.quantized(self.dtype, where), self.reduce_range)
        if low >= high:
            raise ConfigError(f"{where}: quant_min={low} must be less than quant_max={high}")
        if not low <= 0 <= high:
            raise ConfigError(f"{where}: the range {low} to {high} of integers must include 0")
        if not isinstance(self.dtype, qtype) or not self.reduce_range:
            return low, high
        return low // 2, high // 2

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            with no_grad():
                self.observe(x_orig.detach().float())
        return x_orig

    def observe(self, x: Tensor) -> None:
        """Remember the range of ``x``, which is not empty."""
        least, most = self.range_of(x)
        seen = self.has_seen
        self._take(
            ops.minimum(self.min_val, least) if seen else least,
            ops.maximum(self.max_val, most) if seen else most,
        )

    @property
    def has_seen(self) -> bool:
        """Whether there was anything to observe."""
        low = self.min_val
        return low.numel() > 0 and not bool((low > self.max_val).any())

    def _take(self, least: Tensor, most: Tensor) -> None:
        self.min_val, self.max_val = least, most

    def range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest number."""
        return ops.amin(x), ops.amax(x)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        if not self.has_seen:
            warn(
                f"{type(self).__name__}: must run observer before calling calculate_qparams; "
                "Returning default values (scale 1, zero point 0), as for a model whose state will "
                "be loaded"
            )
            return ops.ones(1), ops.zeros(1).long()
        return self._grid(self.min_val.numpy(), self.max_val.numpy())

    def _grid(self, least: Any, most: Any) -> tuple[Tensor, Tensor]:
        """The grid for numbers from ``least`` to ``most``, and 0."""
        if np.isnan(least).any() or np.isnan(most).any():
            raise ConfigError(
                f"{type(self).__name__}: nan was among the observed numbers; there is no grid for "
                "it: find out where it comes from, then reset_min_max_vals() and observe again"
            )
        low, high, eps = self.quant_min, self.quant_max, self.eps.numpy()
        below, above = np.minimum(least, np.float32(0)), np.maximum(most, np.float32(0))
        steps = np.float32(high - low)
        if self.qscheme in types.SYMMETRIC:
            reach = np.maximum(-below, above)
            scale = np.maximum(reach / (steps / np.float32(2)), eps)
            middle = (low + high) // 2 if self.has_customized_qrange else 128
            zero = np.full(scale.shape, middle if self._unsigned() else 0, np.int64)
        elif self.qscheme == types.per_channel_affine_float_qparams:
            scale = (most - least) / steps
            scale = np.where(scale > eps, scale, np.float32(1))
            zero = -least / scale
        else:
            scale = np.maximum((above - below) / steps, eps)
            zero = low - np.rint(below / scale).astype(np.int64)
            zero = np.clip(zero, low, high)
        return wrap(np.atleast_1d(scale)), wrap(np.atleast_1d(zero))

    def _unsigned(self) -> bool:
        return types.quantized(self.dtype, type(self).__name__).np.kind == "u"

    def reset_min_max_vals(self) -> None:
        """Forget what was observed."""
        self.min_val = wrap(np.array(np.inf, np.float32))
        self.max_val = wrap(np.array(-np.inf, np.float32))

    def extra_repr(self) -> str:
        low, high = (
            (t.tolist() if t.numel() < 9 else f"{t.numel()} channels")
            for t in (self.min_val, self.max_val)
        )
        return f"min_val={low}, max_val={high}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):  # which have the shape of what was observed
            found = state_dict.get(prefix + name)
            if isinstance(found, Tensor) and found.shape != getattr(self, name).shape:
                setattr(self, name, ops.empty_like(found))
        super()._load_from_state_dict(state_dict, prefix, *args)


UniformQuantizationObserverBase = UniformObserver


class MinMaxObserver(UniformObserver):
    """The least and the greatest number that there ever was."""


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Averages of least and greatest numbers, to which each batch adds ``averaging_constant`` of
    the difference."""

    def __init__(self, averaging_constant: float = 0.01, *args: Any, **kwargs: Any) -> None:
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(*args, **kwargs)

    def observe(self, x: Tensor) -> None:
        least, most = self.range_of(x)
        if self.has_seen:
            part, low, high = self.averaging_constant, self.min_val, self.max_val
            least, most = low + part * (least - low), high + part * (most - high)
        self._take(least, most)


class PerChannelMinMaxObserver(MinMaxObserver):
    """The same for each slice along ``ch_axis``."""

    def __init__(
        self, ch_axis: int = 0, dtype: Any = types.quint8,
        qscheme: qscheme = types.per_channel_affine, *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        self.__dict__["ch_axis"] = ch_axis
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.reset_min_max_vals()

    def range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        axis = self.ch_axis % x.ndim
        dims = tuple(d for d in range(x.ndim) if d != axis)
        return (ops.amin(x, dims), ops.amax(x, dims)) if dims else (x.clone(), x.clone())

    def reset_min_max_vals(self) -> None:
        self.min_val = wrap(np.empty(0, np.float32))
        self.max_val = wrap(np.empty(0, np.float32))


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Averages of the ranges of each slice along ``ch_axis``."""

    def __init__(
        self, averaging_constant: float = 0.01, ch_axis: int = 0, *args: Any, **kwargs: Any
    ) -> None:
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(ch_axis, *args, **kwargs)

    observe = MovingAverageMinMaxObserver.observe


class HistogramObserver(UniformObserver):
    """How often numbers were in each of ``bins`` parts of the range. The grid has the limits that
    lose least: numbers beyond them are cut off, and those within are rounded more finely."""

    histogram: Tensor

    def __init__(self, bins: int = 2048, *args: Any, **kwargs: Any) -> None:
        kwargs = {k: v for k, v in kwargs.items() if k != "upsample_rate"}
        super().__init__(*args, **kwargs)
        if self.qscheme in types.PER_CHANNEL:
            raise ConfigError("HistogramObserver: only per_tensor quantization schemes are known")
        self.bins = bins
        self.register_buffer("histogram", wrap(np.zeros(bins, np.float32)))

    def observe(self, x: Tensor) -> None:
        values = x.numpy().reshape(-1)
        values = values[np.isfinite(values)]
        if not values.size:
            return
        old = self.histogram.numpy(), float(self.min_val), float(self.max_val)
        counts, low, high = merged(old if self.has_seen else None, values, self.bins)
        self.histogram = wrap(counts.astype(np.float32))
        self._take(wrap(np.array(low, np.float32)), wrap(np.array(high, np.float32)))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        if not self.has_seen:
            return super().calculate_qparams()
        steps = self.quant_max - self.quant_min
        low, high = best_limits(
            self.histogram.numpy(), float(self.min_val), float(self.max_val), steps,
            self.qscheme in types.SYMMETRIC,
        )  # fmt: skip
        return self._grid(np.float32(low), np.float32(high))

    def reset_min_max_vals(self) -> None:
        super().reset_min_max_vals()
        self.histogram = wrap(np.zeros(self.bins, np.float32))


class FixedQParamsObserver(ObserverBase):
    """A grid that is known beforehand."""

    def __init__(
        self, scale: float, zero_point: int, dtype: Any = types.quint8,
        qscheme: qscheme = per_tensor_affine, quant_min: int = 0, quant_max: int = 255,
        is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", wrap(np.array([scale], np.float32)))
        self.register_buffer("zero_point", wrap(np.array([zero_point], np.int64)))

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Observes nothing: says in which type something is to be."""

    def __init__(
        self, dtype: Any = float32, custom_op_name: str = "", compute_dtype: Any = None,
        quant_min: int | None = None, quant_max: int | None = None,
        qscheme: qscheme | None = None, eps: float | None = None, is_dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.qscheme = per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max, self.eps = quant_min, quant_max, eps
        self.custom_op = custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self) -> Any:
        raise ConfigError("calculate_qparams should not be called for PlaceholderObserver")


class NoopObserver(PlaceholderObserver):
    """Observes nothing."""

    def __init__(self, dtype: Any = None, custom_op_name: str = "") -> None:
        super().__init__(dtype, custom_op_name)


class RecordingObserver(ObserverBase):
    """Keeps copies of what it is given."""

    def __init__(self, dtype: Any = types.quint8) -> None:
        super().__init__(dtype)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        return self.tensor_val


# --- as QConfigs name them -----------------------------------------------------------------------
_WEIGHT = {"dtype": types.qint8, "qscheme": types.per_tensor_symmetric}
_ROWS = {"dtype": types.qint8, "qscheme": types.per_channel_symmetric}

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(**_WEIGHT)
weight_observer_range_neg_127_to_127 = default_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(**_ROWS)
per_channel_weight_observer_range_neg_127_to_127 = default_per_channel_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=types.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=types.quint8, qscheme=types.per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1 / 256, zero_point=0, dtype=types.quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2 / 256, zero_point=128, dtype=types.quint8, quant_min=0, quant_max=255
)

__all__ = [
    "FixedQParamsObserver", "HistogramObserver", "MinMaxObserver", "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase",
    "PerChannelMinMaxObserver", "PlaceholderObserver", "RecordingObserver", "UniformObserver",
    "UniformQuantizationObserverBase", "default_debug_observer", "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer", "default_fixed_qparams_range_neg1to1_observer",
    "default_float_qparams_observer", "default_histogram_observer", "default_observer",
    "default_per_channel_weight_observer", "default_placeholder_observer",
    "default_weight_observer", "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]  # fmt: skip
