"""What else stands at TensorFlow's top: contexts, nests, assertions, strings, modules, tests."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import namedtuple
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from ...arrays import pieces, texts
from ...export.saved_objects import SavedObjects
from ...graphs import outside, programs
from ...graphs.cells import Container
from ...graphs.function import run_eagerly, runs_eagerly
from ..tables import passing
from . import arrays
from .debugging import DEBUGGING, Assert
from .dispatch import OPS, TEXT, execute, op, table
from .graph import Operation
from .tensor import GRAPH, SymbolicTensor, Tensor, _of_keras, convert, wrap
from .types import TensorSpec, as_dtype
from .variable import Variable


# --- functions of a program -------------------------------------------------------------------
def custom_gradient(f: Any = None) -> Any:
    """``f(*args)`` gives (its result, the function of its gradients)."""
    return custom_gradient if f is None else programs.explaining(OPS, f)


def py_function(func: Callable, inp: Iterable, Tout: Any = None, name: Any = None) -> Any:  # noqa: N803
    """A Python function as an operation, at every run."""
    alone = not isinstance(Tout, (list, tuple))
    specs = [k if isinstance(k, TensorSpec) else TensorSpec((), k)
             for k in ([Tout] if alone else Tout)]  # fmt: skip
    return programs.called(OPS, func, inp, specs, alone, "EagerPyFunc")


def print_(*inputs: Any, output_stream: Any = None, summarize: int = 3, sep: str = " ",
           end: str = "\n", name: Any = None) -> None:  # fmt: skip
    """Print at every run, to the standard error unless ``output_stream`` says otherwise."""
    programs.show(OPS, inputs, summarize, sep, end, output_stream or "stderr", "PrintV2")


# --- nests ------------------------------------------------------------------------------------
def map_structure(func: Callable, *structure: Any, **kwargs: Any) -> Any:
    """``func`` of the leaves of nested structures, in their structure."""
    tree.assert_alike(*structure)
    return tree.map(func, *map(tree.by_key, structure), with_none=True)


NEST: dict[str, Any] = {
    "map_structure": map_structure, "assert_same_structure": passing(
        "assert_same_structure", "nest1 nest2 _check_types=True _expand_composites=False",
        tree.assert_alike),
    "is_nested": lambda s: isinstance(s, (list, tuple, dict)),
    "flatten": lambda structure, expand_composites=False: tree.leaves(
        tree.by_key(structure), with_none=True),
    "pack_sequence_as": lambda structure, flat_sequence, expand_composites=False: tree.flatten(
        tree.by_key(structure), with_none=True)[1](list(flat_sequence)),
}  # fmt: skip


# --- contexts and settings --------------------------------------------------------------------
class _Named(contextlib.ContextDecorator, contextlib.nullcontext):
    """``tf.name_scope``, ``tf.device`` and the like: accepted; there is one device here."""

    def __init__(self, name: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(name)
        self.name = name


PhysicalDevice = namedtuple("PhysicalDevice", ["name", "device_type"])


def _devices(prefix: str) -> Callable:
    found = PhysicalDevice(f"{prefix}CPU:0", "CPU")
    return lambda device_type=None: [found] if device_type in (None, "CPU") else []


CONFIG: dict[str, Any] = {
    "list_physical_devices": _devices("/physical_device:"),
    "list_logical_devices": _devices("/device:"), "run_functions_eagerly": run_eagerly,
    "functions_run_eagerly": runs_eagerly,
    "get_visible_devices": _devices("/physical_device:"),
    "set_visible_devices": lambda devices, device_type=None: None,
    "set_soft_device_placement": lambda enabled: None,
}  # fmt: skip


# --- modules ----------------------------------------------------------------------------------
class Module(Container):
    """A named container of variables and other modules, found among its attributes."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or "".join(f"_{c.lower()}" if c.isupper() else c
                                     for c in type(self).__name__).lstrip("_")  # fmt: skip

    name = property(lambda self: self.__dict__.get("_name") or type(self).__name__.lower())
    name_scope = property(lambda self: _Named(self.name))
    with_name_scope = classmethod(lambda cls, method: method)

    def _is_variable(self, value: Any) -> bool:
        return isinstance(value, Variable) or _of_keras(value)

    def _parts_of(self, value: Any) -> list:
        keras = type(value).__module__.startswith("keras.")
        return super()._parts_of(getattr(value, "variables", ()) if keras else value)


# --- strings and files ------------------------------------------------------------------------
def _joined(inputs: Any, separator: str = "", name: Any = None) -> Any:
    parts = [convert(i) for i in inputs]
    return execute("StringJoin", lambda *v: texts.joined(v, separator.encode()), parts, name)


TEXT |= {kind: {"string": fn} for kind, fn in (
    ("AddV2", lambda a, b: np.asarray(a + b, object)), ("Equal", texts.equal),
    ("NotEqual", lambda a, b: ~texts.equal(a, b)))}  # fmt: skip
STRINGS: dict[str, Any] = table({
    **{w: (f"String{w.title()}", lambda x, fn=fn, kind=kind: texts.each(fn, x, kind=kind),
           "input! _encoding=''") for w, fn, kind in (
        ("lower", bytes.lower, None), ("upper", bytes.upper, None), ("strip", bytes.strip, None),
        ("length", len, dt.int32))},
    "substr": ("Substr", lambda x, pos, count: texts.each(
        lambda text: text[pos : pos + count], x), "input! pos len _unit='BYTE'"),
    "to_number": ("StringToNumber", lambda x, kind: texts.each(
        texts.number, x, kind=dt.float64).to(kind), "input! out_type@='float32'"),
    "as_string": ("AsString", texts.of_numbers, "input! precision=-1 _scientific=False "
                  "_shortest=False _width=-1 _fill=''"),
}) | {"join": _joined}  # fmt: skip
as_string = STRINGS["as_string"]


def _path(name: Any) -> Path:
    return Path(name if isinstance(name, (str, Path)) else convert(name).numpy().decode())


def read_file(filename: Any, name: Any = None) -> Any:
    """The bytes of a file."""
    return convert(_path(filename).read_bytes())


def write_file(filename: Any, contents: Any, name: Any = None) -> None:
    """Write bytes to a file."""
    text = contents if isinstance(contents, bytes) else convert(contents).numpy()
    _path(filename).write_bytes(text)


def gradients_of_graphs(*args: Any, **kwargs: Any) -> Any:
    """``tf.gradients`` belongs to TensorFlow 1's graphs."""
    raise RuntimeError("tf.gradients is not supported when eager execution is enabled. Use "
                       "tf.GradientTape instead.")  # fmt: skip


NAMES: dict[str, Any] = {
    "custom_gradient": custom_gradient, "print": print_, "Module": Module, "newaxis": None,
    "recompute_grad": lambda f: programs.recomputed(OPS, f), "py_function": py_function,
    "numpy_function": passing(
        "numpy_function", "func=None inp=None Tout=None _stateful=True _name=None",
        lambda func, inp, out: py_function(lambda *v: func(*[x.numpy() for x in v]), inp, out)),
    **dict.fromkeys(("name_scope", "device", "control_dependencies"), _Named),
    "ensure_shape": op("ensure_shape", "EnsureShape", pieces.ensured, "x! shape"),
    "grad_pass_through": op("grad_pass_through", "PreventGradient", lambda x: x, "input!"),
    "executing_eagerly": lambda: GRAPH.get() is None, "gradients": gradients_of_graphs,
    "inside_function": lambda: GRAPH.get() is not None, "init_scope": outside, "Assert": Assert,
    **{word: DEBUGGING[word] for word in ("assert_equal", "assert_less", "assert_greater")},
    "group": lambda *inputs, **k: None, "no_op": lambda name=None: None, "Operation": Operation,
    "is_symbolic_tensor": lambda t: isinstance(t, SymbolicTensor), "Tensor": Tensor,
    "identity_n": lambda xs, name=None: [arrays.identity(x) for x in xs],
    "timestamp": lambda name=None: convert(time.time(), "float64"),
    "get_logger": lambda: logging.getLogger("tensorflow"),
}  # fmt: skip
SAVED = SavedObjects(Module, lambda v: getattr(v, "_cell", None), lambda t, on, name: Variable(
    wrap(t), on, name=name), wrap, lambda v, of: convert(v, as_dtype(of))._value)  # fmt: skip
