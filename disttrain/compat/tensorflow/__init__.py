"""TensorFlow 2's names over disttrain: ``import disttrain.compat.tensorflow as tf``.

    python -m disttrain.compat.tensorflow train.py
    dtrun --as-tensorflow --nproc-per-node 4 train.py

put it under TensorFlow's own name. Names and conventions: eager tensors and variables, gradient
tapes, traced functions with AutoGraph; ``tf.keras`` is the real Keras (``keras``). What a tensor
is here, and why, stands in ``tensor``.
"""

from __future__ import annotations

import unittest
from importlib import import_module
from typing import Any

from ...compile.autograph import do_not_convert
from ..publish import MissingName, Shim, lacking, publish, refuse_real
from . import (
    arrays,
    control,
    data,
    debugging,
    distribute,
    errors,
    function,
    keras,
    linalg,
    math,
    nn,
    random,
    records,
    summary,
    tape,
    toplevel,
    train,
    types,
    variable,
)
from .tensor_array import TensorArray

VERSION = "2.21.0"
ROOT = "tensorflow"


def install() -> None:
    """Publish the stand-in under TensorFlow's name. Calling it again changes nothing."""
    if not refuse_real(ROOT, "compat.tensorflow"):
        publish(build(), {}, VERSION)


class _Later(Shim):
    """A part that this version lacks: it says which."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{ROOT}.{name}")
        self.__dict__["_what"] = what

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingName(f"{self.__name__}.{name}: {self.__dict__['_what']}")


_RAGGED = (
    "ragged and sparse tensors are not part of this stand-in; pad (tf.keras.utils.pad_sequences)"
)


def build() -> dict[str, Shim]:
    """All modules of the stand-in, parents before children."""
    return _MODULES


class _Absent:
    """Ragged and sparse tensors: no value is one, and none can be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise MissingName(_RAGGED)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What is accepted, and has no effect here."""


def _no_code(*args: Any, **kwargs: Any) -> str:
    raise MissingName(lacking("tensorflow.autograph.to_code", control))


def _some(names: dict[str, Any], words: str) -> dict[str, Any]:
    return {word: names[word] for word in words.split()}


_TOP: dict[str, Any] = {
    **_some(math.NAMES, " ".join(math.TOP)), **math.EXTRA, **arrays.NAMES, **nn.TOP,
    **control.NAMES, **toplevel.NAMES, **types.DTYPES, "__version__": VERSION,
    "Variable": variable.Variable, "GradientTape": tape.GradientTape,
    "IndexedSlices": variable.IndexedSlices, "function": function.function,
    "TensorShape": types.TensorShape, "TensorSpec": types.TensorSpec, "TypeSpec": types.TypeSpec,
    "TensorArray": TensorArray, "DType": types.DType,
    "as_dtype": types.as_dtype, "as_string": toplevel.as_string, "norm": linalg.LINALG["norm"],
    "UnconnectedGradients": tape.UnconnectedGradients, "half": types.DTYPES["float16"],
    "double": types.DTYPES["float64"], "RaggedTensor": _Absent, "SparseTensor": _Absent,
}  # fmt: skip
_NAMES: dict[str, dict[str, Any]] = {
    "math": math.NAMES, "nn": nn.NAMES | distribute.NN,
    "linalg": {**linalg.LINALG, "global_norm": nn.global_norm}, "linalg.experimental": {},
    "signal": linalg.SIGNAL, "image": linalg.IMAGE, "random": random.NAMES,
    "random.experimental": {
        **_some(random.NAMES, "Generator get_global_generator set_global_generator"),
        "stateless_split": random.NAMES["split"], "stateless_fold_in": random.NAMES["fold_in"]},
    "bitwise": math.BITS, "errors": errors.NAMES, "debugging": debugging.DEBUGGING,
    "nest": toplevel.NEST, "strings": toplevel.STRINGS, "config": toplevel.CONFIG,
    "config.experimental": {
        **_some(toplevel.CONFIG, "list_physical_devices list_logical_devices"),
        "set_memory_growth": _nothing, "enable_op_determinism": _nothing},
    "config.threading": {f"{verb}_{kind}_op_parallelism_threads": lambda *a: 0
                         for verb in ("get", "set") for kind in ("inter", "intra")},
    "config.optimizer": {"set_jit": _nothing, "get_jit": lambda: "",
                         "set_experimental_options": _nothing, "get_experimental_options": dict},
    "io": {**records.IO, "read_file": toplevel.read_file, "write_file": toplevel.write_file},
    "data": data.NAMED, "data.experimental": data.EXPERIMENTAL, "train": train.NAMED,
    "distribute": distribute.NAMED, "distribute.experimental": distribute.EXPERIMENTAL,
    "distribute.cluster_resolver": distribute.RESOLVERS, "summary": summary.NAMED,
    "summary.experimental": summary.EXPERIMENTAL,
    "dtypes": {**types.DTYPES, "DType": types.DType, "as_dtype": types.as_dtype,
               "cast": math.cast},
    "autograph": {"to_code": _no_code, "set_verbosity": _nothing},
    "autograph.experimental": {"do_not_convert": do_not_convert, "set_loop_options": _nothing},
    "test": {"TestCase": debugging.TestCase, "main": unittest.main,
             "is_gpu_available": lambda *a, **k: False, "is_built_with_cuda": lambda: False},
    "version": {"VERSION": VERSION, "GIT_VERSION": "disttrain"},
}  # fmt: skip
_MODULES: dict[str, Shim] = {
    ROOT: Shim(ROOT).give(**_TOP),
    **{f"{ROOT}.{n}": Shim(f"{ROOT}.{n}").give(**names) for n, names in _NAMES.items()},
    **{f"{ROOT}.{n}": _Later(n, what) for n, what in (
        ("ragged", _RAGGED), ("sparse", _RAGGED))},
    f"{ROOT}.saved_model": Shim(f"{ROOT}.saved_model").later(lambda shim, f=function:  # type: ignore[misc]
        shim.give(**import_module("disttrain.export.traced").names(f.wrap, f.convert))),
    **keras.modules(),
}  # fmt: skip
for _name, _module in _MODULES.items():  # (published or not, a module has its parts)
    _parent, _, _child = _name.rpartition(".")
    if _parent:
        vars(_MODULES[_parent]).setdefault(_child, _module)
# TensorFlow's names in place of this package's own modules, some of which are called alike.
globals().update({n: v for n, v in vars(_MODULES[ROOT]).items() if not n.startswith("_")})
globals().update({n.partition(".")[2]: m for n, m in _MODULES.items() if n.count(".") == 1})
__version__ = VERSION


def __getattr__(name: str) -> Any:
    return getattr(_MODULES[ROOT], name)


def __dir__() -> list[str]:
    return sorted({*dir(_MODULES[ROOT]), *(n for n in globals() if not n.startswith("_"))})


__all__ = ["build", "install"]
