"""Layers of a model that follow each other, as one: so that calibration sees what is computed
together, and normalisation is taken into weights."""

from __future__ import annotations

import copy
from typing import Any

from .. import nn
from ..errors import ConfigError
from ..nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from .layers import fused

_BN = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_WITH_RELU = {1: fused.ConvReLU1d, 2: fused.ConvReLU2d, 3: fused.ConvReLU3d}
_WITH_BN = {1: fused.ConvBn1d, 2: fused.ConvBn2d, 3: fused.ConvBn3d}
_WITH_BOTH = {1: fused.ConvBnReLU1d, 2: fused.ConvBnReLU2d, 3: fused.ConvBnReLU3d}


def _in_evaluation(conv: Any, bn: Any) -> Any:
    if isinstance(conv, nn.Linear):
        return fuse_linear_bn_eval(conv, bn)
    return fuse_conv_bn_eval(conv, bn)


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution (or a Linear) with its normalisation."""
    _same_mode(conv, bn)
    if not is_qat:
        return _in_evaluation(conv, bn)
    if isinstance(conv, nn.Linear):
        return fused.LinearBn1d(conv, bn)
    return _WITH_BN[_dims(conv)](conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """A convolution with its normalisation and a ReLU."""
    _same_mode(conv, bn, relu)
    if is_qat:
        return _WITH_BOTH[_dims(conv)](conv, bn, relu)
    return _with_relu(_in_evaluation(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A Linear with its normalisation."""
    return fuse_conv_bn(is_qat, linear, bn)


def _with_relu(layer: Any, relu: Any) -> Any:
    if isinstance(layer, nn.Linear):
        return fused.LinearReLU(layer, relu)
    return _WITH_RELU[_dims(layer)](layer, relu)


def _dims(conv: Any) -> int:
    return next(d for d, kind in _CONV.items() if isinstance(conv, kind))


def _same_mode(*layers: Any) -> None:
    if len({layer.training for layer in layers}) > 1:
        raise AssertionError("Conv and BN both must be in the same mode (train or eval).")


def _fused(layers: list, is_qat: bool) -> Any:
    """The layers as one; None for a sequence that is not known."""
    kinds = "".join(map(_letter, layers))
    if kinds in ("cb", "lb"):
        return fuse_conv_bn(is_qat, *layers)
    if kinds == "cbr" or (kinds == "lbr" and not is_qat):
        return fuse_conv_bn_relu(is_qat, *layers)
    if kinds in ("cr", "lr"):
        _same_mode(*layers)
        return _with_relu(*layers)
    if kinds == "br" and isinstance(layers[0], (nn.BatchNorm2d, nn.BatchNorm3d)):
        flat = isinstance(layers[0], nn.BatchNorm2d)
        return (fused.BNReLU2d if flat else fused.BNReLU3d)(*layers)
    return None


def _letter(layer: Any) -> str:
    known = {
        "c": tuple(_CONV.values()), "l": (nn.Linear,), "b": tuple(_BN.values()), "r": (nn.ReLU,),
    }  # fmt: skip
    return next((letter for letter, kinds in known.items() if isinstance(layer, kinds)), "?")


def fuse_known_modules(
    mod_list: list, is_qat: bool, additional_fuser_method_mapping: Any = None
) -> list:
    """``mod_list`` with the first as all of them, and the others passing on what they get."""
    layer = _fused(mod_list, is_qat)
    if layer is None:
        kinds = tuple(type(m).__name__ for m in mod_list)
        raise NotImplementedError(f"Cannot fuse modules: {kinds}")
    for hook_store in ("_forward_pre_hooks",):
        getattr(layer, hook_store).update(getattr(mod_list[0], hook_store))
    rest = []
    for old in mod_list[1:]:
        passing = nn.Identity()
        passing.training = old.training
        rest.append(passing)
    return [layer, *rest]


def _fuse(model: Any, names: Any, inplace: bool, is_qat: bool) -> Any:
    if not inplace:
        model = copy.deepcopy(model)
    if not isinstance(names, (list, tuple)) or not names:
        raise ConfigError(f"fuse_modules: modules_to_fuse={names!r} given; needed lists of names")
    lists = [names] if all(isinstance(n, str) for n in names) else names
    for one in lists:
        found = [model.get_submodule(name) for name in one]
        for name, layer in zip(one, fuse_known_modules(found, is_qat)):
            model.set_submodule(name, layer)
    return model


def fuse_modules(
    model: Any, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> Any:  # fmt: skip
    """``model``, in evaluation mode, with sequences of layers as one: convolution or Linear, then
    normalisation, then ReLU (each of the last two may be missing); normalisation and ReLU.
    ``modules_to_fuse``: a list of names, or several."""
    return _fuse(model, modules_to_fuse, inplace, False)


def fuse_modules_qat(
    model: Any, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> Any:  # fmt: skip
    """The same for training with rounding: normalisation stays, within the one layer."""
    return _fuse(model, modules_to_fuse, inplace, True)


__all__ = [
    "fuse_conv_bn", "fuse_conv_bn_relu", "fuse_known_modules", "fuse_linear_bn", "fuse_modules",
    "fuse_modules_qat",
]  # fmt: skip
