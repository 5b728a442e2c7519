"""How long a step takes: products at the calibrated part of a device's peak, what is moved at that
of its memory, what is sent at that of its links, and what of that cannot hide behind computation.

A product of ``m x k`` by ``k x n`` takes its operations at the peak plus its operands at the
memory's rate: small ones are slow by themselves, without a table of sizes. A pass over a layer
takes no less than the host needs to launch its kernels. Knows no ranks that run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from .clusters import Machines
from .constants import Constants
from .layouts import DDP, FSDP, FULL, HSDP, SELECTIVE, ZERO1, Layout, bubble
from .links import Crowd, Links, crowd
from .transformer import Product, Transformer

STACK = "default"
_FLASH_BACK = 2.5  # products of the fused backward against those of its forward: five to two
_LAST_BUCKET = 0.1  # of the gradients: made when there is nothing left to hide behind
_BACKWARD = 2.0 / 3.0  # of what a micro-batch computes
_ADAM = 28.0  # bytes: weight, gradient, two moments read, three of them written


@dataclass(frozen=True)
class Pass:
    """Seconds of one layer in one direction."""

    compute: float
    exposed: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.exposed


@dataclass(frozen=True)
class Times:
    """Of a step: ``total``, and the parts of it. ``sent``: by kind, what cannot hide."""

    total: float
    compute: float
    bubble: float
    optimizer: float
    sent: dict[str, float] = field(default_factory=dict)

    @property
    def exposed(self) -> float:
        return sum(self.sent.values())


@dataclass(frozen=True)
class Costs:
    """What ``layout`` of ``model`` costs on ``machines``; ``stack``: whose launches and passes."""

    model: Transformer
    layout: Layout
    machines: Machines
    constants: Constants
    stack: str = STACK

    # -- rates --------------------------------------------------------------------------------

    @cached_property
    def kind(self) -> str:
        return self.layout.precision.removesuffix("_amp")

    @cached_property
    def itemsize(self) -> int:
        return 4 if self.kind == "fp32" else 2

    @cached_property
    def gathered_size(self) -> int:
        """Bytes of a weight on its way: those that are computed with in 8 bits are sent so."""
        return 1 if self.layout.precision == "fp8" else self.itemsize

    @cached_property
    def reduced_size(self) -> int:
        """Bytes of a gradient on its way."""
        wide = self.layout.sharding == ZERO1 or self.layout.precision.endswith("_amp")
        return self.layout.reduced or (4 if wide else self.itemsize)

    @cached_property
    def returned_size(self) -> int:
        """Bytes of what comes back of it: of a weight, where ranks update parts, else of a sum."""
        return self.gathered_size if self.layout.sharding == ZERO1 else self.reduced_size

    @cached_property
    def links(self) -> Links:
        return Links(self.machines, self.constants)

    @cached_property
    def memory_rate(self) -> float:
        return self.machines.device.bandwidth * self.constants.get("memory")

    def _peak(self, kind: str) -> float:
        peaks = self.machines.device.peaks
        return peaks.get(kind, peaks["bf16"])

    @cached_property
    def product_rate(self) -> float:
        """Of a large product."""
        of = self.machines.device.family, self.kind
        return self._peak(self.kind) * self.constants.get("products", *of)

    @cached_property
    def attention_rate(self) -> float:
        """Of scores; they are in bfloat16 where products are in 8 bits."""
        kind = "bf16" if self.kind == "fp8" else self.kind
        of = self.stack, self.machines.device.family
        return self._peak(kind) * self.constants.get("attention", *of)

    # -- groups -------------------------------------------------------------------------------

    def _crowd(self, size: int, stride: int) -> Crowd:
        return crowd(self.machines, size, stride)

    @cached_property
    def tensor_group(self) -> Crowd:
        return self._crowd(self.layout.tensor, 1)

    @cached_property
    def context_group(self) -> Crowd:
        return self._crowd(self.layout.context, self.layout.tensor)

    @cached_property
    def data_group(self) -> Crowd:
        return self._crowd(self.layout.data * self.layout.context, self.layout.tensor)

    @cached_property
    def expert_group(self) -> Crowd:
        return self._crowd(self.layout.expert, self.layout.tensor)

    # -- a layer ------------------------------------------------------------------------------

    def product(self, p: Product, tokens: float) -> float:
        """Seconds of one product."""
        tensor = self.layout.tensor
        n, k, copies = float(p.n), float(p.k), 1.0
        if p.cut == "n":
            n /= tensor
        elif p.cut == "k":
            k /= tensor
        m = tokens * p.each
        if p.of > 1:
            copies = p.of / self.layout.expert
        operands = (m * (k + n) + copies * n * k) * self.itemsize
        return 2.0 * m * n * k / self.product_rate + operands / self.memory_rate

    def attention(self, sparse_window: bool = False) -> float:
        """Seconds of the scores' products, forward."""
        lay, model = self.layout, self.model
        heads = model.heads / lay.tensor
        seen = lay.seq if not sparse_window else min(lay.seq, model.window)
        pairs = lay.tokens * seen * heads
        flops = 4.0 * model.score_dim * pairs
        extra = 1.0 + self.constants.get("score") / model.score_dim
        if lay.fused:
            return flops / 2.0 * extra / self.attention_rate  # only keys that came before
        scores = pairs * self.itemsize * self.constants.get("score_passes", self.stack)
        return flops / self.product_rate + scores / self.memory_rate

    def _moved(self, sparse: bool, again: bool = False) -> float:
        """Bytes that norms, residuals and activations read and write, forward; ``again``: of those
        that are cheap to compute again, which are norms and activations."""
        lay, model = self.layout, self.model
        divided = lay.tensor if lay.sequence else 1
        width = model.width
        if sparse:
            width = model.expert_ffn * model.top_k + model.shared_ffn
        own = (4.0 if again else 10.0) * model.hidden / divided
        own += (3.0 if model.gated else 2.0) * width / lay.tensor
        if sparse and not again:
            own += 4.0 * model.hidden * model.top_k  # tokens are sorted to experts and back
        return (
            lay.tokens * own * self.itemsize * self.constants.get("passes", self.stack, self.kind)
        )

    def _tensor_sent(self) -> float:
        """What the ranks of a layer exchange in one direction: twice a sum."""
        nbytes = self.layout.tokens * self.model.hidden * self.itemsize
        return 2.0 * self.links.all_reduce(self.tensor_group, nbytes)

    def _context_sent(self) -> float:
        """Queries, keys, values and results change between sequences and heads."""
        model, lay = self.model, self.layout
        row = (2 * model.heads + 2 * model.groups) * model.dim / lay.tensor
        return self.links.all_to_all(self.context_group, lay.tokens * row * self.itemsize)

    def _expert_sent(self, sparse: bool) -> float:
        if not sparse:
            return 0.0
        nbytes = self.layout.tokens * self.model.top_k * self.model.hidden * self.itemsize
        return 2.0 * self.links.all_to_all(self.expert_group, nbytes)

    def _tensor_exposed(self, products: float) -> float:
        """What of the ranks' exchange does not hide behind the ``products`` of its layer. In
        pieces, a gather begins with what a rank has; of a scatter, the last piece is late."""
        sent, ranks = self._tensor_sent(), self.layout.tensor
        if ranks == 1 or not self.layout.in_pieces:
            return sent
        return max(sent / 2.0 / (ranks - 1), sent - products)

    def _launched(self, sparse: bool) -> float:
        """Seconds in which a host launches a layer's forward: each expert's kernels are its own."""
        experts = self.model.experts / self.layout.expert if sparse else 0.0
        each = self.constants.get("expert_launch")
        return self.constants.get("launch", self.stack) + experts * each

    def passes(self, sparse: bool) -> tuple[Pass, Pass]:
        """Forward and backward of one layer; the latter with what it computes again."""
        lay, model = self.layout, self.model
        products = sum(self.product(p, lay.tokens) for p in model.products(sparse))
        scores = self.attention()
        if model.window:
            scores = (scores + self.attention(True)) / 2.0
        moved = self._moved(sparse) / self.memory_rate
        others = self._context_sent() + self._expert_sent(sparse)
        sent, returned = (others + self._tensor_exposed(n * products) for n in (1.0, 2.0))
        host = self._launched(sparse)
        forward = Pass(max(products + scores + moved, host - sent), sent)
        back = 2.0 * products + (_FLASH_BACK if lay.fused else 2.0) * scores + 2.0 * moved
        backward = Pass(max(back, 2.0 * host - returned), returned)
        if lay.recompute == SELECTIVE:
            again = self._moved(sparse, True) / self.memory_rate + (0.0 if lay.fused else scores)
            backward = Pass(backward.compute + again, backward.exposed)
        elif lay.recompute == FULL:
            backward = Pass(backward.compute + forward.compute, backward.exposed + forward.exposed)
        return forward, backward

    def ends(self) -> tuple[float, float]:
        """The embedding, and the product with all words and its loss, both directions."""
        lay, model = self.layout, self.model
        words = model.vocab / lay.tensor
        operands = (lay.tokens * (model.hidden + words) + words * model.hidden) * self.itemsize
        once = 2.0 * lay.tokens * words * model.hidden / self._head_rate + (
            operands / self.memory_rate
        )
        loss = lay.tokens * words * self.constants.get("loss_bytes", self.stack) / self.memory_rate
        looked_up = 6.0 * lay.tokens * model.hidden * self.itemsize / self.memory_rate
        return looked_up, 3.0 * once + loss

    @cached_property
    def _head_rate(self) -> float:
        """The product with all words is not made in 8 bits."""
        if self.kind != "fp8":
            return self.product_rate
        return self._peak("bf16") * self.constants.get(
            "products", self.machines.device.family, "bf16"
        )

    # -- weights that are gathered ------------------------------------------------------------

    def _gathered(self, sparse: bool, passes: tuple[Pass, Pass]) -> tuple[float, float, float]:
        """Of a layer of sharded weights: seconds that its messages take beyond its computation,
        forward and backward; and by how much messages slow the computation."""
        lay = self.layout
        gather = scatter = 0.0
        for size, shards, stride in self._pieces(sparse):
            group = self._crowd(shards, stride)
            gather += self.links.halves(group, size * self.gathered_size)
            scatter += self.links.halves(group, size * self.reduced_size)
            if lay.replicas > 1:
                others = self._crowd(lay.replicas, lay.tensor * lay.shards)
                scatter += self.links.all_reduce(others, size * self.reduced_size / shards)
        forward, backward = passes
        late = max(0.0, gather - forward.total), max(0.0, gather + scatter - backward.total)
        hidden = min(gather, forward.total) + min(gather + scatter, backward.total)
        return late[0], late[1], hidden * self.constants.get("contention")

    def _pieces(self, sparse: bool) -> list[tuple[float, int, int]]:
        """Of a layer: elements, devices that share them, and how far apart those are."""
        lay, model = self.layout, self.model
        size = float(model.layer_weights(sparse, lay.tensor, lay.expert))
        if not sparse or lay.expert == 1:
            return [(size, lay.shards, lay.tensor)]
        routed = sum(p.weights for p in model.sparse if p.of > 1) / lay.tensor / lay.expert
        fewer = max(1, lay.shards // lay.expert)
        return [(size - routed, lay.shards, lay.tensor), (routed, fewer, lay.tensor * lay.expert)]

    # -- a step -------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> dict[bool, int]:
        """Layers with and without experts."""
        found: dict[bool, int] = {}
        for i in range(self.model.layers):
            sparse = self.model.is_sparse(i)
            found[sparse] = found.get(sparse, 0) + 1
        return found

    @cached_property
    def layers(self) -> tuple[float, float, float]:
        """Of all layers and one micro-batch: what they compute, what they exchange meanwhile, and
        what their sharded weights come too late."""
        compute = exposed = late = 0.0
        for sparse, count in self.kinds.items():
            both = self.passes(sparse)
            compute += count * sum(p.compute for p in both)
            exposed += count * sum(p.exposed for p in both)
            if self.layout.sharding in (FSDP, HSDP) and self.layout.shards > 1:
                *waits, slowed = self._gathered(sparse, both)
                late += count * sum(waits)
                compute += count * slowed
        return compute, exposed, late

    def slowest(self) -> tuple[float, float]:
        """What the slowest stage computes and exchanges of one micro-batch: often the last one, for
        its loss."""
        first, last = self.ends()
        layers = self.model.layers
        stages = [n / layers for n in self.layout.stage_layers(layers)]
        both = [[self.layers[0] * n, self.layers[1] * n] for n in stages]
        both[0][0] += first
        both[-1][0] += last
        found = max(both, key=sum)
        return found[0], found[1]

    def _hops(self) -> tuple[float, float]:
        """Of a micro-batch between two stages: the way of what is sent, there and back, which
        hides once the pipeline is full; what a stage's host waits for each time."""
        lay = self.layout
        if lay.pipeline == 1:
            return 0.0, 0.0
        nbytes = lay.tokens * self.model.hidden * self.itemsize
        nbytes /= lay.tensor if lay.sequence else 1
        hop = self.links.send(lay.devices // lay.pipeline, nbytes)
        return 2.0 * lay.chunks * hop, lay.chunks * self.constants.get("hop", self.stack)

    def times(self) -> Times:
        """Of one step of the whole training."""
        lay, share = self.layout, 1.0 / self.layout.pipeline
        compute, exposed, late = self.layers
        hop, waiting = self._hops()
        idle = bubble(lay.pipeline, lay.chunks, lay.micros)
        idle *= share * (compute + exposed + late + sum(self.ends()))
        busy, exchanged = (lay.micros * each for each in self.slowest())
        sent = {
            "layers": exchanged,
            "gathers": lay.micros * late * share,
            "pipeline": (lay.pipeline - 1) * hop + lay.micros * waiting,
            "gradients": self._reduced(compute * share),
        }
        last = self._optimizer()
        if lay.devices > lay.tensor:
            last += self.constants.get("step", self.stack)
        return Times(busy + idle + last + sum(sent.values()), busy, idle, last, sent)

    @cached_property
    def held(self) -> float:
        """Elements of weights of one device, before they are sharded: of the fullest stage."""
        lay, model = self.layout, self.model
        stages = lay.pipeline
        most = max(lay.stage_layers(model.layers))
        each = {s: model.layer_weights(s, lay.tensor, lay.expert) for s in self.kinds}
        chosen = model.layers - most if stages > 1 else 0
        layers = sum(each[model.is_sparse(i)] for i in range(chosen, model.layers))
        ends = model.embedding / lay.tensor * (1 if model.tied or stages > 1 else 2)
        return layers + ends + model.positions * model.hidden * (stages == 1)

    def _reduced(self, compute: float) -> float:
        """Gradients between replicas, at the end of a step; where they may leave during the last
        backward (of ``compute``, of one micro-batch), what does not hide behind it."""
        lay = self.layout
        if lay.sharding not in (DDP, ZERO1) or lay.data * lay.context == 1:
            return 0.0
        dense, routed = self._by_group()
        seconds = 0.0
        for size, group in ((dense, self.data_group), (routed, self._replica_group)):
            seconds += self.links.halves(group, size * self.reduced_size)
            seconds += self.links.halves(group, size * self.returned_size)
        if lay.overlap:
            seconds = max(_LAST_BUCKET * seconds, seconds - _BACKWARD * compute)
        return seconds

    def _by_group(self) -> tuple[float, float]:
        """Held elements that all replicas share, and those of experts, which fewer share."""
        lay, model = self.layout, self.model
        if not model.experts or lay.expert == 1:
            return self.held, 0.0
        routed = sum(p.weights for p in model.sparse if p.of > 1) / lay.tensor / lay.expert
        routed *= max(lay.stage_layers(model.layers)) * self.kinds.get(True, 0) / model.layers
        return max(0.0, self.held - routed), routed

    @cached_property
    def _replica_group(self) -> Crowd:
        lay = self.layout
        size = max(1, lay.data * lay.context // lay.expert)
        return self._crowd(size, lay.tensor * lay.expert)

    def _optimizer(self) -> float:
        lay = self.layout
        dense, routed = self._by_group()
        if lay.sharding in (FSDP, HSDP):
            elements = dense / lay.shards + routed / max(1.0, lay.shards / lay.expert)
        elif lay.sharding == ZERO1:
            whole = lay.data * lay.context
            elements = dense / whole + routed * lay.expert / whole
        else:
            elements = self.held
        return elements * _ADAM * self.constants.get("optimizer") / self.memory_rate
