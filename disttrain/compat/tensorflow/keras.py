"""``tf.keras``: the real Keras on disttrain, and the border between its tensors and TensorFlow's.

Keras' own code computes with plain Tensors. What a program gives to Keras is uncovered where Keras
converts its arguments; what layers, losses and metrics give to a program is covered, as
TensorFlow's programs expect it. In a traced function a call of a layer, loss, metric or optimizer
is one operation.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ... import tree
from ...autograd.cells import announced
from ...context import thread
from ...core.tensor import Tensor as Inner
from ...graphs import effect
from ...graphs.library import Library
from ...nn import Parameter
from ..publish import Shim, mirror, replace
from .dispatch import IN_KERAS, in_keras
from .tensor import GRAPH, SymbolicTensor, Tensor, convert, out_of_scope, wrap
from .variable import IndexedSlices, Variable

_ADDED = "compat.tensorflow.added"  # of a layer: the losses that its call has added while traced
MODULES = """activations applications backend callbacks constraints datasets distribution
    dtype_policies export initializers layers legacy losses metrics mixed_precision models ops
    optimizers preprocessing quantizers random regularizers saving tree utils visualization wrappers
    datasets.mnist datasets.cifar10 datasets.cifar100 datasets.fashion_mnist datasets.imdb
    optimizers.schedules preprocessing.image preprocessing.sequence""".split()
_COVERS = (Tensor, IndexedSlices, Variable)


class _Keras(Library):
    packages = ("keras.", "disttrain.")
    tensor, running = staticmethod(convert), staticmethod(in_keras)
    is_value: Any = staticmethod(lambda value: isinstance(value, _COVERS[:2]))
    ready: Any = staticmethod(lambda owner: getattr(owner, "built", True))

    def inward(self, value: Any) -> Any:
        if isinstance(value, SymbolicTensor):
            raise out_of_scope(value) if GRAPH.get() is None else TypeError(
                f"{value!r} of a traced function was given to a part of Keras that is no layer, "
                "loss, metric or function of tf.keras")  # fmt: skip
        return convert(value)._value if isinstance(value, _COVERS) else value

    def outward(self, value: Any) -> Any:
        if not isinstance(value, Inner):
            return value
        return wrap(value if thread.tapes or IN_KERAS.get() else value.detach())

    def is_state(self, owner: Any, t: Any) -> bool:
        known = {v.value.data_ptr() for v in getattr(owner, "variables", ())}
        return isinstance(t, Parameter) or t.data_ptr() in known

    def beside(self, owner: Any, values: Any) -> bool:
        masked = any(getattr(v, "_keras_mask", None) is not None for v in tree.leaves(values))
        return masked or bool(vars(owner).get(_ADDED) if owner is not None else ())

    @contextlib.contextmanager
    def trial(self, owner: Any) -> Iterator[None]:
        with sys.modules["keras"].StatelessScope(collect_losses=True) as scope:
            yield
        owner.__dict__[_ADDED] = [self.inward(v) for v in scope.losses or []]


_KERAS = _Keras()


@functools.cache
def load() -> Any:
    """Keras, with this border."""
    keras = importlib.import_module("disttrain.compat.keras").install()
    _hook(keras)
    return keras


def _apply(fn: Callable, apply_gradients: Callable) -> Callable:
    """``fn`` of an optimizer: of covered gradients, and of ``tf.Variable``s."""

    @functools.wraps(fn)
    def entry(self: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        if _KERAS.calls():
            return fn(self, grads, *args, **kwargs)
        given = list(grads)
        if given and not isinstance(given[0], tuple):
            known = args[0] if args else kwargs.get("trainable_variables")
            given = list(zip(given, known or self._trainable_variables, strict=True))
        pairs = [(g, _stand_in(v), v) for g, v in given if g is not None]
        own, held = [s for _, s, _ in pairs], [(s, v) for _, s, v in pairs if s is not v]
        if GRAPH.get() is not None and not self.built:
            with _KERAS.apart():
                self.build(own)

        def call(*values: Any) -> None:
            with _KERAS.apart():
                for s, v in held:
                    s.assign(v._tensor)
                apply_gradients(self, list(zip(values, own, strict=True)))
                for s, v in held:
                    v._tensor = s.value.detach().clone()

        effect("ApplyGradients", call, [convert(g) for g, _, _ in pairs])
        return self.iterations

    return entry


def _stand_in(variable: Any) -> Any:
    """What an optimizer of Keras' takes for a ``tf.Variable``: a variable of Keras' own."""
    known = vars(variable)
    if isinstance(variable, Variable) and "_in_keras" not in known:
        known["_in_keras"] = sys.modules["keras"].Variable(
            variable._tensor, trainable=True, name=variable._name)  # fmt: skip
    return known.get("_in_keras", variable)


def _losses(fget: Callable) -> property:
    """``layer.losses``, computed at every run of a traced function."""

    def losses(self: Any) -> Any:
        out = not _KERAS.calls()
        if GRAPH.get() is None or not out:
            return _KERAS.change(fget(self), out)

        def call() -> list:
            tracing = GRAPH.get() is not None
            with _KERAS.apart():
                found = [_KERAS.inward(v) for v in fget(self)]
            added = sum(len(layer._losses) for layer in self._flatten_layers()) if tracing else 0
            return [*self.__dict__.get(_ADDED, ()), *found[added:]] if tracing else found

        return GRAPH.get().record("Losses", call, [])

    return property(losses)


def _hook(keras: Any) -> None:
    core = importlib.import_module("keras.src.backend.torch.core")
    original = core.convert_to_tensor

    @functools.wraps(original)
    def convert_to_tensor(x: Any, *args: Any, **kwargs: Any) -> Any:
        given = isinstance(x, (*_COVERS, list, tuple))
        return original(_KERAS.change(x, False) if given else x, *args, **kwargs)

    spec_of = core.compute_output_spec

    @functools.wraps(spec_of)
    def compute_output_spec(fn: Callable, *args: Any, **kwargs: Any) -> Any:
        return spec_of(_KERAS.keeping(fn), *args, **kwargs)

    replace("keras", original, convert_to_tensor)
    replace("keras", spec_of, compute_output_spec)
    keras.Model._symbolic_build = announced(keras.Model._symbolic_build)
    operation = importlib.import_module("keras.src.ops.operation").Operation
    operation.__call__ = _KERAS.keeping(operation.__call__)
    for kind in (keras.Layer, keras.losses.Loss):
        kind.__call__ = _KERAS.entry(kind.__call__, kind.__name__)
    keras.Layer.add_loss = _KERAS.taking(keras.Layer.add_loss)
    keras.Layer.losses = _losses(keras.Layer.losses.fget)
    keras.Metric.__call__ = _KERAS.entry(
        lambda self, *a, **k: (self.update_state(*a, **k), self.result())[1], "Metric")  # fmt: skip
    for kind in (keras.Metric, *tree.below(keras.Metric, type.__subclasses__)):
        for word, alone in (("update_state", True), ("result", False), ("reset_state", True)):
            if word in vars(kind):
                setattr(kind, word, _KERAS.entry(vars(kind)[word], kind.__name__, alone))
    optimizer = keras.optimizers.Optimizer
    steps = optimizer.apply_gradients
    for word in ("apply_gradients", "apply"):
        setattr(optimizer, word, _apply(getattr(optimizer, word), steps))


def _shown(word: str, name: str, value: Any) -> Any:
    ours = isinstance(value, types.FunctionType) and value.__module__.startswith("keras.src.")
    computes = word in ("activations", "losses", "metrics", "ops", "random", "utils", "backend")
    return _KERAS.entry(value, name) if ours and computes else value


def modules() -> dict[str, Shim]:
    """``tensorflow.keras`` and its parts, loaded when the first name is asked for."""
    return mirror("tensorflow.keras", MODULES, load, _shown)
