"""The weights and gradients of a unit whose parameters are one vector (``layout``).

They stand in for ``GatheredWeights``, ``WindowWeights`` and ``Gradients``: gathered, the vector is
there in one piece and the full weights are views of it; a gradient is written to where its
parameter lies in the ranks' blocks. Knows arrays and members; when to do what is the unit's affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends.device.memory import DONE, memory_of
from ....backends.null import NullArray
from ....comm.calls.reduce_ops import ReduceOp
from ....comm.group.blocks import Blocks
from ....comm.group.group import ProcessGroup
from ....core import wrap
from ....core.backward.sink import accumulate
from ....errors import ConfigError, ShapeError
from ..shards.gradients import Gradients, Pool
from ..shards.lanes import Line
from ..shards.members import Choices, Member, Sharding
from ..shards.places import Places
from ..shards.weights import in_use, read_only
from ..shards.window_weights import Window
from .layout import FlatLayout, views
from .param import FlatParameter

_REDUCE = {"sum": ReduceOp.SUM, "max": ReduceOp.MAX, "min": ReduceOp.MIN}


def raw_of(array: np.ndarray) -> Any:
    """The raw array of what a Tensor holds."""
    return memory_of(array).raw(array)


@dataclass(frozen=True)
class OverRanks:
    """Joins numbers that the ranks of a group have found, each from its part of a parameter."""

    group: ProcessGroup

    def __call__(self, values: np.ndarray, how: str) -> None:
        self.group.all_reduce(values, _REDUCE[how])

    def __deepcopy__(self, memo: dict) -> OverRanks:
        return self


class FlatWeights:
    """One vector of weights of type ``kind``, gathered in the type ``used``."""

    def __init__(
        self,
        members: list[Member],
        layout: FlatLayout,
        sharding: Sharding,
        kinds: tuple[np.dtype, np.dtype],
        blocks: Blocks,
        places: Places,
    ) -> None:
        self.members, self.layout, self.sharding = members, layout, sharding
        self.kind, self.used = kinds
        self.blocks, self.places = blocks, places
        self.held = places.home.held
        self.local = places.shards(layout.chunk, self.kind)
        self.param: FlatParameter | None = None
        self.pieces: list[Any] | None = None  # of this rank, where programs see parameters
        self._landing: tuple | None = None
        self._gathered: tuple | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the full weights."""
        return self.layout.numel * self.used.itemsize

    def take(self, arrays: list[Any]) -> None:
        """Keep this rank's chunk of the full ``arrays``, which Tensors hold."""
        rank = self.sharding.rank
        for i, array in enumerate(arrays):
            lo, hi = self.layout.part(i, rank)
            a, b = self.layout.local(i, rank)
            if hi > lo:
                self.write(self.local[a:b], raw_of(array).reshape(-1)[lo:hi])
        self.written()

    def write(self, target: Any, values: Any) -> None:
        """Write raw ``values``, wherever they lie, to a part of ``local``."""
        self.places.use.copy_to(target, values)

    def written(self) -> None:
        """The end of writing."""
        if self.places.apart:
            self.places.use.settle()  # the host is to read them

    def cut(self) -> list[Any]:
        """This rank's part of every parameter, as views of the chunk."""
        rank = self.sharding.rank
        spans = [self.layout.local(i, rank) for i in range(len(self.layout.pieces))]
        self.pieces = [self.local[a:b] for a, b in spans]
        if self.layout.world == 1:  # the parameters themselves
            shapes = [p.shape for p in self.layout.pieces]
            self.pieces = [p.reshape(s) for p, s in zip(self.pieces, shapes, strict=True)]
        return self.pieces

    def refresh(self) -> bool:
        """Take up memory and parameters that a program has put into the place of ours; whether
        there were any."""
        flat, found = self.param, False
        assert flat is not None
        if raw_of(flat.array) is not self.local:
            found = True
            self._check(flat.array, self.local, "the flat parameter")
            self.write(self.local, raw_of(flat.array))
            flat.array = self.held(self.local)
            flat.__dict__["_st"] = None
        if self.pieces is not None:
            for m, piece in zip(self.members, self.pieces, strict=True):
                found = self._adopt(m, piece) or found
        if found:
            self.written()
        return found

    def _adopt(self, m: Member, piece: Any) -> bool:
        module, name = m.places[0]
        now = module._parameters.get(name)
        if now is None or now is m.full:
            now = m.sharded
        if now is not m.sharded:
            m.sharded = now
            for other, other_name in m.places:
                other._parameters[other_name] = now
        if raw_of(now.array) is piece:
            return False
        self._check(now.array, piece, m.name)
        self.write(piece, raw_of(now.array).reshape(piece.shape))
        now.data = wrap(self.held(piece))
        return True

    def _check(self, array: Any, mine: Any, name: str) -> None:
        if array.__class__ is NullArray:
            raise ConfigError(
                f"FullyShardedDataParallel: {name} is on the meta device; give it memory first, or "
                "let param_init_fn do so when the module is wrapped"
            )
        if array.size != mine.size or array.dtype != mine.dtype:
            raise ShapeError(
                "FullyShardedDataParallel: Cannot writeback when the parameter shape changes: "
                f"{name} has become {array.dtype}{list(array.shape)}; needed is "
                f"{mine.dtype}{list(mine.shape)}, this rank's part of it. Change whole parameters "
                "inside summon_full_params"
            )

    def start(self, async_op: bool, line: Line) -> None:
        """Begin to gather; on a device ``line`` does it."""
        if self.refresh():
            line.follow()
        line.release()
        use, work = self.places.use, None
        with line.gather:
            flat = own = in_use(self.local, self.places, self.used)
            if self.layout.world > 1:
                flat = use.empty(self.layout.padded, self.used)
                work = self.blocks.gather(flat, own, async_op=async_op and use.on_host)
            self._landing = (flat, own, work, line.gather.mark(), line)

    def finish(self) -> None:
        """Wait until all is gathered, and give the full weights their memory."""
        flat, own, work, mark, line = self._landing  # type: ignore[misc]
        self._landing = None
        if work is not None:
            work.wait()
        mark.wait()
        use = self.places.use
        line.keep(own)
        self._gathered = flat, line
        for m, full in zip(self.members, views(read_only(flat), self.layout), strict=True):
            m.full.array = use.held(full)

    def drop(self) -> None:
        """The full weights are not needed any more."""
        if self._landing is not None:
            self.finish()
        if self._gathered is not None:
            flat, line = self._gathered
            line.keep(flat)  # what reads it was given already
            self._gathered = None
        for m in self.members:
            m.full.__dict__.pop("array", None)


class FlatWindow(Window, FlatWeights):
    """As ``FlatWeights``, in a window. Before a rank writes its chunk, all must have left."""

    def _open_window(self) -> None:
        size, layout = self.used.itemsize, self.layout
        self.shared = self.blocks.share(max(layout.padded * size, 1))
        vector = self.shared.bytes[: layout.padded * size].view(self.used)
        at = self.sharding.rank * layout.chunk
        self._parts = [vector[at : at + layout.chunk]]
        self._fulls = views(read_only(vector), layout)

    def _own_parts(self) -> list[np.ndarray]:
        return [self.local]


def receive(param: Any, array: object) -> None:
    """Add a gradient, what a Tensor holds, to ``param.grad``; hooks of the parameter run."""
    node = param._node
    if node is None:
        return
    g = wrap(array)
    for hook in list((node.tensor_hooks or {}).get(0, {}).values()):
        changed = hook(g)
        g = g if changed is None else changed
    if param._grad is not None or node.store:
        accumulate(node, g.array)
        return
    param._grad = wrap(g.array.copy("C")) if node.tensor_hooks else g  # hooks may keep theirs
    for hook in list((node.accumulate_hooks or {}).values()):
        hook(param)


class FlatGradients(Gradients):
    """The gradients of a vector of parameters. ``hook``: (state, function) of the program's own
    reduction, None for the mean. ``keep``: leave shards of gradients in the type they were reduced
    in."""

    hook: tuple[Any, Any] | None = None
    keep = False

    def __init__(
        self,
        weights: FlatWeights,
        kind: np.dtype,
        choices: Choices,
        blocks: Blocks,
        pool: Pool,
        line: Line,
    ) -> None:
        self.weights, self.places, self.line = weights, weights.places, line
        self.members, self.sharding = weights.members, weights.sharding
        self.kind, self.choices, self.blocks, self.pool = kind, choices, blocks, pool
        self.layout: Any = weights.layout
        self.buffer: Any = None
        self.has = [False] * len(self.members)
        self._targets: dict[int, Any] = {}
        self._own: Any = None
        self._flying: tuple | None = None
        self.partial: Any = None
        self._cuts = [self.layout.cuts(i) for i in range(len(self.members))]

    def deposit(self, i: int, array: Any) -> None:
        """Write (or add) member ``i``'s full gradient, a raw array."""
        if self.buffer is None:
            self.buffer = self._room()
        if self.choices.scales is not None:
            array = self._scaled(array)
        flat, size = array.reshape(-1), self.layout.flagged
        for rank, at, lo, hi in self._cuts[i]:
            target = self.buffer[rank * size + at : rank * size + at + hi - lo]
            if self.has[i]:
                np.add(target, flat[lo:hi], out=target, casting="unsafe")
            else:
                np.copyto(target, flat[lo:hi], casting="unsafe")
        self.has[i] = True

    def launch(self) -> None:
        """Begin to reduce what was deposited; what received no gradient counts as zeros."""
        if self.buffer is None:
            self.buffer = self._room()
        buffer, self.buffer = self.buffer, None
        blocks = buffer.reshape(self.sharding.world, -1)
        for has, cuts in zip(self.has, self._cuts, strict=True):
            if not has:
                for rank, at, lo, hi in cuts:
                    blocks[rank, at : at + hi - lo] = 0
        empty = self.layout.padded - self.layout.numel
        if empty:
            self._clear_padding(blocks, empty)
        self._weigh(blocks)
        blocks[:, self.layout.chunk :] = 0
        known = self._flag(blocks, self.layout.chunk)
        out = self._out()
        if self.hook is None:
            self._flying = (buffer, out, self._reduce(buffer, out), self._mark(), known)
        else:
            self._by_hook(blocks, out)
            self._flying = (buffer, out, None, DONE, ([True] * len(self.members), True))

    @property
    def end(self) -> int:
        return self.layout.chunk

    def _clear_padding(self, blocks: Any, empty: int) -> None:
        chunk = self.layout.chunk
        for rank in range(self.sharding.world - 1, -1, -1):
            n = min(empty, chunk)
            blocks[rank, chunk - n : chunk] = 0
            empty -= n
            if not empty:
                return

    def _by_hook(self, blocks: np.ndarray, out: np.ndarray) -> None:
        """Let the program reduce: the vector in, this rank's chunk out."""
        state, run = self.hook  # type: ignore[misc]
        chunk, use = self.layout.chunk, self.places.use
        result = vector = wrap(use.held(blocks[:, :chunk].copy().reshape(-1)))
        if self.sharding.world == 1:
            run(state, vector)
        else:
            result = wrap(use.held(use.empty(chunk, self.kind)))
            run(state, vector, result)
        out[:chunk] = use.raw(result.array)
        out[chunk:] = 1

    def _over_replicas(self, out: object) -> bool:
        return True if self.hook is not None else super()._over_replicas(out)

    def _store(self, out: object, known: tuple[list[bool], bool]) -> None:
        w, held = self.weights, self.weights.held
        used = self._used(out, self.layout.chunk, known)
        if not any(used):
            return
        local = self._home(out)[: self.layout.chunk]
        if not self.keep and local.dtype != w.kind:
            local = local.astype(w.kind)
        if w.pieces is None:
            receive(w.param, held(local))
            return
        rank = self.sharding.rank
        for i, (m, flag, piece) in enumerate(zip(self.members, used, w.pieces, strict=True)):
            if flag and piece.size:
                a, b = self.layout.local(i, rank)
                receive(m.sharded, held(local[a:b].reshape(piece.shape)))
