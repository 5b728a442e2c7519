"""TensorFlow 2's names over disttrain: ``import disttrain.compat.tensorflow as tf``.

    python -m disttrain.compat.tensorflow train.py
    dtrun --as-tensorflow --nproc-per-node 4 train.py

put it under TensorFlow's own name. Names and conventions: eager tensors and variables, gradient
tapes, traced functions with AutoGraph; ``tf.keras`` is the real Keras (``keras``). What a tensor
is here, and why, stands in ``tensor``.
"""

from __future__ import annotations

import unittest
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
    tensor,
    toplevel,
    train,
    types,
    variable,
)

VERSION = "2.21.0"
ROOT = "tensorflow"


def install() -> None:
    """Publish the stand-in under TensorFlow's name. Calling it again changes nothing."""
    if not refuse_real(ROOT, "compat.tensorflow"):
        publish(build(), {}, VERSION)


class _Later(Shim):
    """A part that this version lacks: it says which."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name)
        self.__dict__["_what"] = what

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingName(f"{self.__name__}.{name}: {self.__dict__['_what']}")


_RAGGED = (
    "ragged and sparse tensors are not part of this stand-in; pad (tf.keras.utils.pad_sequences)"
)
_SAVED = (
    "saved models are not written yet; save weights by tf.train.Checkpoint, or a Keras model by "
    "model.save"
)


def build() -> dict[str, Shim]:
    """All modules of the stand-in, parents before children."""
    return _MODULES


def _built() -> dict[str, Shim]:
    top = _top()
    found = {
        ROOT: top,
        **_module("math", math.NAMES), **_module("nn", nn.NAMES, **distribute.NN),
        **_module("linalg", linalg.LINALG, global_norm=nn.global_norm),
        **_module("linalg.experimental", {}),
        **_module("signal", linalg.SIGNAL), **_module("image", linalg.IMAGE),
        **_module("random", random.NAMES),
        **_module("random.experimental", {n: random.NAMES[n] for n in (
            "Generator", "get_global_generator", "set_global_generator")},
            stateless_split=random.NAMES["split"], stateless_fold_in=random.NAMES["fold_in"]),
        **_module("bitwise", math.BITS), **_module("errors", errors.NAMES),
        **_module("debugging", debugging.DEBUGGING), **_module("nest", toplevel.NEST),
        **_module("strings", toplevel.STRINGS), **_module("config", toplevel.CONFIG),
        **_module("config.experimental", {n: toplevel.CONFIG[n] for n in (
            "list_physical_devices", "list_logical_devices")},
            set_memory_growth=lambda device, enable: None,
            enable_op_determinism=lambda: None),
        **_module("config.threading", _threads()), **_module("config.optimizer", _optimizer()),
        **_module("io", records.IO, read_file=toplevel.read_file, write_file=toplevel.write_file),
        **_module("data", data.NAMED), **_module("data.experimental", data.EXPERIMENTAL),
        **_module("train", train.NAMED), **_module("distribute", distribute.NAMED),
        **_module("distribute.experimental", distribute.EXPERIMENTAL),
        **_module("distribute.cluster_resolver", distribute.RESOLVERS),
        **_module("summary", summary.NAMED),
        **_module("summary.experimental", summary.EXPERIMENTAL),
        **_module("dtypes", types.DTYPES, DType=types.DType, as_dtype=types.as_dtype,
            cast=math.cast),
        **_module("autograph", {"to_code": _no_code, "set_verbosity": lambda *a, **k: None}),
        **_module("autograph.experimental", {"do_not_convert": do_not_convert,
                                             "set_loop_options": lambda **k: None}),
        **_module("test", {"TestCase": debugging.TestCase, "main": unittest.main,
                           "is_gpu_available": lambda *a, **k: False,
                           "is_built_with_cuda": lambda: False}),
        **_module("version", {"VERSION": VERSION, "GIT_VERSION": "disttrain"}),
        **{f"{ROOT}.{n}": _Later(f"{ROOT}.{n}", _RAGGED) for n in ("ragged", "sparse")},
        f"{ROOT}.saved_model": _Later(f"{ROOT}.saved_model", _SAVED),
        **keras.modules(),
    }  # fmt: skip
    for name, module in found.items():  # (published or not, a module has its parts)
        parent, _, child = name.rpartition(".")
        if parent:
            vars(found[parent]).setdefault(child, module)
    return found


def _module(name: str, names: dict, **more: Any) -> dict[str, Shim]:
    return {f"{ROOT}.{name}": Shim(f"{ROOT}.{name}").give(**names, **more)}


def _top() -> Shim:
    return (
        Shim(ROOT)
        .give(**{n: math.NAMES[n] for n in math.TOP}, **math.EXTRA, **arrays.NAMES, **nn.TOP)
        .give(**control.NAMES, **toplevel.NAMES, **types.DTYPES)
        .give(
            __version__=VERSION, Variable=variable.Variable, GradientTape=tape.GradientTape,
            IndexedSlices=variable.IndexedSlices, function=function.function,
            TensorShape=types.TensorShape, TensorSpec=types.TensorSpec, DType=types.DType,
            as_dtype=types.as_dtype, as_string=toplevel.as_string, norm=linalg.LINALG["norm"],
            UnconnectedGradients=tape.UnconnectedGradients, half=types.DTYPES["float16"],
            double=types.DTYPES["float64"], matmul=math.matmul,
            RaggedTensor=_Absent, SparseTensor=_Absent,
            **{n: math.NAMES[n] for n in ("reduce_any", "reduce_all")},
        )
    )  # fmt: skip


class _Absent:
    """Ragged and sparse tensors: no value is one, and none can be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise MissingName(_RAGGED)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


def _threads() -> dict[str, Any]:
    return {f"{verb}_{kind}_op_parallelism_threads": (lambda *a: 0) for verb in ("get", "set")
            for kind in ("inter", "intra")}  # fmt: skip


def _optimizer() -> dict[str, Any]:
    return {"set_jit": lambda enabled: None, "get_jit": lambda: "",
            "set_experimental_options": lambda options: None,
                "get_experimental_options": dict}  # fmt: skip


def _no_code(*args: Any, **kwargs: Any) -> str:
    raise MissingName(lacking("tensorflow.autograph.to_code", control))


_MODULES = _built()


# TensorFlow's names in place of this package's own modules, some of which are called alike.
globals().update({n: v for n, v in vars(_MODULES[ROOT]).items() if not n.startswith("_")})
globals().update({n.partition(".")[2]: m for n, m in _MODULES.items() if n.count(".") == 1})
__version__ = VERSION


def __getattr__(name: str) -> Any:
    return getattr(_MODULES[ROOT], name)


def __dir__() -> list[str]:
    return sorted({*dir(_MODULES[ROOT]), *(n for n in globals() if not n.startswith("_"))})


__all__ = ["build", "install"]
