"""From a profile to what a rank needs under each strategy: pure arithmetic.

Bytes on the wire are those that one rank sends per step, with the ring's count: an all-reduce of n
bytes over W ranks sends 2 (W-1)/W n, a gather or a reduce-scatter (W-1)/W n (Patarasuk and Yuan,
2009). Memory follows Rajbhandari et al., ZeRO (2020): what is sharded is there once per group, plus
the largest unit in full while it is used. The largest gradient is there a second time while it is
put in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ...errors import ConfigError
from ..optim.partition import CHUNK_BYTES
from .profile import Profile, Unit, Weight


@dataclass(frozen=True)
class Strategy:
    """How ranks divide the work: ``replicas`` x ``shards`` x ``tensor`` ranks.

    ``sharded``: which of "optimizer", "gradients", "parameters" each rank keeps a part of.
    ``reshard``: parameters are freed after the forward and gathered again for backward.
    ``note``: what a reader of the plan must know.
    """

    name: str
    replicas: int = 1
    shards: int = 1
    tensor: int = 1
    sharded: tuple[str, ...] = ()
    reshard: bool = False
    note: str = ""

    @property
    def data(self) -> int:
        """Ranks that see different samples."""
        return self.replicas * self.shards


@dataclass(frozen=True)
class Need:
    """Bytes of one rank (the one that needs most), and bytes that it sends per step.

    ``working``: the largest gradient on its way to its place, and what messages are put together
    in. ``note``: what the numbers do not say."""

    strategy: str
    ranks: str
    batch: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    largest_unit: int
    working: int
    total: int
    wire: int
    note: str = ""

    def fits(self, memory: int | None) -> bool | None:
        """Is ``memory`` enough; None when it was not said."""
        return None if memory is None else self.total <= memory


@dataclass(frozen=True)
class Precision:
    """Bytes per element of what is not kept in the parameters' own type: gathered parameters,
    and gradients on their way. None: as the parameters."""

    gathered: int | None = None
    reduced: int | None = None


ALL = ("optimizer", "gradients", "parameters")
_PAPER = "by the arithmetic of the paper, not measured: no wrapper keeps exactly that"


def strategies(world: int, hosts: int = 1, tensor: int = 0, replicas: int = 0) -> list[Strategy]:
    """Those that make sense for ``world`` ranks on ``hosts``; ``tensor``: ranks of one layer;
    ``replicas``: groups of HSDP (0: one per host, or 2).

    Raises ``ConfigError`` where the ranks cannot be divided.
    """
    if world < 1 or hosts < 1 or world % hosts:
        raise ConfigError(
            f"world={world}, hosts={hosts} given; needed is a positive number of ranks that "
            "the hosts divide"
        )
    out = [Strategy("single"), Strategy("ddp", world)]
    if world == 1:
        return out[:1]
    out += [
        Strategy("zero1", 1, world, sharded=ALL[:1]),
        Strategy("zero2", 1, world, sharded=ALL[:2], note=_PAPER),
        Strategy("fsdp shard_grad_op", 1, world, sharded=ALL),
        Strategy("fsdp", 1, world, sharded=ALL, reshard=True),
    ]
    replicas = replicas or (hosts if hosts > 1 else 2)
    if world % replicas == 0 and world > replicas:
        each = world // replicas
        out.append(Strategy("hsdp", replicas, each, sharded=ALL, reshard=True))
    if tensor > 1:
        if world % tensor:
            raise ConfigError(
                f"tensor={tensor} given for {world} ranks; needed is a divisor of them"
            )
        each = world // tensor
        out.append(Strategy("fsdp x tp", 1, each, tensor, sharded=ALL, reshard=True))
    return out


def plan(
    profile: Profile,
    strategy: Strategy,
    precision: Precision = Precision(),
    checkpointing: bool = False,
    forwards: int = 1,
) -> Need:
    """What a rank needs. ``profile`` is of the samples of one forward; a step has ``forwards``."""
    tensor, shards = strategy.tensor, strategy.shards
    trained = [w for w in profile.weights if w.trained]

    def kept(what: str, weights: Iterable[Weight]) -> int:
        parts = shards if what in strategy.sharded else 1
        return sum(_share(w, parts, tensor) for w in weights)

    params = kept("parameters", profile.weights) + profile.buffers
    grads = kept("gradients", trained)
    optim = int(profile.optimizer_ratio * kept("optimizer", trained))
    saved = _activations(profile.units, tensor, checkpointing)
    largest = 0
    if "parameters" in strategy.sharded and shards > 1:
        largest = max(_gathered(u, tensor, precision.gathered) for u in profile.units)
    # Where gradients have no place of their own, they take that of what backward has used up.
    alone = strategy.data * tensor * forwards == 1
    passing = max(grads, saved) if alone else grads + saved
    working = _working(trained, strategy)
    total = params + optim + passing + largest + working
    ranks = " x ".join(str(n) for n in (strategy.replicas, shards, tensor) if n > 1) or "1"
    wire = _wire(profile, strategy, precision, forwards)
    return Need(
        strategy.name,
        ranks,
        profile.batch * forwards,
        params,
        grads,
        optim,
        saved,
        largest,
        working,
        total,
        wire,
        strategy.note,
    )


def _working(trained: Sequence[Weight], strategy: Strategy) -> int:
    """Bytes of the largest gradient, and of a message in which all ranks' new weights travel."""
    sizes = [_share(w, 1, strategy.tensor) for w in trained]
    largest = max(sizes, default=0)
    if strategy.sharded != ALL[:1]:
        return largest
    return largest + min(sum(sizes), strategy.shards * max(CHUNK_BYTES, largest))


def _share(weight: Weight, parts: int, tensor: int) -> int:
    """The bytes of the largest of ``parts`` along dimension 0, after tensor parallelism."""
    rows, row = (weight.shape[0] if weight.shape else 1), weight.row_bytes
    if weight.split == "colwise":
        rows = -(-rows // tensor)
    elif weight.split == "rowwise":
        row = -(-row // tensor)
    return -(-rows // parts) * row


def _gathered(unit: Unit, tensor: int, itemsize: int | None) -> int:
    return sum(_share(w, 1, tensor) * (itemsize or w.itemsize) // w.itemsize for w in unit.weights)


def _activations(units: Sequence[Unit], tensor: int, checkpointing: bool) -> int:
    """All that is saved; with checkpointing the units' inputs, and one unit while it is redone."""

    def saved(unit: Unit) -> int:
        return unit.saved - unit.split + -(-unit.split // tensor)

    if not checkpointing:
        return sum(saved(u) for u in units)
    root, *inner = units
    redone = max((saved(u) for u in inner), default=0)
    return saved(root) + sum(u.inputs for u in inner) + redone


def _wire(profile: Profile, strategy: Strategy, precision: Precision, forwards: int) -> int:
    """Bytes that a rank sends: for parameters and gradients, and between the ranks of a layer.
    Sharded parameters are gathered, and gradients sent, once per forward."""
    shards, tensor = strategy.shards, strategy.tensor
    once = (shards - 1) / shards
    root, *inner = [_gathered(u, tensor, precision.gathered) for u in profile.units]
    whole = root + sum(inner)
    trained = [w for w in profile.weights if w.trained]
    grads = _gathered(Unit("", tuple(trained)), tensor, precision.reduced)
    if "parameters" in strategy.sharded:
        gathers = whole + (sum(inner) if strategy.reshard else 0)  # the root is not freed
        sent = once * (gathers + grads) * forwards
    elif "gradients" in strategy.sharded:
        sent = once * (grads + whole)
    elif "optimizer" in strategy.sharded:
        sent = once * (2 * grads + whole)
    else:
        sent = 0.0
    replicas = strategy.replicas
    often = forwards if strategy.sharded else 1
    sent += often * 2 * (replicas - 1) / replicas * grads / (shards if strategy.sharded else 1)
    crossings = forwards * sum(u.crossings for u in profile.units)  # in both directions
    return round(sent + 2 * 2 * (tensor - 1) / tensor * crossings)


def as_rows(needs: Iterable[Need], memory: int | None = None) -> list[dict]:
    """Plain records, for JSON."""
    return [{**asdict(n), "fits": n.fits(memory)} for n in needs]
