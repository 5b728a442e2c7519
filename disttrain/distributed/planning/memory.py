"""What a device must hold during a step: weights, gradients, the optimizer's state, what the
backward needs, and buffers. Counted for each stage of a pipeline; the fullest one is told.

Saved for the backward are, per token and layer, the inputs of norms and products, queries, keys and
values, the widths of the feed-forward (Korthikanti et al., arXiv:2205.05198), and the scores where
attention is not fused. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from .constants import Constants
from .costs import Costs
from .layouts import DDP, FSDP, FULL, HSDP, NONE, ZERO1


@dataclass(frozen=True)
class Held:
    """Bytes of one device."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


@dataclass(frozen=True)
class Memory:
    """Of the training whose ``costs`` are given."""

    costs: Costs

    @property
    def _constants(self) -> Constants:
        return self.costs.constants

    def held(self) -> Held:
        """Of the device that needs most."""
        stages = self.costs.layout.pipeline
        found = [self._stage(i) for i in range(stages)]
        return max(found, key=lambda each: each.total)

    # -- what does not depend on the batch ----------------------------------------------------

    def _layers_of(self, stage: int) -> list[bool]:
        """Whether each layer of a stage has experts."""
        model = self.costs.model
        counts = self.costs.layout.stage_layers(model.layers)
        first, count = sum(counts[:stage]), counts[stage]
        return [model.is_sparse(i) for i in range(first, first + count)]

    def _elements(self, stage: int) -> tuple[float, float]:
        """Weights of a stage on one device before sharding: dense ones, and those of experts."""
        model, lay = self.costs.model, self.costs.layout
        layers = self._layers_of(stage)
        routed = 0.0
        if model.experts and lay.expert > 1:
            one = sum(p.weights for p in model.sparse if p.of > 1)
            routed = one / lay.tensor / lay.expert * sum(layers)
        everything: float = sum(model.layer_weights(s, lay.tensor, lay.expert) for s in layers)
        table = model.embedding / lay.tensor
        if stage == 0:
            everything += table + model.positions * model.hidden
        if stage == lay.pipeline - 1 and (stage or not model.tied):
            everything += table
        return everything - routed, routed

    def _kept(self, stage: int) -> tuple[float, float, float]:
        """Bytes of weights, gradients and the optimizer's state."""
        lay = self.costs.layout
        dense, routed = self._elements(stage)
        whole = dense + routed
        groups = lay.data * lay.context
        if lay.sharding in (FSDP, HSDP):  # an expert's copies are fewer, and so are its shards
            whole = dense / lay.shards + routed / max(1.0, lay.shards / lay.expert)
        if lay.precision == "fp32" or lay.precision.endswith("_amp"):
            wide, state = 4.0, 8.0  # no second copy of the weights
            gradients = 4.0 * whole
        else:
            wide, state = 2.0, 12.0
            gradients = (2.0 if lay.sharding == DDP else 4.0) * whole
        kept = state * whole
        if lay.sharding == ZERO1:
            kept = state * (dense / groups + routed * lay.expert / groups)
        return wide * whole, gradients, kept

    # -- what does ----------------------------------------------------------------------------

    def saved(self, sparse: bool, cheap: bool = True) -> float:
        """Bytes that a layer keeps of one micro-batch, with or without what is ``cheap`` to compute
        again: results of norms and activations, and scores."""
        model, lay, size = self.costs.model, self.costs.layout, self.costs.itemsize
        divided = lay.tensor if lay.sequence else 1
        h, d, t = model.hidden, model.dim, lay.tensor
        norms = (4.0 if cheap else 2.0) * h / divided  # both norms' inputs, and their results
        rows = (2 * model.heads + 2 * model.groups) * d / t  # q, k, v and the result
        if model.kv_rank:
            rows += (model.q_rank + model.kv_rank) * 2 + model.heads * 2 * model.rope_dim / t
        if sparse:
            wide = (3.0 - (not cheap)) * (model.expert_ffn * model.top_k + model.shared_ffn) / t
            wide += 2.0 * model.top_k * h / divided  # sorted tokens, and results before weighting
        else:
            wide = ((3.0 if model.gated else 2.0) - (not cheap)) * model.width / t
        scores = 0.0
        if cheap and not lay.fused:  # softmax, its dropout and a byte of mask; residuals' dropouts
            scores = 2.5 * model.heads / t * lay.seq + 2.0 * h / divided / size
        return lay.tokens * (norms + rows + wide + scores) * size

    def _activations(self, stage: int) -> float:
        model, lay = self.costs.model, self.costs.layout
        layers = self._layers_of(stage)
        inputs = lay.tokens * model.hidden * self.costs.itemsize
        inputs /= lay.tensor if lay.sequence else 1
        # what is computed again, one layer at a time, comes on top of what it is computed from
        kept = {
            sparse: inputs if lay.recompute == FULL else self.saved(sparse, lay.recompute == NONE)
            for sparse in set(layers)
        }
        total = self.in_flight(stage) * sum(kept[sparse] for sparse in layers)
        return total + max((self.saved(s) - n for s, n in kept.items()), default=0.0)

    def in_flight(self, stage: int) -> float:
        """Micro-batches whose results a stage keeps at a time."""
        lay = self.costs.layout
        p, v = lay.pipeline, lay.chunks
        if v == 1:
            return min(lay.micros, p - stage)
        ahead = (v - 1) * p + 2 * (p - 1 - stage) + 1
        return min(lay.micros, ahead / v)

    def _buffers(self, stage: int) -> float:
        """Logits and what their loss needs, gathered layers, the libraries' own memory."""
        model, lay, costs = self.costs.model, self.costs.layout, self.costs
        total = self._constants.get("workspace_bytes", costs.stack)
        if stage == lay.pipeline - 1:
            words = lay.tokens * model.vocab / lay.tensor
            total += words * self._constants.get("logit_bytes", costs.stack)
        if lay.sharding in (FSDP, HSDP) and lay.shards > 1:
            sizes = [model.layer_weights(s, lay.tensor, lay.expert) for s in costs.kinds]
            total += 2.0 * max(sizes) * costs.itemsize + max(sizes) * 4.0
        if stage == 0:
            total += lay.tokens * model.hidden * costs.itemsize
        return total

    def _stage(self, stage: int) -> Held:
        weights, gradients, optimizer = self._kept(stage)
        spare = self._constants.get("fragments", self.costs.stack)
        active = self._activations(stage) * spare
        return Held(weights, gradients, optimizer, active, self._buffers(stage))
