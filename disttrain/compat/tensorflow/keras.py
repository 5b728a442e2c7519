"""``tf.keras``: the real Keras on disttrain, and the border between its tensors and TensorFlow's.

Keras' own code computes with plain Tensors. What a program gives to Keras is uncovered where Keras
converts its arguments; what layers, losses and metrics give to a program is covered, as
TensorFlow's
programs expect it. In a traced function a call of a layer, loss, metric or optimizer is one
operation.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from ... import tree
from ...autograd.cells import announced, arrived, awaiting
from ...context import thread
from ...core.random import fork_rng
from ...core.tensor import Tensor as Inner
from ...errors import CaptureError
from ...graphs import effect, outside
from ...graphs.compiled import STAGING, Once
from ...nn import Parameter
from ..publish import Shim
from .dispatch import IN_KERAS, in_keras
from .tensor import GRAPH, SymbolicTensor, Tensor, convert, wrap
from .variable import IndexedSlices, Variable

_HOOKED = "compat.tensorflow.keras"
_ADDED = "compat.tensorflow.added"  # of a layer: the losses that its call has added while traced
MODULES = """activations applications backend callbacks constraints datasets distribution
    dtype_policies
export initializers layers legacy losses metrics mixed_precision models ops optimizers preprocessing
quantizers random regularizers saving tree utils visualization wrappers datasets.mnist
datasets.cifar10 datasets.cifar100 datasets.fashion_mnist datasets.imdb optimizers.schedules
preprocessing.image preprocessing.sequence""".split()


def load() -> Any:
    """Keras, with this border."""
    keras = importlib.import_module("disttrain.compat.keras").install()
    if not getattr(keras, _HOOKED, False):
        setattr(keras, _HOOKED, True)
        _hook(keras)
    return keras


def uncovered(value: Any) -> Any:
    """The plain Tensor of what may be covered, or a variable."""
    if isinstance(value, SymbolicTensor):
        graph = GRAPH.get()
        raise TypeError(
            f"{value!r} of a traced function was given to a part of Keras that is no layer, loss, "
            "metric or function of tf.keras" if graph is not None else f"{value!r} is out of scope"
        )  # fmt: skip
    if isinstance(value, (Tensor, Variable, IndexedSlices)):
        return convert(value)._value
    return value


def covered(value: Any) -> Any:
    """``value`` as a program sees it."""
    if not isinstance(value, Inner):
        return value
    if not thread.tapes and not IN_KERAS.get():
        value = value.detach()
    return wrap(value)


def _by_keras(depth: int = 2) -> bool:
    """Whether Keras' own code calls."""
    name = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return name.startswith(("keras.", "disttrain."))


def _leave(value: Any, outside: bool) -> Any:
    return tree.map(covered if outside else uncovered, value)


@contextlib.contextmanager
def _inside() -> Any:
    with in_keras(), outside():
        yield


def _entry(fn: Callable, kind: str, effect: bool = False) -> Callable:
    """``fn`` of Keras' with the border around it. ``effect``: it changes state alone."""

    @functools.wraps(fn)
    def entry(*args: Any, **kwargs: Any) -> Any:
        outside = not _by_keras(1)
        if GRAPH.get() is not None and outside:
            return _recorded(fn, kind, args, kwargs, effect)
        if outside and awaiting() and not getattr(args[0] if args else fn, "built", True):
            with in_keras(), fork_rng():
                fn(*args, **kwargs)  # which makes its variables
            arrived()
        with in_keras():
            found = fn(*args, **kwargs)
        return _leave(found, outside)

    return entry


def _recorded(fn: Callable, kind: str, args: tuple, kwargs: dict, effect: bool) -> Any:
    """Write a call of Keras' down as one operation."""
    graph = GRAPH.get()
    leaves, rebuild = tree.flatten((args, kwargs), with_none=True)
    at = [i for i, v in enumerate(leaves) if isinstance(v, (Tensor, IndexedSlices))]
    held = [graph.inside(convert(leaves[i])) for i in at]
    keras, owner = sys.modules["keras"], args[0] if args else fn

    def plainly(*values: Any) -> Any:
        now = list(leaves)
        for i, v in zip(at, values, strict=True):
            now[i] = v
        given, words = rebuild(now)
        with _inside():
            found = tree.map(uncovered, fn(*given, **words))
        if STAGING.get() and (owner.__dict__.get(_ADDED) or any(map(_masked, tree.leaves(found)))):
            raise CaptureError("losses and masks are Python's")
        return found

    is_state = lambda t: isinstance(t, Parameter) or any(  # noqa: E731
        v.value.data_ptr() == t.data_ptr() for v in getattr(owner, "variables", ()))  # fmt: skip
    once = plainly if effect else Once(plainly, is_state)

    def call(*values: Any) -> Any:
        if GRAPH.get() is None:
            return (plainly if any(map(_masked, values)) else once)(*values)
        with keras.StatelessScope(collect_losses=True) as scope:
            found = plainly(*values)
        owner.__dict__[_ADDED] = [uncovered(v) for v in scope.losses or []]
        return found

    if not effect and not getattr(owner, "built", True):
        call(*[t._value for t in held])  # which makes its variables
        arrived()
    return graph.record(kind, call, held, examples=() if effect else None)


def _masked(value: Any) -> bool:
    return getattr(value, "_keras_mask", None) is not None


def _uncovering(fn: Callable) -> Callable:
    """``fn`` of Keras', which looks itself whether what it is given is a plain Tensor."""

    @functools.wraps(fn)
    def entry(self: Any, *args: Any) -> Any:
        return fn(self, *tree.map(uncovered, args))

    return entry


def _metric_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.update_state(*args, **kwargs)
    return self.result()


def _apply(fn: Callable) -> Callable:
    """``optimizer.apply_gradients`` and ``apply``: of covered gradients, and of
    ``tf.Variable``s."""

    @functools.wraps(fn)
    def entry(self: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        if _by_keras(1):
            return fn(self, grads, *args, **kwargs)
        given = list(grads)
        paired = bool(given) and isinstance(given[0], tuple)
        variables = [v for _, v in given] if paired else list(args[0]) if args else (
            kwargs.get("trainable_variables") or self._trainable_variables)  # fmt: skip
        gradients = [g for g, _ in given] if paired else given
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        stand_ins = [_stand_in(v) for _, v in pairs]
        if GRAPH.get() is not None and not self.built:
            with _inside():
                self.build(stand_ins)
        held = [convert(g) for g, _ in pairs]

        def call(*values: Any) -> None:
            with _inside():
                for (_, v), s in zip(pairs, stand_ins, strict=True):
                    if s is not v:
                        s.assign(v._tensor)
                fn(self, list(zip(values, stand_ins, strict=True)) if paired else list(values),
                   *([stand_ins] if not paired else []))  # fmt: skip
                for (_, v), s in zip(pairs, stand_ins, strict=True):
                    if s is not v:
                        v._tensor = s.value.detach().clone()

        effect("ApplyGradients", call, held)
        return self.iterations

    return entry


def _stand_in(variable: Any) -> Any:
    """What an optimizer of Keras' takes for a ``tf.Variable``: a variable of Keras' own."""
    if not isinstance(variable, Variable):
        return variable
    found = variable.__dict__.get("_in_keras")
    if found is None:
        keras = sys.modules["keras"]
        found = keras.Variable(variable._tensor, trainable=True, name=variable._name)
        variable.__dict__["_in_keras"] = found
    return found


def _losses(fget: Callable) -> property:
    """``layer.losses``, computed at every run of a traced function."""

    def losses(self: Any) -> Any:
        graph = GRAPH.get()
        if graph is None or _by_keras(1):
            return _leave(fget(self), not _by_keras(1))

        def call() -> list:
            tracing = GRAPH.get() is not None
            with _inside():
                found = [uncovered(v) for v in fget(self)]
            if not tracing:
                return found
            before = sum(len(layer._losses) for layer in self._flatten_layers())
            return [*self.__dict__.get(_ADDED, ()), *found[before:]]

        return graph.record("Losses", call, [])

    return property(losses)


def _hook(keras: Any) -> None:
    core = importlib.import_module("keras.src.backend.torch.core")
    original = core.convert_to_tensor

    @functools.wraps(original)
    def convert_to_tensor(x: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, (Tensor, Variable, IndexedSlices)):
            x = uncovered(x)
        elif isinstance(x, (list, tuple)):
            x = tree.map(uncovered, x)
        return original(x, *args, **kwargs)

    spec_of = core.compute_output_spec

    @functools.wraps(spec_of)
    def compute_output_spec(fn: Callable, *args: Any, **kwargs: Any) -> Any:
        plain = functools.wraps(fn)(lambda *a, **k: tree.map(uncovered, fn(*a, **k)))
        return spec_of(plain, *args, **kwargs)

    ours = {id(original): convert_to_tensor, id(spec_of): compute_output_spec}
    for name, module in list(sys.modules.items()):
        if name.startswith("keras.") and module is not None:
            for word, value in list(vars(module).items()):
                if id(value) in ours:
                    setattr(module, word, ours[id(value)])
    keras.Model._symbolic_build = announced(keras.Model._symbolic_build)
    operation = importlib.import_module("keras.src.ops.operation").Operation
    inner = operation.__call__

    @functools.wraps(inner)
    def plain(self: Any, *args: Any, **kwargs: Any) -> Any:
        return tree.map(uncovered, inner(self, *args, **kwargs))

    operation.__call__ = plain
    for kind in (keras.Layer, keras.losses.Loss):
        kind.__call__ = _entry(kind.__call__, kind.__name__)
    keras.Layer.add_loss = _uncovering(keras.Layer.add_loss)
    keras.Layer.losses = _losses(keras.Layer.losses.fget)
    keras.Metric.__call__ = _entry(_metric_call, "Metric")
    for kind in _subclasses(keras.Metric):
        for word, alone in (("update_state", True), ("result", False), ("reset_state", True)):
            if word in vars(kind):
                setattr(kind, word, _entry(vars(kind)[word], kind.__name__, alone))
    for word in ("apply_gradients", "apply"):
        setattr(keras.optimizers.Optimizer, word, _apply(getattr(keras.optimizers.Optimizer, word)))


def _subclasses(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [kind, *(s for sub in below for s in _subclasses(sub))]


def modules() -> dict[str, Shim]:
    """``tensorflow.keras`` and its parts, loaded when the first name is asked for."""
    found = {"tensorflow.keras": Shim("tensorflow.keras").later(lambda shim: _fill(shim, ""))}
    for word in MODULES:
        shim = Shim(f"tensorflow.keras.{word}")
        found[shim.__name__] = shim.later(functools.partial(_fill, word=word))
    return found


def _fill(shim: Shim, word: str) -> None:
    real = functools.reduce(getattr, filter(None, word.split(".")), load())
    for name in dir(real):
        if name.startswith("__") or isinstance(vars(shim).get(name), Shim):
            continue
        value: Any = getattr(real, name, None)
        ours = isinstance(value, types.FunctionType) and value.__module__.startswith("keras.src.")
        shim.give(**{name: _entry(value, name) if ours and _computes(word) else value})


def _computes(word: str) -> bool:
    """Whether the functions of a module take and give tensors."""
    return word in ("activations", "losses", "metrics", "ops", "random", "utils", "backend")
