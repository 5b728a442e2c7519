"""Models into stages: chains are cut where one says, or where the cost is even.

A chain is an ``nn.Sequential`` (also one inside another), or a list of layers. A model whose
``forward`` does more is traced (``tracing``), or written as stages by hand.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from typing import Any

from ... import nn
from ...comm.group.group import ProcessGroup
from ...core.annotations import DeviceLike
from ...errors import ConfigError
from .stage import PipelineStage
from .tracing import mark, trace


class SplitPoint(Enum):
    """Cut before (``BEGINNING``) or behind (``END``) a submodule."""

    BEGINNING = 1
    END = 2


def split_by_cost(costs: Sequence[float], num_stages: int) -> list[range]:
    """Cut a chain of layers with these costs into ``num_stages`` pieces, none empty, so that the
    dearest piece is as cheap as can be."""
    n = len(costs)
    if not 1 <= num_stages <= n:
        raise ConfigError(
            f"pipeline: {n} layers for {num_stages} stages; needed is at least one layer per stage"
        )
    sums = [0.0]
    for c in costs:
        sums.append(sums[-1] + c)
    # best[j]: the dearest of the first pieces when they end at j; came[k][j]: where piece k began.
    best = [float("inf")] * (n + 1)
    best[0] = 0.0
    came: list[list[int]] = []
    for _ in range(num_stages):
        row, back = [float("inf")] * (n + 1), [0] * (n + 1)
        for j in range(1, n + 1):
            for i in range(j):
                worst = max(best[i], sums[j] - sums[i])
                if worst < row[j]:
                    row[j], back[j] = worst, i
        best = row
        came.append(back)
    cuts = [n]
    for back in reversed(came):
        cuts.append(back[cuts[-1]])
    cuts.reverse()
    return [range(a, b) for a, b in itertools.pairwise(cuts)]


def split_layers(
    layers: list | nn.Sequential, num_stages: int, costs: Sequence[float] | None = None
) -> list[nn.Sequential]:
    """An ``nn.Sequential``, or a list of layers, as ``num_stages`` Sequentials of about equal cost
    (``costs``: one per layer; default: numbers of parameters). Names of parameters stay."""
    named = (
        list(layers.named_children())
        if isinstance(layers, nn.Module)
        else [(str(i), m) for i, m in enumerate(layers)]
    )
    if costs is None:
        costs = [1.0 + sum(p.numel() for p in m.parameters()) for _, m in named]
    if len(costs) != len(named):
        raise ConfigError(f"pipeline: {len(costs)} costs for {len(named)} layers; one each")
    return [
        nn.Sequential(OrderedDict([named[i] for i in piece]))
        for piece in split_by_cost(costs, num_stages)
    ]


class Pipe:
    """A model that was cut: ``num_stages`` modules, whose parameters keep their names."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._modules = modules

    @property
    def num_stages(self) -> int:
        return len(self._modules)

    def __repr__(self) -> str:
        return "\n".join(f"stage {i}: {m}" for i, m in enumerate(self._modules))

    def get_stage_module(self, stage_idx: int) -> nn.Module:
        """The module of one stage."""
        if not 0 <= stage_idx < self.num_stages:
            raise ConfigError(
                f"Invalid stage index {stage_idx}; there are {self.num_stages} stages, from 0"
            )
        return self._modules[stage_idx]

    def build_stage(
        self, stage_index: int, device: DeviceLike | None = None, group: ProcessGroup | None = None
    ) -> PipelineStage:
        """The stage for a schedule."""
        module = self.get_stage_module(stage_index)
        return PipelineStage(module, stage_index, self.num_stages, device, group=group)


def build_stage(
    stage_module: nn.Module,
    stage_index: int,
    pipe_info: Pipe,
    device: DeviceLike | None = None,
    group: ProcessGroup | None = None,
) -> PipelineStage:
    """A stage of ``stage_module``; ``pipe_info``: the ``Pipe`` that it belongs to."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


def pipe_split() -> None:
    """In a model's ``forward``: ``pipeline`` cuts here. Changes nothing otherwise."""
    mark()


def pipeline(
    module: nn.Module,
    mb_args: tuple = (),
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: object = None,
) -> Pipe:
    """Cut ``module`` at the submodules that ``split_spec`` names, or where it calls
    ``pipe_split()``.

    An ``nn.Sequential`` is cut as it is. Any other model runs once on the micro-batch ``mb_args``,
    ``mb_kwargs`` and is cut into the operations that it did (``tracing``): all micro-batches must
    have its shapes then. Raises ``CaptureError`` for a program that looks at numbers of tensors.
    """
    if split_policy is not None:
        raise ConfigError(
            "pipeline: split_policy works on a traced graph of another kind; say where to cut by "
            "split_spec, {name of a submodule: SplitPoint.BEGINNING or END}, or by pipe_split()"
        )
    spec = split_spec or {}
    known = {name for name, _ in module.named_modules()}
    unknown = [name for name in spec if name not in known]
    if unknown:
        raise ConfigError(
            f"pipeline: split_spec names {unknown[0]!r}, which the model does not have; it has "
            f"{', '.join(n for n, _ in module.named_children()) or 'no submodules'}"
        )
    if spec and all(_is_chain(module, name) for name in spec):
        return Pipe(_cut_chain(module, spec))
    before = {name: point is SplitPoint.BEGINNING for name, point in spec.items()}
    pieces = trace(module, tuple(mb_args), dict(mb_kwargs or {}), before)
    if len(pieces) == 1:
        raise ConfigError(
            "pipeline: nothing says where to cut: give split_spec, {name of a submodule: "
            "SplitPoint.BEGINNING or END}, or call pipe_split() in the model's forward"
        )
    return Pipe(pieces)


def _is_chain(module: nn.Module, name: str) -> bool:
    """Whether everything around the submodule ``name`` is an ``nn.Sequential``."""
    path = name.split(".")
    around = [".".join(path[:i]) for i in range(len(path))]
    return all(type(module.get_submodule(n)) is nn.Sequential for n in around)


def _cut_chain(module: nn.Module, spec: dict[str, SplitPoint]) -> list[nn.Module]:
    units: list[tuple[str, nn.Module]] = []
    _unfold("", module, set(spec), units)
    names = [name for name, _ in units]
    cuts = {0, len(units)}
    for name, point in spec.items():
        inside = [i for i, n in enumerate(names) if n == name or n.startswith(name + ".")]
        cuts.add(inside[0] if point is SplitPoint.BEGINNING else inside[-1] + 1)
    return [_fold(units[a:b]) for a, b in itertools.pairwise(sorted(cuts))]


def _unfold(
    path: str, module: nn.Module, wanted: set[str], units: list[tuple[str, nn.Module]]
) -> None:
    """The chain that ``module`` is, cut open as far as ``wanted`` names are inside."""
    here = f"{path}." if path else ""
    inner = sorted(n for n in wanted if n.startswith(here) and n != path)
    if not inner:
        units.append((path, module))
        return
    for name, child in module.named_children():
        _unfold(here + name, child, wanted, units)


def _fold(units: list[tuple[str, nn.Module]]) -> nn.Module:
    """Sequentials around ``units``, so that the parameters' names are those of the whole model."""
    tree: OrderedDict[str, Any] = OrderedDict()
    for name, module in units:
        *outer, last = name.split(".")
        node = tree
        for part in outer:
            node = node.setdefault(part, OrderedDict())
        node[last] = module
    return _build(tree)


def _build(tree: OrderedDict[str, Any]) -> nn.Module:
    made = [(k, v if isinstance(v, nn.Module) else _build(v)) for k, v in tree.items()]
    return nn.Sequential(OrderedDict(made))
