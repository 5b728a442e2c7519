"""``torch.ao.quantization`` and the modules beside it, ``torchao.quantization``, and names at
torch's top level: ``disttrain.quantize``, loaded when one of them is first asked for."""

from __future__ import annotations

import importlib
from typing import Any

from ..publish import Shim

TOP = (
    "qint8", "quint8", "qint32", "qscheme", "per_tensor_affine", "per_tensor_symmetric",
    "per_channel_affine", "per_channel_symmetric", "per_channel_affine_float_qparams",
    "quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "int_repr",
    "q_scale", "q_zero_point", "q_per_channel_scales", "q_per_channel_zero_points",
    "q_per_channel_axis", "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
)  # fmt: skip
_HOME = "disttrain.quantize"
_AO, _NN = "torch.ao.quantization", "torch.ao.nn"
# Modules of torch -> ours that have their names.
_MODULES = {
    _AO: (
        "observers", "fake", "qconfig", "functions", "mappings", "fusing", "workflow",
        "layers.elements",
    ),
    f"{_AO}.observer": ("observers",),
    f"{_AO}.fake_quantize": ("fake",),
    f"{_AO}.qconfig": ("qconfig",),
    f"{_AO}.quantize": ("workflow",),
    f"{_AO}.stubs": ("layers.elements",),
    f"{_AO}.fuse_modules": ("fusing",),
    f"{_AO}.quantization_mappings": ("mappings",),
    f"{_NN}.quantized.modules": ("layers.linear", "layers.conv", "layers.embedding",
                                 "layers.elements"),
    f"{_NN}.quantized.dynamic": ("layers.recurrent",),
    f"{_NN}.intrinsic": ("layers.fused",),
    f"{_NN}.intrinsic.quantized": ("layers.conv", "layers.linear"),
    f"{_NN}.intrinsic.qat": ("layers.qat",),
    f"{_NN}.qat": ("layers.qat",),
}  # fmt: skip
_MODULES[f"{_NN}.quantized"] = _MODULES[f"{_NN}.quantized.modules"]
_MODULES[f"{_NN}.quantized.dynamic.modules"] = _MODULES[f"{_NN}.quantized.dynamic"]
_OLDER = {
    "torch.quantization": _AO,
    **{
        f"torch.quantization.{part}": f"{_AO}.{part}"
        for part in ("observer", "fake_quantize", "qconfig", "quantize", "stubs", "fuse_modules")
    },
    **{
        f"torch.nn.{part}": f"{_NN}.{part}"
        for part in ("quantized", "quantized.modules", "quantized.dynamic", "intrinsic",
                     "intrinsic.quantized", "intrinsic.qat", "qat")
    },
}  # fmt: skip


def _filled(sources: tuple[str, ...], dynamic: bool) -> Any:
    def fill(shim: Shim) -> None:
        for source in sources:
            found = importlib.import_module(f"{_HOME}.{source}")
            shim.give(**{name: getattr(found, name) for name in found.__all__})
        if dynamic:
            linear = importlib.import_module(f"{_HOME}.layers.linear")
            shim.give(Linear=linear.DynamicLinear)
        shim.give(default_eval_fn=_run_on)

    return fill


def _run_on(model: Any, calib_data: Any) -> None:
    """Run a prepared model on pairs of inputs and targets."""
    for data, _ in calib_data:
        model(data)


def modules() -> dict[str, Shim]:
    """All of them, parents before children."""
    found = {"torch.ao": Shim("torch.ao"), "torch.ao.nn": Shim("torch.ao.nn")}
    for name, sources in sorted(_MODULES.items()):
        found[name] = Shim(name).later(_filled(sources, "dynamic" in name))
    for name, same in sorted(_OLDER.items()):
        found[name] = Shim(name).later(_filled(_MODULES[same], "dynamic" in name))
    found["torchao"] = Shim("torchao")
    for name in ("torchao.quantization", "torchao.quantization.quant_api"):
        found[name] = Shim(name).later(
            lambda shim: Shim.take(shim, importlib.import_module(f"{_HOME}.configs"))
        )
    found["torch.backends.quantized"] = Shim("torch.backends.quantized").give(
        engine="x86", supported_engines=["qnnpack", "none", "onednn", "x86", "fbgemm"]
    )
    return found


def top(shim: Shim) -> None:
    """Give torch's top level its names of quantized tensors."""
    Shim.take(shim, importlib.import_module(_HOME), TOP)


__all__ = ["TOP", "modules", "top"]
