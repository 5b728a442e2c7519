"""How the ranks work together: what the settings call a strategy, as a wrapped model.

``none``  one process                     ``ddp``   every rank has everything
``zero``  DDP, optimizer state divided    ``fsdp``  weights, gradients and state divided
``hsdp``  FSDP within groups, which are replicas of each other
``2d``    layers divided within groups (tensor parallel), FSDP between them
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import fsdp, invariant
from disttrain.distributed.fsdp.activation import apply_activation_checkpointing
from disttrain.distributed.tensor import parallel as tensor_parallel
from disttrain.errors import ConfigError

from .models import Block
from .optimizing import make_optimizer, optimizer_of
from .settings import Optim, Parallel

STYLES = {"colwise": tensor_parallel.ColwiseParallel, "rowwise": tensor_parallel.RowwiseParallel}
# The layers of a block that tensor parallelism divides.
SPLIT = {"qkv": "colwise", "out": "rowwise", "up": "colwise", "down": "rowwise"}
SHARDED = ("fsdp", "hsdp", "2d")


@dataclass
class Wrapped:
    """A model as a strategy has it. ``net`` is called; ``model`` has the parameters.

    ``data_rank`` of ``data_size``: which samples are this rank's. ``shards``: the virtual shards
    of a run that is the same on any number of ranks, else None.
    """

    net: Any
    model: Any
    data_rank: int = 0
    data_size: int = 1
    shards: invariant.VirtualShards | None = None

    def backward(self, loss: Any, samples: int, mean: float | None) -> None:
        """Backward of the mean loss of this rank's ``samples``, so that gradients become the mean
        over those of all ranks. ``mean``: how many a rank has on average; None where all have
        equally many."""
        if mean is None:
            loss.backward()
        elif isinstance(self.net, dist.DistributedDataParallel):
            with self.net.weight(samples):
                loss.backward()
        else:  # what averages over ranks with equal weights
            (loss * (samples / mean)).backward()

    def clip(self, max_norm: float) -> None:
        """Clip the norm of all gradients together."""
        if self.shards is not None:
            invariant.clip_grad_norm_(self.model.parameters(), max_norm)
        else:
            dt.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)


def wrap(parallel: Parallel, model: Any, device: str = "cpu") -> Wrapped:
    """``model``, which lies on a device of that kind, under the strategy of the settings; every
    rank calls it."""
    if parallel.recompute:
        apply_activation_checkpointing(model, check_fn=_is_block)
    if parallel.strategy == "none":
        return Wrapped(model, model)
    rank, size = dist.get_rank(), dist.get_world_size()
    if parallel.strategy in SHARDED:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.data, 0)
        return _sharded(parallel, model, size, device)
    net = dist.DistributedDataParallel(
        model,
        bucket_cap_mb=parallel.bucket_mb,
        deterministic=_mode(parallel),
        virtual_shards=parallel.virtual_shards,
    )
    return Wrapped(net, model, rank, size, net.shards if _mode(parallel) else None)


def make_rank_optimizer(parallel: Parallel, optim: Optim, parameters: Iterable[Any]) -> Any:
    """The optimizer of this rank."""
    if parallel.strategy != "zero":
        return make_optimizer(optim, parameters)
    kind, settings = optimizer_of(optim)
    return dist.optim.ZeroRedundancyOptimizer(parameters, kind, **settings)


def _mode(parallel: Parallel) -> str | None:
    return None if parallel.deterministic == "none" else parallel.deterministic


def _is_block(module: Any) -> bool:
    return isinstance(module, Block)


def _sharded(parallel: Parallel, model: Any, size: int, device: str) -> Wrapped:
    """FSDP on the mesh that the strategy means, a unit for each block."""
    inner = {"fsdp": 1, "hsdp": parallel.replicas, "2d": parallel.tensor}[parallel.strategy]
    if size % inner:
        name = "replicas" if parallel.strategy == "hsdp" else "tensor"
        raise ConfigError(
            f"parallel.{name}: {inner} given for {size} ranks; a divisor of {size} is needed"
        )
    if parallel.strategy == "fsdp":
        mesh = dist.init_device_mesh(device, (size,))
    elif parallel.strategy == "hsdp":
        mesh = dist.init_device_mesh(device, (inner, size // inner))
    else:
        whole = dist.init_device_mesh(device, (size // inner, inner), mesh_dim_names=("data", "tp"))
        _divide_layers(model, whole["tp"], parallel)
        mesh = whole["data"]
    narrow = parallel.precision == "bf16"
    types = {"param_dtype": dt.bfloat16, "reduce_dtype": dt.float32} if narrow else {}
    for module in [m for m in model.modules() if _is_block(m)]:
        fsdp.fully_shard(module, mesh=mesh, mp_policy=fsdp.MixedPrecisionPolicy(**types))
    net = fsdp.fully_shard(
        model,
        mesh=mesh,
        mp_policy=fsdp.MixedPrecisionPolicy(output_dtype=dt.float32, **types),
        deterministic=_mode(parallel),
        virtual_shards=parallel.virtual_shards,
    )
    shards = net.shards if _mode(parallel) else None
    if parallel.strategy == "2d":
        return Wrapped(net, model, mesh.get_local_rank(), mesh.size(), shards)
    return Wrapped(net, model, dist.get_rank(), size, shards)


def _divide_layers(model: Any, mesh: Any, parallel: Parallel) -> None:
    """Tensor parallelism of every block of a GPT."""
    blocks = [m for m in model.modules() if _is_block(m)]
    for block in blocks:
        if block.num_heads % mesh.size():
            raise ConfigError(
                f"parallel.tensor: {mesh.size()} given for {block.num_heads} heads; a divisor of "
                "model.num_heads is needed"
            )
        plan = {name: STYLES[how]() for name, how in SPLIT.items()}
        tensor_parallel.parallelize_module(
            block, mesh, plan, deterministic=_mode(parallel), virtual_shards=parallel.virtual_shards
        )
    if not blocks:
        raise ConfigError("parallel.strategy: 2d divides the blocks of a gpt; model.name has none")
