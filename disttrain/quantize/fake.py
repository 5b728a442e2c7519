"""Modules that round as a quantized model will, so that training learns to bear it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from ..backends.fused.products.int8_product import affine
from ..core import Tensor, no_grad, wrap
from ..errors import ConfigError
from ..nn import Module
from . import observers as obs
from . import types
from .functions import fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine


class FakeQuantizeBase(Module):
    """What can be switched: whether to observe, and whether to round."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor
    with_args = classmethod(lambda cls, **kwargs: obs._Partial(cls).with_args(**kwargs))

    def __init__(self) -> None:
        super().__init__()
        for name in ("fake_quant_enabled", "observer_enabled"):
            self.register_buffer(name, wrap(np.array([1], np.uint8)))
        self._read()

    def _read(self) -> None:
        """Keep what the buffers say, which state dicts carry, as what a forward asks."""
        self.rounds = bool(self.fake_quant_enabled.item())
        self.observes = bool(self.observer_enabled.item())

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled = wrap(np.array([enabled], np.uint8))
        self._read()

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled = wrap(np.array([enabled], np.uint8))
        self._read()

    def disable_observer(self) -> None:
        self.enable_observer(False)

    def calculate_qparams(self) -> Any:
        """(scales, zero points)."""
        raise NotImplementedError

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._read()


class FakeQuantize(FakeQuantizeBase):
    """Rounds to the numbers of the grid that its ``observer`` gives. The gradient is that of what
    is within the grid, straight through the rounding."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, observer: Callable = obs.MovingAverageMinMaxObserver, quant_min: int | None = None,
        quant_max: int | None = None, is_dynamic: bool = False, **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if quant_min is not None and quant_max is not None:
            observer_kwargs = {**observer_kwargs, "quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = seen = observer(**observer_kwargs)
        if not hasattr(seen, "quant_min"):
            raise ConfigError(f"FakeQuantize: {type(seen).__name__} has no range of integers")
        self.quant_min, self.quant_max = seen.quant_min, seen.quant_max
        self.dtype, self.qscheme = seen.dtype, seen.qscheme
        self.ch_axis, self.is_dynamic = getattr(seen, "ch_axis", -1), is_dynamic
        self.is_per_channel = self.qscheme in types.PER_CHANNEL
        fractions = self.qscheme == types.per_channel_affine_float_qparams
        self.register_buffer("scale", wrap(np.array([1.0], np.float32)))
        zero = wrap(np.array([0], np.float32 if fractions else np.int32))
        self.register_buffer("zero_point", zero)

    def forward(self, X: Tensor) -> Tensor:  # noqa: N803  (the field's spelling)
        if self.observes:
            with no_grad():
                self.activation_post_process(X.detach())
                self._take(*self.training_grid())
        if not self.rounds:
            return X
        limits = self.quant_min, self.quant_max
        if self.is_per_channel:
            return fake_quantize_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, *limits
            )
        return fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, *limits)

    def training_grid(self) -> tuple[Tensor, Tensor]:
        """What to round to, after what was just observed."""
        found: tuple[Tensor, Tensor] = self.calculate_qparams()
        return found

    def _take(self, scale: Tensor, zero: Tensor) -> None:
        self.scale, self.zero_point = scale, zero.to(self.zero_point.dtype)

    def calculate_qparams(self) -> Any:
        return self.activation_post_process.calculate_qparams()

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.rounds}, observer_enabled={self.observes}, "
            f"quant_min={self.quant_min}, quant_max={self.quant_max}, dtype={self.dtype}, "
            f"qscheme={self.qscheme}, ch_axis={self.ch_axis}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):  # which have the shape of what was observed
            found = state_dict.get(prefix + name)
            if isinstance(found, Tensor) and found.shape != getattr(self, name).shape:
                setattr(self, name, ops.empty_like(found))
        super()._load_from_state_dict(state_dict, prefix, *args)


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize whose grids, in training, are those of PyTorch's operation of this name: around
    0, the least number of the grid is as far as it is from 0 (-128 for -1, say)."""

    def training_grid(self) -> tuple[Tensor, Tensor]:
        seen, low, high = self.activation_post_process, self.quant_min, self.quant_max
        least, most = seen.min_val.numpy(), seen.max_val.numpy()
        if self.qscheme not in types.SYMMETRIC:
            scale, zero = affine(least, most, low, high)
            return wrap(np.atleast_1d(scale)), wrap(np.atleast_1d(zero))
        if low >= 0:
            return super().training_grid()
        scale = np.maximum(np.maximum(-least / -low, most / high), seen.eps.numpy())
        scale = np.atleast_1d(scale.astype(np.float32))
        return wrap(scale), wrap(np.zeros(scale.shape, np.int32))


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds to a grid that is known beforehand."""

    def __init__(self, observer: Callable, **kwargs: Any) -> None:
        super().__init__(observer, **kwargs)
        self._take(*self.calculate_qparams())


# --- as QConfigs name them -----------------------------------------------------------------------
_AVERAGE = {"observer": obs.MovingAverageMinMaxObserver, "quant_min": 0, "quant_max": 255}
_SIGNED = {"quant_min": -128, "quant_max": 127, "dtype": types.qint8}
default_fake_quant = FakeQuantize.with_args(
    **_AVERAGE, dtype=types.quint8, qscheme=types.per_tensor_affine, reduce_range=True
)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=obs.MovingAverageMinMaxObserver, **_SIGNED, qscheme=types.per_tensor_symmetric,
    reduce_range=False,
)  # fmt: skip
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=obs.MovingAveragePerChannelMinMaxObserver, **_SIGNED,
    qscheme=types.per_channel_symmetric, reduce_range=False, ch_axis=0,
)  # fmt: skip
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=obs.MovingAverageMinMaxObserver, is_dynamic=True, quant_min=0, quant_max=255,
    dtype=types.quint8, averaging_constant=1,
)  # fmt: skip
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=obs.MovingAveragePerChannelMinMaxObserver,
    qscheme=types.per_channel_affine_float_qparams, dtype=types.quint8, quant_min=0, quant_max=255,
    ch_axis=0, averaging_constant=1,
)  # fmt: skip
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=obs.HistogramObserver, quant_min=0, quant_max=255, dtype=types.quint8,
    qscheme=types.per_tensor_affine, reduce_range=True,
)  # fmt: skip
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **_AVERAGE, dtype=types.quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=obs.MovingAverageMinMaxObserver, **_SIGNED, qscheme=types.per_tensor_symmetric
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=obs.MovingAveragePerChannelMinMaxObserver, **_SIGNED,
    qscheme=types.per_channel_symmetric,
)  # fmt: skip


# --- for Module.apply ----------------------------------------------------------------------------
def enable_fake_quant(module: Any) -> None:
    """Have a FakeQuantize round."""
    if isinstance(module, FakeQuantizeBase):
        module.enable_fake_quant()


def disable_fake_quant(module: Any) -> None:
    """Have a FakeQuantize pass on what it is given."""
    if isinstance(module, FakeQuantizeBase):
        module.disable_fake_quant()


def enable_observer(module: Any) -> None:
    """Have a FakeQuantize observe."""
    if isinstance(module, FakeQuantizeBase):
        module.enable_observer()


def disable_observer(module: Any) -> None:
    """Have a FakeQuantize keep the grid that it has."""
    if isinstance(module, FakeQuantizeBase):
        module.disable_observer()


__all__ = [
    "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize",
    "FusedMovingAvgObsFakeQuantize", "default_dynamic_fake_quant", "default_embedding_fake_quant",
    "default_fake_quant", "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant", "default_fused_wt_fake_quant",
    "default_histogram_fake_quant", "default_per_channel_weight_fake_quant",
    "default_weight_fake_quant", "disable_fake_quant", "disable_observer", "enable_fake_quant",
    "enable_observer",
]  # fmt: skip
