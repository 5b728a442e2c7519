"""What else stands at TensorFlow's top: contexts, nests, assertions, strings, modules, tests."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import disttrain as dt

from ... import tree
from ...arrays import texts
from ...autograd.pulled import explained
from ...export.saved_objects import SavedObjects
from ...graphs import effect, outside
from . import arrays, math
from .debugging import DEBUGGING, Assert
from .dispatch import TEXT, execute, in_keras, op
from .function import functions_run_eagerly, run_functions_eagerly
from .graph import Operation
from .tensor import GRAPH, SymbolicTensor, Tensor, _of_keras, convert, is_tensor, wrap
from .types import TensorShape, TensorSpec, as_dtype
from .variable import Variable


# --- gradients of a program's own -------------------------------------------------------------
def _operation(f: Callable, run: Callable[..., tuple]) -> Callable:
    """``f`` as one operation: ``run(of_tensors, *values)`` gives its results, and how they are put
    together."""

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        form: list[Any] = []
        failed: list[Exception] = []

        def call(*values: Any) -> Any:
            failed.clear()
            try:
                outs, form[:] = run(lambda *ts: f(*ts, **kwargs), *values)
            except Exception as error:
                failed.append(error)  # the program's own
                raise
            return outs

        try:
            outs = execute(f.__name__, call, [convert(a) for a in args])
        except Exception as error:
            raise (failed[0] if failed else error) from None
        return form[0](list(outs) if isinstance(outs, tuple) else [outs])

    return function


def _inner(value: Any) -> Any:
    return convert(value)._value


def custom_gradient(f: Any = None) -> Any:
    """``f(*args)`` gives (its result, the function of its gradients)."""

    def run(fn: Callable, *values: Any) -> tuple:
        with outside():  # recorded: the function of gradients may be differentiated
            outs, rebuild = explained(fn, values, wrap, _inner)
        return tuple(outs), [rebuild]

    return custom_gradient if f is None else _operation(f, run)


def recompute_grad(f: Callable) -> Callable:
    """``f`` whose intermediate values are computed again for gradients."""

    def run(fn: Callable, *values: Any) -> tuple:
        form: list[Any] = []

        def call(*given: Any) -> tuple:
            with in_keras():  # what runs again is recorded, without a tape
                leaves, rebuild = tree.flatten(fn(*map(wrap, given)))
            form[:] = [rebuild]
            return tuple(map(_inner, leaves))

        return dt.autograd.checkpoint(call, *values, use_reentrant=False), form

    return _operation(f, run)


grad_pass_through = op("grad_pass_through", "PreventGradient", lambda x: x, "input!")


# --- printing and Python ----------------------------------------------------------------------
def print_(*inputs: Any, output_stream: Any = None, summarize: int = 3, sep: str = " ",
           end: str = "\n", name: Any = None) -> None:  # fmt: skip
    """Print at every run, to the standard error unless ``output_stream`` says otherwise."""
    leaves, rebuild = tree.flatten(list(inputs))
    at = [i for i, v in enumerate(leaves) if is_tensor(v)]

    def call(*values: Any) -> None:
        now = list(leaves)
        for i, v in zip(at, values, strict=True):
            now[i] = _Shown(texts.brief(wrap(v).numpy(), summarize))
        streams = {"stdout": sys.stdout, "stderr": sys.stderr, None: sys.stderr}
        named = output_stream is None or isinstance(output_stream, str)
        stream = streams[output_stream] if named else output_stream
        stream.write(sep.join(str(v) for v in rebuild(now)) + end)
        stream.flush()

    effect("PrintV2", call, [convert(leaves[i]) for i in at])


class _Shown(str):
    """A text that stands in nested structures as it is."""

    __repr__ = str.__str__


def py_function(func: Callable, inp: Iterable, Tout: Any = None, name: Any = None) -> Any:  # noqa: N803
    """A Python function as an operation, at every run."""
    given = [convert(v) for v in inp]
    kinds = [Tout] if not isinstance(Tout, (list, tuple)) else list(Tout)
    specs = [k if isinstance(k, TensorSpec) else TensorSpec((), k) for k in kinds]

    def call(*values: Any) -> Any:
        if GRAPH.get() is not None:
            found = [dt.zeros([n or 1 for n in s.shape], dtype=s.dtype.inner) for s in specs]
        else:
            out = func(*[wrap(v) for v in values])
            rows = out if isinstance(out, (list, tuple)) else [out]
            pairs = zip(rows, specs, strict=False)
            found = [convert(r, hint=s.dtype)._value for r, s in pairs]
        return found if isinstance(Tout, (list, tuple)) else found[0]

    return execute("EagerPyFunc", call, given)


def numpy_function(func: Callable | None = None, inp: Any = None, Tout: Any = None,  # noqa: N803
                   stateful: bool = True, name: Any = None) -> Any:  # fmt: skip
    """As ``py_function``, of numpy's arrays."""
    return py_function(lambda *v: func(*[x.numpy() for x in v]), inp, Tout)  # type: ignore[misc]


# --- nests ------------------------------------------------------------------------------------
def map_structure(func: Callable, *structure: Any, **kwargs: Any) -> Any:
    """``func`` of the leaves of nested structures, in their structure."""
    for other in structure[1:]:
        assert_same_structure(structure[0], other)
    return tree.map(func, *structure, with_none=True)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, **kwargs: Any) -> None:
    """Raise unless two nested structures are alike."""
    if len(tree.leaves(nest1, with_none=True)) != len(tree.leaves(nest2, with_none=True)):
        raise ValueError(
            "The two structures don't have the same nested structure.\n\nFirst structure: type="
            f"{type(nest1).__name__} str={nest1}\n\nSecond structure: type={type(nest2).__name__} "
            f"str={nest2}"
        )


NEST: dict[str, Any] = {
    "map_structure": map_structure, "assert_same_structure": assert_same_structure,
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


class PhysicalDevice(NamedTuple):
    """A device of this machine."""

    name: str
    device_type: str


def _devices(prefix: str) -> Callable:
    found = PhysicalDevice(f"{prefix}CPU:0", "CPU")
    return lambda device_type=None: [found] if device_type in (None, "CPU") else []


CONFIG: dict[str, Any] = {
    "list_physical_devices": _devices("/physical_device:"),
    "list_logical_devices": _devices("/device:"), "run_functions_eagerly": run_functions_eagerly,
    "functions_run_eagerly": functions_run_eagerly,
    "get_visible_devices": _devices("/physical_device:"),
    "set_visible_devices": lambda devices, device_type=None: None,
    "set_soft_device_placement": lambda enabled: None,
}  # fmt: skip


# --- modules ----------------------------------------------------------------------------------
class Module:
    """A named container of variables and other modules, found among its attributes."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or "".join(f"_{c.lower()}" if c.isupper() else c
                                     for c in type(self).__name__).lstrip("_")  # fmt: skip

    name = property(lambda self: self.__dict__.get("_name") or type(self).__name__.lower())
    name_scope = property(lambda self: _Named(self.name))

    @classmethod
    def with_name_scope(cls, method: Callable) -> Callable:
        return method

    def _found(self, wanted: Callable[[Any], bool]) -> tuple:
        return tuple(v for v in tree.below(self, _parts) if wanted(v))

    variables = property(lambda self: self._found(_is_variable))
    trainable_variables = property(lambda self: tuple(v for v in self.variables if v.trainable))
    non_trainable_variables = property(
        lambda self: tuple(v for v in self.variables if not v.trainable)
    )
    submodules = property(lambda self: self._found(lambda v: isinstance(v, Module)))


def _parts(value: Any) -> list:
    """What is among the attributes, elements or variables of ``value``."""
    if isinstance(value, (Module, dict)):
        known = vars(value) if isinstance(value, Module) else value
        return [known[k] for k in sorted(known, key=str)]
    keras = type(value).__module__.startswith("keras.")
    row = getattr(value, "variables", ()) if keras else value
    return list(row) if isinstance(row, (list, tuple)) else []


def _is_variable(value: Any) -> bool:
    return isinstance(value, Variable) or _of_keras(value)


# --- strings and files ------------------------------------------------------------------------
def _each(fn: Callable, kind: Any = None) -> Callable:
    def function(input: Any, *args: Any, name: Any = None, **kwargs: Any) -> Any:  # noqa: A002
        def call(array: Any) -> Any:
            return texts.each(fn, array, *args, *kwargs.values(), kind=kind)

        return execute("Strings", call, [convert(input)], name)

    return function


def _joined(inputs: Any, separator: str = "", name: Any = None) -> Any:
    parts = [convert(i) for i in inputs]
    return execute("StringJoin", lambda *v: texts.joined(v, separator.encode()), parts, name)


as_string = op("as_string", "AsString", texts.of_numbers, "input! precision=-1 _scientific=False "
               "_shortest=False _width=-1 _fill=''")  # fmt: skip
TEXT["AddV2"] = lambda a, b: np.asarray(a + b, object)
TEXT |= {"Equal": texts.equal, "NotEqual": lambda a, b: ~texts.equal(a, b)}
STRINGS: dict[str, Any] = {
    "lower": _each(bytes.lower), "upper": _each(bytes.upper), "strip": _each(bytes.strip),
    "length": _each(len, dt.int32), "join": _joined, "as_string": as_string,
    "substr": _each(lambda x, pos, len: x[pos : pos + len]),
    "to_number": lambda input, out_type="float32", name=None: math.cast(  # noqa: A006
        _each(texts.number, dt.float64)(input), out_type),
}  # fmt: skip


def read_file(filename: Any, name: Any = None) -> Any:
    """The bytes of a file."""
    path = filename if isinstance(filename, str) else convert(filename).numpy().decode()
    with open(path, "rb") as file:
        return convert(file.read())


def write_file(filename: Any, contents: Any, name: Any = None) -> None:
    """Write bytes to a file."""
    data = contents if isinstance(contents, bytes) else convert(contents).numpy()
    with open(filename if isinstance(filename, str) else filename.decode(), "wb") as file:
        file.write(data)


def ensure_shape(x: Any, shape: Any, name: Any = None) -> Any:
    """``x``; an error unless it has the shape."""
    wanted = TensorShape(shape)

    def call(v: Any) -> Any:
        if not wanted.is_compatible_with(tuple(v.shape)):
            raise ValueError(f"Shape of tensor {TensorShape(tuple(v.shape))} is not compatible "
                             f"with expected shape {wanted}.")  # fmt: skip
        return v

    return execute("EnsureShape", call, [convert(x)])


def executing_eagerly() -> bool:
    """Whether no function is being traced."""
    return GRAPH.get() is None


def gradients_of_graphs(*args: Any, **kwargs: Any) -> Any:
    """``tf.gradients`` belongs to TensorFlow 1's graphs."""
    raise RuntimeError("tf.gradients is not supported when eager execution is enabled. Use "
                       "tf.GradientTape instead.")  # fmt: skip


NAMES: dict[str, Any] = {
    "custom_gradient": custom_gradient, "recompute_grad": recompute_grad, "print": print_,
    "py_function": py_function, "numpy_function": numpy_function, "name_scope": _Named,
    "device": _Named, "control_dependencies": _Named, "init_scope": outside, "Module": Module,
    "ensure_shape": ensure_shape, "executing_eagerly": executing_eagerly,
    "gradients": gradients_of_graphs, "assert_equal": DEBUGGING["assert_equal"],
        "Operation": Operation,
    "assert_less": DEBUGGING["assert_less"], "assert_greater": DEBUGGING["assert_greater"],
    "Assert": Assert, "group": lambda *inputs, **k: None, "no_op": lambda name=None: None,
    "is_symbolic_tensor": lambda t: isinstance(t, SymbolicTensor), "identity_n": lambda xs,
        name=None: [
        arrays.identity(x) for x in xs], "grad_pass_through": grad_pass_through,
    "timestamp": lambda name=None: convert(time.time(), "float64"),
    "get_logger": lambda: logging.getLogger("tensorflow"),
    "newaxis": None, "Tensor": Tensor, "inside_function": lambda: GRAPH.get() is not None,
}  # fmt: skip
SAVED = SavedObjects(Module, lambda v: getattr(v, "_cell", None), lambda t, on, name: Variable(
    wrap(t), on, name=name), wrap, lambda v, of: convert(v, as_dtype(of))._value)  # fmt: skip
