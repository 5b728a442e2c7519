"""Earlier homes of classes and functions that files may name, and where they are now: by a table
of modules, or, of what has a public name, by that name. Knows names alone."""

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
    "disttrain.ops.functions.creation.sparse": "disttrain.ops.functions.sparse.creation",
    "disttrain.ops.functions.sparse": "disttrain.ops.functions.sparse.creation",
    **{
        f"disttrain.distributions.{name}": f"disttrain.distributions.transforms.{name}"
        for name in ("bijections", "coordinates", "joined", "transform")
    },
    "disttrain.ops.functions.views": "disttrain.ops.functions.views.shapes",
    "disttrain.comm.reduce_ops": "disttrain.comm.calls.reduce_ops",
    "disttrain.distributed.ddp.caps": "disttrain.distributed.ddp.reducer.caps",
    "disttrain.distributed.ddp.mixed": "disttrain.distributed.ddp.reducer.mixed_precision",
    "disttrain.distributed.fsdp.flat": "disttrain.distributed.fsdp.flat.layout",
    "disttrain.distributed.fsdp.flat_param": "disttrain.distributed.fsdp.flat.param",
}


def present(name: str) -> str:
    """``module:name`` with the module's present home; any other name as it is."""
    module, colon, path = name.partition(":")
    return f"{_NOW.get(module, module)}{colon}{path}"


# Where users find what the modules of a package define.
_OFFERS = {
    "disttrain.comm": ("disttrain.distributed",),
    "disttrain.core": ("disttrain", "disttrain.autograd"),
    "disttrain.data": ("disttrain.data",),
    "disttrain.distributed": (
        "disttrain.distributed",
        "disttrain.distributed.fsdp",
        "disttrain.rpc",
    ),
    "disttrain.nn": ("disttrain.nn", "disttrain.nn.functional"),
    "disttrain.ops": ("disttrain", "disttrain.nn.functional"),
    "disttrain.optim": ("disttrain.optim",),
}


def public(name: str) -> list[str]:
    """What ``module:name`` may be known as to users, whichever module defines it now."""
    module, _, path = name.partition(":")
    package = ".".join(module.split(".")[:2])
    return [f"{place}:{path}" for place in _OFFERS.get(package, ())]
