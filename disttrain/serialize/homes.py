"""Earlier homes of classes and functions that files may name, and the modules they are in now."""

from __future__ import annotations

# The layers stood beside ``nn.module`` before they had a package of their own.
_LAYERS = (
    *("activation", "attention", "batchnorm", "containers", "conv", "dropout", "embedding"),
    *("lazy", "linear", "loss", "normalization", "pooling", "rnn", "shape", "syncnorm"),
    "transformer",
)
# Functions that a layer may hold (an activation) stood beside each other.
_FUNCTIONS = {
    "nn": "attention conv embedding loss norm padding pool softmax sync_norm",
    "creation": "create moving",
    "views": "aliases join split",
}
_NOW = {
    **{f"disttrain.nn.{name}": f"disttrain.nn.modules.{name}" for name in _LAYERS},
    **{
        f"disttrain.ops.functions.{name}": f"disttrain.ops.functions.{folder}.{name}"
        for folder, names in _FUNCTIONS.items()
        for name in names.split()
    },
    "disttrain.ops.functions.views": "disttrain.ops.functions.views.shapes",
    "disttrain.comm.reduce_ops": "disttrain.comm.calls.reduce_ops",
}


def present(name: str) -> str:
    """``module:name`` with the module's present home; any other name as it is."""
    module, colon, path = name.partition(":")
    return f"{_NOW.get(module, module)}{colon}{path}"
