"""A model cut anywhere: what one forward does, operation by operation, in pieces.

``trace`` runs the model once on a micro-batch and writes down every operation that goes through the
gate, with marks where the model is to be cut. A piece is a module with the parameters that its
operations use, under their own names; its ``forward`` runs the operations again, so shapes,
constants and the way through ``if`` and ``for`` are those of the traced micro-batch. What a piece
needs of earlier ones is handed on from stage to stage. A program that looks at numbers of tensors
while it runs cannot be traced so; one that hides it is found by running both on other numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import context, nn, ops, tree
from ...core.backward.function import FunctionNode
from ...core.gate import Primitive
from ...core.grad_mode import no_grad
from ...core.node import Output
from ...core.observers import OperationObserver
from ...core.random import fork_rng
from ...core.tensor import Tensor, wrap
from ...errors import CaptureError
from ...trace import call_site

_SLOT = "distributed.pipelining.trace"


@dataclass(frozen=True)
class Ref:
    """A tensor of the traced program: ``kind`` "value" (number ``key``: inputs, then results),
    "state" (a parameter or buffer, by name) or "constant"."""

    kind: str
    key: Any


@dataclass(frozen=True)
class Step:
    """One operation."""

    prim: Any
    args: tuple
    params: dict
    outs: tuple[Ref, ...]
    records: bool  # whether gradients were recorded


class Recorder(OperationObserver):
    """The interpreter that writes operations down."""

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        self.known: dict[Any, Ref] = {}
        self.keep: list[Any] = []  # so that no id is used twice
        self.steps: list[Step] = []
        self.marks: list[int] = []
        self.constants: list[Tensor] = []
        self.count = 0
        self.names = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, t in self.names.items():
            self._know(t, Ref("state", name))
        self.inputs = tuple(self._value(t) for t in inputs)

    def __str__(self) -> str:
        return "trace"

    def _know(self, t: Tensor, ref: Ref) -> Ref:
        self.known[id(t)] = ref
        self.known.setdefault(("memory", id(t.array)), ref)
        self.keep += (t, t.array)
        return ref

    def _value(self, t: Tensor) -> Ref:
        self.count += 1
        ref = Ref("value", self.count - 1)
        self.known.pop(("memory", id(t.array)), None)
        return self._know(t, ref)

    def find(self, t: Tensor) -> Ref | None:
        return self.known.get(id(t)) or self.known.get(("memory", id(t.array)))

    def ref(self, t: Tensor) -> Ref:
        """The name of ``t``; one that nobody has made here is a constant."""
        found = self.find(t)
        if found is not None:
            return found
        if t.requires_grad:
            raise CaptureError(
                f"pipeline: a tensor of shape {list(t.shape)} that requires grad is used and is no "
                "parameter of the model; make it an nn.Parameter"
            )
        self.constants.append(wrap(t.array.copy()))
        return self._know(t, Ref("constant", len(self.constants) - 1))

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: Callable) -> Any:
        for a in args:
            node = a.graph_node() if isinstance(a, Tensor) else None
            node = node.node if node.__class__ is Output else node
            if isinstance(node, FunctionNode):
                raise CaptureError(
                    f"pipeline: the result of {node.name()}, a Function of one's own, is used; its "
                    "backward would be lost: write the stages by hand"
                )
        names = tuple(self.ref(a) if isinstance(a, Tensor) else a for a in args)
        records = context.thread.grad_enabled
        out = proceed(prim, args, params)
        outs: tuple[Ref, ...] = ()
        if not prim.mutates:
            outs = tuple(self._value(o) for o in (out if isinstance(out, tuple) else (out,)))
        self.steps.append(Step(prim, names, params, outs, records))
        return out

    def on_read(self, t: Tensor) -> None:
        found = self.find(t)
        if found is not None and found.kind == "value":
            raise CaptureError(
                f"pipeline: the model looks at numbers of a tensor at {call_site(3)} (item(), if, "
                "numpy, an index that depends on data), so one trace cannot stand for all "
                "micro-batches; write the stages by hand"
            )

    def mark(self) -> None:
        """Cut here."""
        self.marks.append(len(self.steps))


def mark() -> None:
    """Cut the model that is being traced here; nothing where none is."""
    slot: dict[str, Recorder] = context.current().slot(_SLOT, dict)
    if "recorder" in slot:
        slot["recorder"].mark()


@contextmanager
def _recording(recorder: Recorder) -> Iterator[None]:
    slot = context.current().slot(_SLOT, dict)
    slot["recorder"] = recorder
    try:
        with context.interpreter(recorder):
            yield
    finally:
        del slot["recorder"]


class Piece(nn.Module):
    """The operations between two cuts. ``takes`` and ``gives``: the values that come in and go out,
    ``build``: what is made of the last piece's (None: one value, or a tuple)."""

    def __init__(
        self, steps: Sequence[Step], takes: Sequence[Ref], gives: Sequence[Ref], state: dict,
        constants: Sequence[Tensor], build: Callable | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._steps, self._takes, self._gives = list(steps), list(takes), list(gives)
        self._build = build
        needed = [a for s in steps for a in s.args if isinstance(a, Ref)] + list(gives)
        self._places: dict[str, tuple[nn.Module, str]] = {}
        for name in dict.fromkeys(a.key for a in needed if a.kind == "state"):
            self._places[name] = _register(self, name, state[name])
        used = dict.fromkeys(a.key for a in needed if a.kind == "constant")
        self._constants = {key: constants[key] for key in used}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
        values: dict[Any, Tensor] = {r.key: t for r, t in zip(self._takes, given, strict=True)}
        for step in self._steps:
            with nullcontext() if step.records else no_grad():
                found = step.prim(*[self._get(a, values) for a in step.args], **step.params)
            for ref, t in zip(
                step.outs, found if isinstance(found, tuple) else (found,), strict=False
            ):
                values[ref.key] = t
        out = [self._get(g, values) for g in self._gives]
        if self._build is not None:
            return self._build(out)
        return out[0] if len(out) == 1 else tuple(out)

    def _get(self, a: Ref | float | None, values: dict) -> Any:
        if not isinstance(a, Ref):
            return a
        if a.kind == "value":
            return values[a.key]
        if a.kind == "constant":
            return self._constants[a.key]
        owner, name = self._places[a.key]
        return getattr(owner, name)


def _register(root: nn.Module, name: str, t: Tensor) -> tuple[nn.Module, str]:
    """Put ``t`` below ``root`` under its dotted name."""
    *path, last = name.split(".")
    owner = root
    for part in path:
        if part not in owner._modules:
            owner.add_module(part, nn.Module())
        owner = owner._modules[part]
    if isinstance(t, nn.Parameter):
        owner.register_parameter(last, t)
    else:
        owner.register_buffer(last, t)
    return owner, last


def trace(module: nn.Module, args: tuple, kwargs: dict, cuts: dict[str, bool]) -> list[nn.Module]:
    """``module`` in pieces, cut before (True) or behind (False) each submodule of ``cuts`` and
    wherever ``mark`` is called. ``args``, ``kwargs``: a micro-batch."""
    inputs = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
    recorder = Recorder(module, inputs)
    handles = []
    for name, before in cuts.items():
        sub = module.get_submodule(name)
        if before:
            handles.append(sub.register_forward_pre_hook(lambda m, i: recorder.mark()))
        else:
            handles.append(sub.register_forward_hook(lambda m, i, o: recorder.mark()))
    kept = {n: b.array.copy() for n, b in module.named_buffers()}
    try:
        with fork_rng(), _recording(recorder):
            out = module(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        _restore(module, kept)
    pieces = _pieces(recorder, out)
    _compare(module, pieces, args, kwargs)
    _restore(module, kept)
    return pieces


def _restore(module: nn.Module, kept: dict[str, np.ndarray]) -> None:
    for name, b in module.named_buffers():
        np.copyto(b.array, kept[name])


def _pieces(recorder: Recorder, out: Tensor) -> list[nn.Module]:
    leaves, rebuild = tree.flatten(out)
    ends = [recorder.ref(x) if isinstance(x, Tensor) else x for x in leaves]
    results = [e for e in ends if isinstance(e, Ref)]

    def build(found: list) -> Any:
        left = iter(found)
        return rebuild([next(left) if isinstance(e, Ref) else e for e in ends])

    steps = recorder.steps
    edges = [0, *sorted(m for m in set(recorder.marks) if 0 < m < len(steps)), len(steps)]
    pieces: list[nn.Module] = []
    takes = list(recorder.inputs)
    for a, b in itertools.pairwise(edges):
        last = b == len(steps)
        gives = results if last else _crossing(steps, b, results)
        pieces.append(
            Piece(steps[a:b], takes, gives, recorder.names, recorder.constants,
                  build if last else None)
        )  # fmt: skip
        takes = gives
    return pieces


def _crossing(steps: list[Step], cut: int, results: list[Ref]) -> list[Ref]:
    """The values that are there before ``cut`` and needed behind it."""
    made = {o for s in steps[cut:] for o in s.outs}
    needed = [a for s in steps[cut:] for a in s.args if isinstance(a, Ref)] + results
    found = {r for r in needed if r.kind == "value" and r not in made}
    return sorted(found, key=lambda r: r.key)


def _compare(module: nn.Module, pieces: list[nn.Module], args: tuple, kwargs: dict) -> None:
    """Run both on other numbers: what the trace has frozen and must not is found."""
    rng = np.random.default_rng(0)
    other_args, other_kwargs = tree.map(lambda x: _other(x, rng), (args, kwargs))
    with no_grad():
        with fork_rng():
            expected = module(*other_args, **other_kwargs)
        with fork_rng():
            found = pieces[0](*other_args, **other_kwargs)
            for piece in pieces[1:]:
                found = piece(*(found if isinstance(found, tuple) else (found,)))
    pairs = zip(tree.leaves(expected), tree.leaves(found), strict=True)
    for a, b in pairs:
        if isinstance(a, Tensor) and not ops.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise CaptureError(
                "pipeline: on other numbers the traced model gives other results than the model "
                "does, so it depends on its input in a way that one trace does not show; write the "
                "stages by hand"
            )


def _other(x: Tensor, rng: np.random.Generator) -> Any:
    """As ``x``, with other numbers: floating ones drawn, others in another order."""
    if not isinstance(x, Tensor) or not x.array.size:
        return x
    if x.dtype.is_floating_point:
        return ops.tensor(rng.standard_normal(tuple(x.shape)), dtype=x.dtype)
    return ops.flip(x.detach(), tuple(range(x.ndim)))
