"""TensorFlow 2's names over disttrain: ``import disttrain.compat.tensorflow as tf``.

    python -m disttrain.compat.tensorflow train.py
    dtrun --as-tensorflow --nproc-per-node 4 train.py

put it under TensorFlow's own name. Names and conventions: eager tensors and variables, gradient
tapes, traced functions with AutoGraph; ``tf.keras`` is the real Keras (``keras``). What a tensor
is here, and why, stands in ``tensor``.
"""

from __future__ import annotations

from typing import Any

from ...compile.autograph import do_not_convert
from .. import publish as _publish
from . import (
    arrays,
    control,
    data,
    debugging,
    distribute,
    errors,
    files,
    function,
    keras,
    math,
    random,
    tape,
    toplevel,
    types,
    variable,
)
from .tensor_array import TensorArray

VERSION = "2.21.0"
ROOT = "tensorflow"
_RAGGED = (
    "ragged and sparse tensors are not part of this stand-in; pad (tf.keras.utils.pad_sequences)"
)


def install() -> None:
    """Publish the stand-in under TensorFlow's name. Calling it again changes nothing."""
    if not _publish.refuse_real(ROOT, "compat.tensorflow"):
        _publish.publish(build(), {}, VERSION)


def build() -> dict[str, _publish.Shim]:
    """All modules of the stand-in, parents before children."""
    return _MODULES


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What is accepted, and has no effect here."""


def _some(names: dict[str, Any], words: str) -> dict[str, Any]:
    return {word: names[word] for word in words.split()}


_NAMES: dict[str, dict[str, Any]] = {
    "": {
        **_some(math.NAMES, math.TOP), **math.EXTRA, **arrays.NAMES, **math.CLIPS, **control.NAMES,
        **toplevel.NAMES, **types.DTYPES, **types.NAMES, "__version__": VERSION,
        "Variable": variable.Variable, "IndexedSlices": variable.IndexedSlices,
        "GradientTape": tape.GradientTape, "UnconnectedGradients": tape.UnconnectedGradients,
        "function": function.function, "TensorArray": TensorArray, "norm": math.LINALG["norm"],
        "RaggedTensor": _publish.absent(_RAGGED), "SparseTensor": _publish.absent(_RAGGED),
        "as_string": toplevel.as_string},
    "math": math.NAMES,
    "nn": {**math.NN, **distribute.NN, "embedding_lookup": arrays.embedding_lookup},
    "linalg": {**math.LINALG, "global_norm": math.global_norm}, "linalg.experimental": {},
    "signal": math.SIGNAL, "image": math.IMAGE, "random": random.NAMES,
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
    "io": {**files.IO, "read_file": toplevel.read_file, "write_file": toplevel.write_file},
    "data": data.NAMED, "data.experimental": data.EXPERIMENTAL, "train": files.TRAIN,
    "distribute": distribute.NAMED, "distribute.experimental": distribute.EXPERIMENTAL,
    "distribute.cluster_resolver": distribute.RESOLVERS, "summary": files.SUMMARY,
    "summary.experimental": files.SUMMARY_EXPERIMENTAL,
    "dtypes": {**types.DTYPES, **_some(types.NAMES, "DType as_dtype half double"),
               "cast": math.cast},
    "autograph": {"set_verbosity": _nothing},
    "autograph.experimental": {"do_not_convert": do_not_convert, "set_loop_options": _nothing},
    "test": debugging.TEST, "saved_model": toplevel.SAVED.names(),
    "version": {"VERSION": VERSION, "GIT_VERSION": "disttrain"},
}  # fmt: skip
_MODULES = _publish.assembled(
    ROOT, _NAMES, *keras.modules().values(), *(
        _publish.Absent(f"{ROOT}.{n}", _RAGGED) for n in ("ragged", "sparse")))  # fmt: skip
# TensorFlow's names in place of this package's own modules, some of which are called alike.
globals().update({n: v for n, v in vars(_MODULES[ROOT]).items() if not n.startswith("_")})
__version__ = VERSION
__getattr__ = _publish.missing(_MODULES[ROOT])
__all__ = ["build", "install"]
