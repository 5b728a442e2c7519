"""Earlier homes of classes: where the modules are now that files written before name."""

from __future__ import annotations

# The layers stood beside ``nn.module`` before they had a package of their own.
_LAYERS = (
    *("activation", "attention", "batchnorm", "containers", "conv", "dropout", "embedding"),
    *("lazy", "linear", "loss", "normalization", "pooling", "rnn", "shape", "syncnorm"),
    "transformer",
)
_NOW = {f"disttrain.nn.{name}": f"disttrain.nn.modules.{name}" for name in _LAYERS}


def present(name: str) -> str:
    """``module:name`` with the module's present home; any other name as it is."""
    module, colon, path = name.partition(":")
    return f"{_NOW.get(module, module)}{colon}{path}"
