"""How a model becomes a quantized one: dynamic (weights once, activations as they come), static
(calibrated on some data), and static after training with rounding.

    quantize_dynamic(model)                                    for Linear and recurrent layers
    prepare(model), run it on data, convert(model)             with QuantStub, DeQuantStub in it
    prepare_qat(model.train()), train it, convert(model.eval())

A module's ``qconfig`` says how it and all beneath it are quantized; None: not at all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from .. import nn
from ..core.types.dtypes import dtype, float16
from ..errors import ConfigError, StateDictError
from ..trace import warn
from . import mappings, types
from .fake import FakeQuantizeBase
from .layers import elements, fused, qat
from .observers import ObserverBase
from .qconfig import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
)

_OBSERVER = "activation_post_process"
_PRODUCTS = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
_DYNAMIC: dict[Any, tuple[tuple, Any]] = {
    types.qint8: (_PRODUCTS, default_dynamic_qconfig),
    float16: (_PRODUCTS, float16_dynamic_qconfig),
    types.quint8: ((nn.EmbeddingBag, nn.Embedding), float_qparams_weight_only_qconfig),
}


def _observe(module: Any, input: Any, output: Any) -> Any:
    """The hook of a module that is observed."""
    return module.activation_post_process(output)


# --- which module is quantized how ---------------------------------------------------------------
def propagate_qconfig_(
    module: Any, qconfig_dict: dict | None = None, prepare_custom_config_dict: Any = None
) -> None:
    """Give every module the ``qconfig`` of the one that it stands in, or what ``qconfig_dict`` says
    for its kind or its name."""
    _propagate(module, qconfig_dict or {}, None, "")


def _propagate(module: Any, given: dict, parent: Any, prefix: str) -> None:
    found = given.get(type(module), parent)
    found = given.get(prefix, found)
    found = getattr(module, "qconfig", found)
    if found is not None and not (hasattr(found, "weight") and hasattr(found, "activation")):
        raise ConfigError(f"{prefix or 'the model'}: qconfig={found!r} is no QConfig")
    module.qconfig = found
    for name, child in module.named_children():
        if not isinstance(child, (ObserverBase, FakeQuantizeBase)):
            _propagate(child, given, found, f"{prefix}.{name}" if prefix else name)


def _attach(module: Any) -> None:
    """Have the results of ``module`` observed."""
    if isinstance(module, elements.FloatFunctional):
        module.activation_post_process = module.qconfig.activation()
        return
    if hasattr(module, _OBSERVER):
        return
    module.add_module(_OBSERVER, module.qconfig.activation())
    module.register_forward_hook(_observe, prepend=True)


def _is_observed(module: Any, allowed: tuple) -> bool:
    return type(module) in allowed and getattr(module, "qconfig", None) is not None


def _add_observers(module: Any, allowed: tuple) -> None:
    """To all that are observed beneath ``module``, and to itself."""
    if _is_observed(module, allowed):
        _attach(module)
        if not isinstance(module, elements.QuantWrapper):
            return
    for child in module.children():
        if not isinstance(child, (ObserverBase, FakeQuantizeBase)):
            _add_observers(child, allowed)


def prepare(
    model: Any, inplace: bool = False, allow_list: Iterable[type] | None = None,
    observer_non_leaf_module_list: Iterable[type] | None = None,
    prepare_custom_config_dict: Any = None,
) -> Any:  # fmt: skip
    """A copy of ``model`` (itself if ``inplace``) whose layers observe what they give."""
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model)
    if all(m.qconfig is None for m in model.modules() if hasattr(m, "qconfig")):
        warn(
            "prepare: None of the submodule got qconfig applied. Make sure you passed correct "
            "configuration through `qconfig_dict` or by assigning the `.qconfig` attribute "
            "directly on submodules"
        )
    allowed = mappings.OBSERVED if allow_list is None else tuple(allow_list)
    _add_observers(model, (*allowed, *(observer_non_leaf_module_list or ())))
    return model


# --- conversion ----------------------------------------------------------------------------------
def swap_module(
    mod: Any, mapping: dict, custom_module_class_mapping: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:  # fmt: skip
    """What ``mapping`` makes of a module that has a qconfig; itself where that is nothing."""
    if not _changes(mod, mapping):
        return mod
    new = mapping[type(mod)].from_float(mod)
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        for hook in getattr(mod, name).values():
            if hook is not _observe:
                register = "register_forward_pre_hook" if "pre" in name else "register_forward_hook"
                getattr(new, register)(hook)
    return new.train(mod.training)


def _convert(module: Any, mapping: dict) -> Any:
    if not _changes(module, mapping):
        for name, child in list(module.named_children()):
            module._modules[name] = _convert(child, mapping)
    return swap_module(module, mapping)


def convert(
    module: Any, mapping: dict | None = None, inplace: bool = False, remove_qconfig: bool = True,
    is_reference: bool = False, convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:  # fmt: skip
    """A copy of a prepared model (itself if ``inplace``) with quantized layers."""
    if is_reference:
        raise ConfigError("convert: is_reference=True is not known here; dt.export gives a graph")
    if not inplace:
        module = copy.deepcopy(module)
    module = _convert(module, mappings.STATIC if mapping is None else mapping)
    if remove_qconfig:
        _cleaned(module)
    return module


def _cleaned(module: Any) -> None:
    """Without what preparing has left."""
    for part in module.modules():
        part.__dict__.pop("qconfig", None)
        for key, hook in list(part._forward_hooks.items()):
            if hook is _observe:
                del part._forward_hooks[key]
        if isinstance(part._modules.get(_OBSERVER), (ObserverBase, FakeQuantizeBase)):
            part._modules.pop(_OBSERVER)


def get_observer_state_dict(mod: Any) -> dict[str, Any]:
    """What the observers beneath ``mod`` have seen, out of its state dict."""
    return {name: value for name, value in mod.state_dict().items() if _OBSERVER in name}


def load_observer_state_dict(mod: Any, obs_dict: dict[str, Any]) -> None:
    """Give it to the observers of a model that was prepared in the same way."""
    found = mod.load_state_dict(obs_dict, strict=False)
    missing = [name for name in found.missing_keys if _OBSERVER in name]
    if missing or found.unexpected_keys:
        raise StateDictError(
            f"load_observer_state_dict: missing keys for observers {missing}, unexpected keys "
            f"{list(found.unexpected_keys)}; prepare() the same layers in the same way first"
        )


def quantize(
    model: Any, run_fn: Callable, run_args: Any, mapping: dict | None = None, inplace: bool = False
) -> Any:
    """``prepare``, ``run_fn(model, *run_args)``, ``convert``."""
    model = prepare(model if inplace else copy.deepcopy(model), inplace=True)
    model.eval()
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def quantize_dynamic(
    model: Any, qconfig_spec: Any = None, dtype: Any = types.qint8, mapping: dict | None = None,
    inplace: bool = False,
) -> Any:  # fmt: skip
    """A copy of ``model`` whose products are of 8-bit integers: weights are rounded once, their
    inputs as they come. ``qconfig_spec``: kinds or names of layers, alone or each with a QConfig
    (None: Linear and recurrent layers; with ``dtype=quint8`` tables)."""
    given = _spec(qconfig_spec, _kind(dtype))
    mapping = mappings.DYNAMIC if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, given)
    if not any(_changes(m, mapping) for m in model.modules()):
        warn(f"quantize_dynamic: the model has no layer of {list(given)}; nothing is changed")
    return convert(model, mapping, inplace=True)


def _changes(module: Any, mapping: dict) -> bool:
    return type(module) in mapping and getattr(module, "qconfig", None) is not None


def _kind(kind: Any) -> Any:
    if kind is float16 or (isinstance(kind, dtype) and kind in _DYNAMIC):
        return kind
    found = types.quantized(kind, "quantize_dynamic")
    if found not in _DYNAMIC:
        raise ConfigError(f"quantize_dynamic: dtype={kind!r} given; needed qint8, quint8, float16")
    return found


def _spec(given: Any, kind: Any) -> dict:
    usual, qconfig = _DYNAMIC[kind]
    if given is None:
        return dict.fromkeys(usual, qconfig)
    if isinstance(given, dict):
        return given
    if isinstance(given, (set, list, tuple, frozenset)):
        return {
            k: float_qparams_weight_only_qconfig if k in mappings.TABLES else qconfig for k in given
        }
    raise ConfigError(
        f"quantize_dynamic: qconfig_spec={given!r} given; needed a set of kinds or names of "
        "layers, or a dict with a QConfig for each"
    )


# --- training with rounding ----------------------------------------------------------------------
def prepare_qat(model: Any, mapping: dict | None = None, inplace: bool = False) -> Any:
    """A copy of ``model``, in training, whose layers compute with rounded weights and give rounded
    results, by the FakeQuantize of their qconfig."""
    if not model.training:
        raise AssertionError(
            "prepare_qat only works on models in training mode; call model.train() first"
        )
    mapping = mappings.QAT if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model)
    model = convert(model, mapping, inplace=True, remove_qconfig=False)
    return prepare(model, inplace=True, observer_non_leaf_module_list=set(mapping.values()))


def quantize_qat(model: Any, run_fn: Callable, run_args: Any, inplace: bool = False) -> Any:
    """``prepare_qat``, ``run_fn(model, *run_args)``, ``convert``."""
    model = prepare_qat((model if inplace else copy.deepcopy(model)).train(), inplace=True)
    run_fn(model, *run_args)
    return convert(model.eval(), inplace=True)


def add_quant_dequant(module: Any) -> Any:
    """``module`` with every layer that has a qconfig of its own within a ``QuantWrapper``."""
    has_children = next(module.children(), None) is not None
    leaf = not has_children or isinstance(module, fused._Fused)
    if leaf and getattr(module, "qconfig", None) is not None:
        return elements.QuantWrapper(module)
    for name, child in list(module.named_children()):
        module._modules[name] = add_quant_dequant(child)
    return module


def get_unique_devices_(module: Any) -> set:
    """The devices of a module's tensors."""
    return {t.device for t in [*module.parameters(), *module.buffers()]}


freeze_bn_stats, update_bn_stats = qat.freeze_bn_stats, qat.update_bn_stats

__all__ = [
    "add_quant_dequant", "convert", "freeze_bn_stats", "get_observer_state_dict",
    "load_observer_state_dict", "prepare", "prepare_qat",
    "propagate_qconfig_", "quantize", "quantize_dynamic", "quantize_qat", "swap_module",
    "update_bn_stats",
]  # fmt: skip
