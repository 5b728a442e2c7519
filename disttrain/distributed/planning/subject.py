"""What a program says of its model so that it can be planned, and the plan as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ... import nn
from ...core.tensor import Tensor
from ...core.types.device import device
from ...errors import ConfigError
from ...sizes import size
from .plan import Need, Precision, as_rows, plan, strategies
from .profile import Profile, profile_step


@dataclass(frozen=True)
class Subject:
    """A training program, as far as its memory depends on it.

    ``build()`` makes the model (it is called with the meta device as default), ``loss(model, n)``
    the loss of n samples made on the spot, ``optimizer(parameters)`` the optimizer; ``batch_size``
    counts the samples of all ranks together. ``is_unit``, ``split``: see ``profile_step``.
    ``checkpointing``: units run again in backward. ``compute``: the type in which sharded
    strategies compute (None: the parameters'), ``precision``: of their messages.
    ``virtual_shards``: of a step with ``deterministic="global"``, else 0.
    """

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, int], Tensor]
    batch_size: int
    optimizer: Callable[[Any], Any] | None = None
    is_unit: Callable[[nn.Module], bool] = lambda module: False
    split: Mapping[str, str] = field(default_factory=dict)
    checkpointing: bool = False
    compute: Any = None
    precision: Precision = field(default_factory=Precision)
    virtual_shards: int = 0


def needs_of(
    subject: Subject, world: int, hosts: int = 1, tensor: int = 0, replicas: int = 0
) -> list[Need]:
    """What every strategy needs on ``world`` ranks; ``tensor`` is 0 for 2 where layers are split,
    ``replicas`` 0 for one per host.

    Raises ``ConfigError`` where the ranks do not divide the batch.
    """
    if not tensor and subject.split and world % 2 == 0:
        tensor = 2
    profiles: dict[tuple, Profile] = {}
    needs = []
    for strategy in strategies(world, hosts, tensor, replicas):
        each, rest = divmod(subject.batch_size, strategy.data)
        if rest:
            raise ConfigError(
                f"a batch of {subject.batch_size} for {strategy.data} ranks given; needed is a "
                "multiple of the number of ranks"
            )
        forwards = max(1, subject.virtual_shards // strategy.data)
        each //= forwards
        sharded = "parameters" in strategy.sharded
        kind = subject.compute if sharded else None
        if (each, kind) not in profiles:
            profiles[each, kind] = _profile(subject, each, kind)
        precision = subject.precision if sharded else Precision()
        needs.append(
            plan(profiles[each, kind], strategy, precision, subject.checkpointing, forwards)
        )
    return needs


def _profile(subject: Subject, batch: int, kind: object) -> Profile:
    """The profile of a model that computes in ``kind``; its weights are kept in their own type."""
    with device("meta"):
        model = subject.build()
        sizes = {name: p.itemsize for name, p in model.named_parameters()}
        if kind is not None:
            model = model.to(kind)
        found = profile_step(
            model, subject.loss, batch, subject.is_unit, subject.split, subject.optimizer
        )
    units = [
        replace(u, weights=tuple(replace(w, itemsize=sizes[w.name]) for w in u.weights))
        for u in found.units
    ]
    return replace(found, units=tuple(units))


COLUMNS = (
    *("parameters", "gradients", "optimizer", "activations"),
    *("largest_unit", "working", "total", "wire"),
)


def table(needs: Sequence[Need], memory: int | None = None) -> str:
    """The plan as text: a line per strategy, sizes per rank; notes below."""
    heads = ["strategy", "ranks", "batch", *(c.replace("_", " ") for c in COLUMNS)]
    heads[-1] = "sent per step"
    rows = []
    for n in needs:
        name = n.strategy + "*" * bool(n.note)
        cells = [name, n.ranks, str(n.batch), *(size(getattr(n, c)) for c in COLUMNS)]
        if memory is not None:
            cells.append("yes" if n.fits(memory) else "no")
        rows.append(cells)
    if memory is not None:
        heads.append(f"fits {size(memory)}")
    widths = [max(len(r[i]) for r in [heads, *rows]) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest])

    notes = [f"* {n.strategy}: {n.note}" for n in needs if n.note]
    return "\n".join([*(line(r) for r in [heads, *rows]), *notes])


def as_json(needs: Sequence[Need], memory: int | None = None) -> str:
    """The plan as a JSON array, sizes in bytes."""
    return json.dumps(as_rows(needs, memory), indent=1)
