"""QConfigs: how the activations and the weights of a module are observed, or rounded in training.

Numbers of activations have 7 bits where PyTorch's default for x86 has them (``reduce_range``), so
that both give the same; products here are exact, and ``get_default_qconfig("onednn")`` has 8.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from ..core.types.dtypes import float16, float32
from ..errors import ConfigError
from ..nn import Module
from . import fake, observers


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """``activation`` and ``weight``: what makes an observer or a FakeQuantize of each."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        for name, value in (("activation", activation), ("weight", weight)):
            if isinstance(value, Module) or not callable(value):
                raise ConfigError(
                    f"QConfig: {name}={value!r} given; QConfig received observer instance, please "
                    "pass observer class instead. Use MyObserver.with_args(x=1) to override "
                    "arguments to constructor if needed"
                )
        return super().__new__(cls, activation, weight)


_ROWS = observers.default_per_channel_weight_observer
_FAKE_ROWS = fake.default_per_channel_weight_fake_quant
_DYNAMIC = observers.default_dynamic_quant_observer

default_qconfig = QConfig(observers.default_observer, observers.default_weight_observer)
default_debug_qconfig = QConfig(observers.default_debug_observer, observers.default_weight_observer)
default_per_channel_qconfig = QConfig(observers.default_observer, _ROWS)
default_dynamic_qconfig = QConfig(_DYNAMIC, observers.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(_DYNAMIC, _ROWS)
float16_dynamic_qconfig = QConfig(
    observers.PlaceholderObserver.with_args(dtype=float16, is_dynamic=True),
    observers.PlaceholderObserver.with_args(dtype=float16),
)
float_qparams_weight_only_qconfig = QConfig(
    observers.default_placeholder_observer, observers.default_float_qparams_observer
)
weight_only_quant_qconfig = QConfig(observers.PlaceholderObserver.with_args(dtype=float32), _ROWS)
default_weight_only_qconfig = QConfig(
    observers.NoopObserver.with_args(dtype=float32), fake.default_weight_fake_quant
)
default_qat_qconfig = QConfig(fake.default_fake_quant, fake.default_weight_fake_quant)
default_qat_qconfig_v2 = QConfig(
    fake.default_fused_act_fake_quant, fake.default_fused_wt_fake_quant
)
default_dynamic_qat_qconfig = QConfig(
    fake.default_dynamic_fake_quant, fake.default_weight_fake_quant
)
default_embedding_qat_qconfig = QConfig(
    observers.NoopObserver.with_args(dtype=float32), fake.default_embedding_fake_quant
)
default_activation_only_qconfig = QConfig(fake.default_fake_quant, observers.NoopObserver)

_HISTOGRAM = observers.HistogramObserver.with_args
_AVERAGE = fake.FakeQuantize.with_args(
    observer=observers.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, reduce_range=True
)
_FUSED = fake.FusedMovingAvgObsFakeQuantize.with_args(
    observer=observers.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
)
# Backends: (whether activations have one bit less, the weights' observer)
_BACKENDS: dict[str, tuple[bool, Callable]] = {
    "x86": (True, _ROWS),
    "fbgemm": (True, _ROWS),
    "onednn": (False, _ROWS),
    "qnnpack": (False, observers.default_weight_observer),
}


def _backend(name: str, where: str) -> tuple[bool, Callable]:
    if name not in _BACKENDS:
        raise ConfigError(
            f"{where}: backend={name!r} given; supported backends: {', '.join(_BACKENDS)}"
        )
    return _BACKENDS[name]


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """For quantization by calibration."""
    reduced, weight = _backend(backend, "get_default_qconfig")
    return QConfig(_HISTOGRAM(reduce_range=reduced), weight)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """For training with rounding."""
    reduced, _ = _backend(backend, "get_default_qat_qconfig")
    rows = backend != "qnnpack"
    if version == 0:
        weight = _FAKE_ROWS if rows else fake.default_weight_fake_quant
        return QConfig(_AVERAGE.with_args(reduce_range=reduced), weight)
    whole = fake.default_fused_wt_fake_quant
    weight = fake.default_fused_per_channel_wt_fake_quant if rows else whole
    return QConfig(_FUSED.with_args(reduce_range=reduced), weight)


__all__ = [
    "QConfig", "default_activation_only_qconfig", "default_debug_qconfig",
    "default_dynamic_qat_qconfig", "default_dynamic_qconfig", "default_embedding_qat_qconfig",
    "default_per_channel_qconfig", "default_qat_qconfig", "default_qat_qconfig_v2",
    "default_qconfig", "default_weight_only_qconfig", "float16_dynamic_qconfig",
    "float_qparams_weight_only_qconfig", "get_default_qat_qconfig", "get_default_qconfig",
    "per_channel_dynamic_qconfig", "weight_only_quant_qconfig",
]  # fmt: skip
