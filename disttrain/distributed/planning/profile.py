"""What one training step of a model keeps in memory, found by running it on the meta device.

The forward runs on shapes alone. What its graph has saved for backward is counted once per memory
block, and belongs to the unit in which it was saved; the optimizer takes a step on meta tensors, so
its state is what it really makes. Knows no group and no strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ... import nn
from ...core.backward.autograd import backward
from ...core.node import AccumulateGrad, Output, next_seq
from ...core.tensor import Tensor
from ...errors import ConfigError
from ...nn.module import Module


@dataclass(frozen=True)
class Weight:
    """A parameter: its shape, bytes per element, whether it is trained, and how tensor parallelism
    cuts it (``colwise``, ``rowwise`` or "")."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    trained: bool = True
    split: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of one slice along dimension 0."""
        n = self.itemsize
        for d in self.shape[1:]:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        return self.row_bytes * (self.shape[0] if self.shape else 1)


@dataclass(frozen=True)
class Unit:
    """Parameters that are gathered together, and what the unit's forward saves for backward.

    ``inputs``: bytes of the tensors that enter it (all that checkpointing keeps). ``split``: the
    part of ``saved`` that tensor parallelism divides; ``crossings``: bytes that cross between its
    ranks in one direction (the result of every row-wise layer).
    """

    name: str
    weights: tuple[Weight, ...]
    saved: int = 0
    inputs: int = 0
    split: int = 0
    crossings: int = 0

    @property
    def nbytes(self) -> int:
        return sum(w.nbytes for w in self.weights)


@dataclass(frozen=True)
class Profile:
    """A step on ``batch`` samples. The first unit is the root: what no other unit has.

    ``optimizer_ratio``: bytes of optimizer state per byte of trained parameters.
    """

    batch: int
    units: tuple[Unit, ...]
    buffers: int = 0
    optimizer_ratio: float = 0.0

    @property
    def weights(self) -> list[Weight]:
        return [w for u in self.units for w in u.weights]


@dataclass
class _Span:
    """When a module ran: the numbers of the first and the last node that it made."""

    name: str
    module: Any
    inputs: int
    first: int = 0
    last: int = 0
    outputs: int = 0


@dataclass
class _Recorder:
    """Notes spans of the modules that are asked about while a forward runs."""

    spans: list[_Span] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)

    def watch(self, name: str, module: Module) -> None:
        running: list[_Span] = []

        def before(_: object, args: tuple) -> None:
            running.append(_Span(name, module, _bytes(args), next_seq()))

        def after(_: object, args: tuple, out: Tensor) -> None:
            span = running.pop()
            span.last, span.outputs = next_seq(), _bytes(out if isinstance(out, tuple) else (out,))
            self.spans.append(span)

        self.handles.append(module.register_forward_pre_hook(before))
        self.handles.append(module.register_forward_hook(after))

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()


def profile_step(
    model: nn.Module,
    loss_of: Callable[[nn.Module, int], Tensor],
    batch: int,
    is_unit: Callable[[nn.Module], bool] = lambda module: False,
    split: Mapping[str, str] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
) -> Profile:
    """Run ``loss_of(model, batch)`` and a backward on the meta device.

    ``is_unit(module)``: does this submodule become a unit. ``split``: patterns of module names to
    ``"colwise"`` or ``"rowwise"``. ``optimizer(parameters)`` makes the optimizer.
    Raises ``ConfigError`` when the model is not on the meta device.
    """
    _check_meta(model)
    found = [(n, m) for n, m in model.named_modules() if n and is_unit(m)]
    cuts = {n: _cut(n, split or {}) for n, _ in model.named_modules()}
    recorder = _Recorder()
    for name, module in found + [(n, m) for n, m in model.named_modules() if cuts[n]]:
        recorder.watch(name, module)
    try:
        loss = loss_of(model, batch)
    finally:
        recorder.close()
    names = [n for n, _ in found]
    units = _units(model, found, cuts)
    usage = _usage(model, loss, [s for s in recorder.spans if s.name in set(names)], recorder, cuts)
    ratio = _optimizer_ratio(model, loss, optimizer)
    buffers = sum(b.nbytes for b in model.buffers())
    return Profile(
        batch,
        tuple(Unit(n, tuple(w), **usage.get(n, {})) for n, w in units.items()),
        buffers,
        ratio,
    )


def _check_meta(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if not p.is_meta:
            raise ConfigError(
                f"parameter {name} is on {p.device}; build the model on the meta device: "
                "with dt.device('meta'): model = ..."
            )


def _cut(name: str, split: Mapping[str, str]) -> str:
    for pattern, how in split.items():
        if fnmatchcase(name, pattern):
            if how not in ("colwise", "rowwise"):
                raise ConfigError(f"{pattern}: {how!r} given; needed is 'colwise' or 'rowwise'")
            return how
    return ""


def _units(
    model: nn.Module, found: list[tuple[str, Any]], cuts: Mapping[str, str]
) -> dict[str, list[Weight]]:
    """Every parameter in the innermost unit that has it; "" is the root."""
    units: dict[str, list[Weight]] = {"": [], **{n: [] for n, _ in found}}
    for name, p in model.named_parameters():
        home = max((n for n, _ in found if name.startswith(n + ".")), key=len, default="")
        how = cuts.get(name.rpartition(".")[0], "")
        if how == "rowwise" and p.ndim < 2:
            how = ""  # the bias of a row-wise layer is added once, to the whole result
        units[home].append(Weight(name, tuple(p.shape), p.itemsize, p.requires_grad, how))
    return units


def _usage(
    model: nn.Module,
    loss: Tensor,
    spans: list[_Span],
    recorder: _Recorder,
    cuts: Mapping[str, str],
) -> dict[str, dict[str, int]]:
    """Bytes saved, of inputs, divided and crossing, by the name of the unit."""
    own = {id(t.array) for t in (*model.parameters(), *model.buffers())}
    regions = _regions(recorder.spans, cuts)
    usage: dict[str, dict[str, int]] = {}

    def at(seq: int) -> dict[str, int]:
        inside = [s for s in spans if s.first < seq < s.last]
        name = max(inside, key=lambda s: s.first).name if inside else ""
        return usage.setdefault(name, dict.fromkeys(("saved", "inputs", "split", "crossings"), 0))

    for node in _nodes(loss):
        for kept, maker in _kept(node):
            block, nbytes = _block(kept)
            if block in own:
                continue
            own.add(block)
            place = at(node.seq)
            place["saved"] += nbytes
            if any(first < maker < last for first, last in regions):
                place["split"] += nbytes
    for span in recorder.spans:
        if cuts.get(span.name) == "rowwise":
            at(span.first + 1)["crossings"] += span.outputs
    for span in spans:
        at(span.first + 1)["inputs"] += span.inputs
    return usage


def _regions(spans: list[_Span], cuts: Mapping[str, str]) -> list[tuple[int, int]]:
    """From each column-wise layer to the next row-wise one: what is computed there is divided."""
    out, start = [], None
    for span in sorted(spans, key=lambda s: s.first):
        how = cuts.get(span.name)
        if how == "colwise" and start is None:
            start = span.first
        elif how == "rowwise" and start is not None:
            out.append((start, span.first))
            start = None
    return out


def _nodes(loss: Tensor) -> list[Any]:
    """Every node below ``loss``, in the order in which they were made."""
    seen: dict[int, Any] = {}
    stack = [loss.graph_node()]
    while stack:
        node = stack.pop()
        node = node.node if node.__class__ is Output else node
        if node is None or id(node) in seen or node.__class__ is AccumulateGrad:
            continue
        seen[id(node)] = node
        stack.extend(e for e in node.edges if e is not None)
    return sorted(seen.values(), key=lambda n: n.seq)


def _kept(node: Any) -> Iterable[tuple[Tensor, int]]:
    """The tensors that ``node`` saved, each with the number of the node that made it."""
    for t in getattr(node, "saved", None) or ():
        if isinstance(t, Tensor):
            maker = t.graph_node()
            yield t, getattr(maker.node if maker.__class__ is Output else maker, "seq", 0)
    out = getattr(node, "out", None)
    for t in out if isinstance(out, tuple) else (out,):
        if isinstance(t, Tensor):
            yield t, node.seq


def _block(t: Tensor) -> tuple[int, int]:
    """The memory that ``t`` keeps alive: a name for it, and its bytes.

    A view keeps its source. A reshape of a permuted tensor is a copy.
    """
    while t._view is not None:
        source = t._view[0]
        if (_made_by(source), _made_by(t)) == ("permute", "reshape"):
            break
        t = source
    return id(t.array), t.nbytes


def _made_by(view: Tensor) -> str | None:
    """The operation that made this view of another tensor."""
    prim = None if view._view is None else view._view[1]
    return None if prim is None else prim.name


def _bytes(values: Iterable[Any]) -> int:
    return sum(v.nbytes for v in values if isinstance(v, Tensor))


def _optimizer_ratio(model: nn.Module, loss: Tensor, make: Callable[[Any], Any] | None) -> float:
    """Bytes of state that the optimizer makes per byte of trained parameters."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if make is None or not trained:
        return 0.0
    backward(loss)
    optimizer = make(trained)
    optimizer.step()
    state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]
    return sum(t.nbytes for t in state if t.ndim) / sum(p.nbytes for p in trained)
