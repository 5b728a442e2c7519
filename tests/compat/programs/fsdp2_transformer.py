"""In the style of public tutorials: a transformer under fully_shard, built on the meta device, mixed
precision, prefetching, checkpoints of the model and the optimizer, started by torchrun."""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal=True)
        return self.wo(out.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(dim), Attention(dim, heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.ffn(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, vocab=32, dim=32, heads=4, layers=3, length=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(length, dim)
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok(tokens) + self.pos(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()

    def reset_parameters(self):
        for m in self.modules():
            if m is not self and hasattr(m, "reset_parameters"):
                m.reset_parameters()


def shard(model, args):
    kwargs = {}
    if args.mixed_precision:
        kwargs["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for layer in model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)
    assert isinstance(model, Transformer) and isinstance(model, FSDPModule)
    for param in model.parameters():
        assert isinstance(param, DTensor) and param.placements == (Shard(0),)
    if args.explicit_prefetching:
        for a, b in zip(model.layers, model.layers[1:]):
            a.set_modules_to_forward_prefetch([b])
            b.set_modules_to_backward_prefetch([a])
    return model


def batch(step, rank):
    gen = torch.Generator().manual_seed(1000 * step + rank)
    start = torch.randint(0, 32, (8, 1), generator=gen)
    x = (start + torch.arange(17)) % 32  # counting upwards is easily learned
    return x[:, :-1], x[:, 1:]


def train(model, optim, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        x, y = batch(step, dist.get_rank())
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        assert norm.item() > 0
        optim.step()
        optim.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        losses.append(total.item() / dist.get_world_size())
    return losses


def main(args):
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Transformer()
    shard(model, args)
    model.to_empty(device="cpu")
    model.reset_parameters()
    optim = torch.optim.AdamW(model.parameters(), lr=1e-2)
    started = time.monotonic()
    losses = train(model, optim, 30)
    assert losses[-1] < 0.5 * losses[0], losses

    state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optim)}
    dcp.save(state, checkpoint_id=args.folder)
    ahead = train(model, optim, 3, first=30)

    torch.manual_seed(1)
    again = shard(Transformer(), args)
    optim = torch.optim.AdamW(again.parameters(), lr=1e-2)
    state = {"model": get_model_state_dict(again), "optim": get_optimizer_state_dict(again, optim)}
    dcp.load(state, checkpoint_id=args.folder)
    set_model_state_dict(again, state["model"])
    set_optimizer_state_dict(again, optim, state["optim"])
    assert train(again, optim, 3, first=30) == ahead

    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = get_model_state_dict(again, options=full)
    if rank == 0:
        plain = Transformer()
        plain.load_state_dict(whole)
        x, y = batch(99, 0)
        loss = F.cross_entropy(plain(x).flatten(0, 1), y.flatten())
        assert loss.item() < 0.5 * losses[0]
    else:
        assert whole == {}
    print(f"rank {rank} done in {time.monotonic() - started:.1f}s, resumed alike", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PyTorch FSDP2 example")
    parser.add_argument("--explicit-prefetching", action="store_true", default=False)
    parser.add_argument("--mixed-precision", action="store_true", default=False)
    parser.add_argument("--folder", default="checkpoint")
    main(parser.parse_args())
