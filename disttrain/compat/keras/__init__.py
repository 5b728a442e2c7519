"""The real Keras 3 on disttrain, without PyTorch: ``import disttrain.compat.keras as keras``.

    python -m disttrain.compat.keras fit.py
    dtrun --nproc-per-node 4 fit.py

Keras' torch backend computes with the stand-in for torch: importing this module publishes it, has
Keras take that backend, imports Keras, and gives ``keras.distribution`` the ranks that a launcher
has started. Names of this module are Keras' own; programs may say ``import keras`` after it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from importlib.metadata import version
from typing import Any

import disttrain as dt

from ...errors import ConfigError
from ..publish import MissingModule
from ..torch import install as install_torch

_HOW = "pip install 'disttrain[keras]'"
_BACKEND = "KERAS_BACKEND"  # which Keras reads when it is imported


def _check() -> None:
    """That there is a Keras that fits, and that none is at work with another backend."""
    if importlib.util.find_spec("keras") is None:
        raise MissingModule(f"disttrain.compat.keras: Keras is not installed; {_HOW}")
    found = version("keras")
    if not (3, 15) <= tuple(int(n) for n in found.split(".")[:2]) < (4, 0):
        raise ConfigError(f"disttrain.compat.keras: Keras {found}; needed 3.15 to below 4; {_HOW}")
    present = sys.modules.get("keras")
    chosen = present.backend.backend() if present else os.environ.get(_BACKEND, "torch")
    if chosen != "torch":
        raise ConfigError(
            f"disttrain.compat.keras: Keras' backend is {chosen!r}, and disttrain stands in for "
            f"torch; unset {_BACKEND}, and import disttrain.compat.keras before keras"
        )


def _recognise() -> None:
    """Have Keras know tensors, datasets and loaders by their classes, not by modules' names."""
    for module, name, kind in (
        ("trainers.data_adapters", "is_torch_dataloader", dt.data.DataLoader),
        ("trainers.data_adapters.data_adapter_utils", "is_torch_tensor", dt.Tensor),
        ("utils.dataset_utils", "is_torch_dataset", dt.data.Dataset),
    ):
        known = lambda value, kind=kind: isinstance(value, kind)  # noqa: E731
        setattr(importlib.import_module(f"keras.src.{module}"), name, known)


def install() -> Any:
    """Have ``import keras`` mean Keras on disttrain, and give it; a second call changes nothing."""
    _check()
    install_torch()
    os.environ[_BACKEND] = "torch"
    keras = importlib.import_module("keras")
    _recognise()
    importlib.import_module(f"{__name__}.data_parallel").hook()
    return keras


_keras = install()
__getattr__, __dir__ = functools.partial(getattr, _keras), functools.partial(dir, _keras)
