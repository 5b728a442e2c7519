"""``quantize_(model, config)``: layers of a model changed in place, in torchao's spelling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import nn
from ..errors import ConfigError
from .layers.linear import DynamicRowsLinear, WeightOnlyLinear

Filter = Callable[[nn.Module, str], bool]


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Weights of Linear as 8-bit integers with a scale for each row; inputs stay as they are."""

    group_size: int | None = None
    set_inductor_config: bool = True
    version: int = 1

    def apply(self, linear: Any) -> None:
        """Change a Linear."""
        if self.group_size is not None:
            raise ConfigError(
                f"Int8WeightOnlyConfig: group_size={self.group_size} given; a scale for each row "
                "(None) is known"
            )
        WeightOnlyLinear.take_over(linear)


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig:
    """The same, and each row of the input is rounded to 8 bits as it comes: products of integers.
    ``weight_only_decode``: weights alone."""

    layout: Any = None
    act_mapping_type: Any = "symmetric"
    weight_only_decode: bool = False
    set_inductor_config: bool = True
    version: int = 1

    def apply(self, linear: Any) -> None:
        """Change a Linear."""
        kind = str(getattr(self.act_mapping_type, "name", self.act_mapping_type)).lower()
        if kind != "symmetric":
            raise ConfigError(
                "Int8DynamicActivationInt8WeightConfig: act_mapping_type="
                f"{self.act_mapping_type!r} given; 'symmetric' is known"
            )
        (WeightOnlyLinear if self.weight_only_decode else DynamicRowsLinear).take_over(linear)


def _is_linear(module: nn.Module, name: str) -> bool:
    return type(module) is nn.Linear


def quantize_(
    model: nn.Module, config: Any, filter_fn: Filter | None = None, device: Any = None
) -> None:
    """Change the layers of ``model`` for which ``filter_fn(module, name)`` is true (None: all
    Linear) as ``config`` says, in place; a Linear itself, too."""
    if not hasattr(config, "apply"):
        raise ConfigError(
            f"quantize_: config={config!r} given; needed Int8WeightOnlyConfig() or "
            "Int8DynamicActivationInt8WeightConfig()"
        )
    if device is not None:
        model.to(device)
    wanted = _is_linear if filter_fn is None else filter_fn
    for name, module in list(model.named_modules()):
        if wanted(module, name):
            if type(module) is not nn.Linear:
                raise ConfigError(
                    f"quantize_: filter_fn chose {name or 'the model'}, a {type(module).__name__}; "
                    "Linear layers can be changed"
                )
            config.apply(module)


def int8_weight_only(group_size: int | None = None) -> Int8WeightOnlyConfig:
    """``Int8WeightOnlyConfig`` by its older name."""
    return Int8WeightOnlyConfig(group_size)


def int8_dynamic_activation_int8_weight(
    weight_only_decode: bool = False,
) -> Int8DynamicActivationInt8WeightConfig:
    """``Int8DynamicActivationInt8WeightConfig`` by its older name."""
    return Int8DynamicActivationInt8WeightConfig(weight_only_decode=weight_only_decode)


__all__ = [
    "Int8DynamicActivationInt8WeightConfig", "Int8WeightOnlyConfig",
    "int8_dynamic_activation_int8_weight", "int8_weight_only", "quantize_",
]  # fmt: skip
