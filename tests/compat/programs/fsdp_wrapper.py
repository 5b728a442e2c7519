"""A training script with FullyShardedDataParallel, as PyTorch's tutorials write it: deferred
initialisation, a transformer policy, mixed precision, activation checkpointing, checkpoints of model
and optimizer, resume. Every rank compares itself with the plain model."""

import argparse
import functools
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1)).to(x.dtype)
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab=17, dim=16, heads=2, layers=2, length=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1), device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def seeded(seed=0):
    torch.manual_seed(seed)
    return GPT()


def loss_of(model, batch):
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.reshape(-1, 17).double(), batch[:, 1:].reshape(-1))


def shard(args, seed=0):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    precision = None
    if args.bf16:
        precision = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    model = FSDP(
        seeded(seed),
        auto_wrap_policy=policy,
        mixed_precision=precision,
        sharding_strategy=ShardingStrategy[args.strategy],
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        device_id=torch.device("cpu"),
        limit_all_gathers=True,
        sync_module_states=True,
        use_orig_params=args.orig,
    )
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(model, wrapper, lambda m: isinstance(m, Block))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def epochs(model, optimizer, loader, sampler, first, last):
    losses = []
    for epoch in range(first, last):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model, batch)
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
            losses.append(total.item() / dist.get_world_size())
    return losses


def save(model, optimizer, path):
    model_config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, model_config, optim_config):
        states = {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}
    if dist.get_rank() == 0:
        torch.save(states, path)
    dist.barrier()


def load(model, optimizer, path):
    states = torch.load(path)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(states["model"])
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, states["optim"]))
    plain = GPT()
    plain.load_state_dict(states["model"])
    return plain


def reference(data, batch_size, steps):
    """One process with the whole batch: rank after rank takes every other sample."""
    model = seeded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    losses = []
    for epoch in range(steps):
        order = []
        for rank in range(dist.get_world_size()):
            sampler = DistributedSampler(data, dist.get_world_size(), rank, shuffle=True)
            sampler.set_epoch(epoch)
            order.append(list(sampler))
        for at in range(0, len(order[0]), batch_size):
            rows = [i for mine in order for i in mine[at : at + batch_size]]
            optimizer.zero_grad()
            loss = loss_of(model, data.tensors[0][rows])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses, model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="FULL_SHARD")
    parser.add_argument("--orig", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join(tempfile.gettempdir(), f"fsdp-{os.environ['MASTER_PORT']}.pt")

    torch.manual_seed(1)
    data = TensorDataset(torch.randint(0, 17, (32, 12)))
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler)

    model, optimizer = shard(args)
    numel = sum(p.numel() for p in model.parameters())
    losses = epochs(model, optimizer, loader, sampler, 0, 2)
    save(model, optimizer, path)
    rest = epochs(model, optimizer, loader, sampler, 2, 3)

    model, optimizer = shard(args, seed=rank + 5)
    load(model, optimizer, path)
    again = epochs(model, optimizer, loader, sampler, 2, 3)
    assert again == rest, (again, rest)

    want, plain = reference(data, 4, 3)
    off = max(abs(a - b) for a, b in zip(losses + rest, want))
    assert off < (0.05 if args.bf16 else 1e-10), off
    with FSDP.summon_full_params(model):
        total = sum(p.numel() for p in model.parameters())
        for (name, p), (other, q) in zip(model.named_parameters(), plain.named_parameters()):
            assert name == other, (name, other)
            if not args.bf16:
                torch.testing.assert_close(p, q, rtol=0, atol=1e-10)
    share = "all" if numel == total else "part"
    print(f"rank {rank}: {args.strategy} ok, has {share} of the parameters", flush=True)
    dist.barrier()
    if rank == 0:
        os.remove(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
