"""In the style of public tutorials: an MLP by tensor parallelism, the same by sequence parallelism,
and both dimensions of a mesh with FSDP. Each is compared with the plain model."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.head_dim = dim // heads
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wq, self.wk, self.wv = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.wo = nn.Linear(dim, dim, bias=False)
        self.feed_forward = FeedForward(dim, 4 * dim)

    def attention(self, x):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, self.head_dim).transpose(1, 2)
                   for w in (self.wq, self.wk, self.wv))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).contiguous().view(b, s, -1))

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self, vocab=32, dim=16, heads=4, depth=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def whole(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def toy(mesh, sequence):
    torch.manual_seed(0)
    plain = ToyModel()
    torch.manual_seed(0)
    model = parallelize_module(ToyModel(), mesh, {
        "in_proj": ColwiseParallel(input_layouts=Shard(0)) if sequence else ColwiseParallel(),
        "out_proj": RowwiseParallel(output_layouts=Shard(0)) if sequence else RowwiseParallel(),
    })
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
    other = torch.optim.AdamW(plain.parameters(), lr=0.25)
    rank, size = mesh.get_rank(), mesh.size()
    for step in range(10):
        torch.manual_seed(step + rank if sequence else step)
        inp = torch.rand(20, 10)
        model(inp).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        parts = []
        for r in range(size if sequence else 1):
            torch.manual_seed(step + r)
            parts.append(torch.rand(20, 10))
        plain(torch.cat(parts)).sum().backward()
        other.step()
        other.zero_grad()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(whole(p).detach(), q.detach(), rtol=1e-3, atol=1e-3)
    print(f"toy {'sequence' if sequence else 'tensor'} parallel ok", flush=True)


def llama(mesh):
    tp, dp = mesh["tp"], mesh["dp"]
    torch.manual_seed(0)
    plain, model = Llama(), Llama()
    model.load_state_dict(plain.state_dict())
    model = parallelize_module(model, tp, {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1),
                                  use_local_output=False),
    })
    for block in model.layers:
        parallelize_module(block, tp, {
            "attention_norm": SequenceParallel(),
            "wq": ColwiseParallel(), "wk": ColwiseParallel(), "wv": ColwiseParallel(),
            "wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),),
                                               desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        })
        fully_shard(block, mesh=dp)
    fully_shard(model, mesh=dp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    other = torch.optim.AdamW(plain.parameters(), lr=3e-3)
    at, replicas = dp.get_local_rank(), dp.size()
    for step in range(5):
        torch.manual_seed(step)
        tokens, target = torch.randint(32, (4, 8)), torch.randint(32, (4, 8))
        mine = slice(at * 4 // replicas, (at + 1) * 4 // replicas)
        with loss_parallel():
            logits = model(tokens[mine])
            loss = F.cross_entropy(logits.flatten(0, 1), target[mine].flatten(0, 1))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected = F.cross_entropy(plain(tokens).flatten(0, 1), target.flatten(0, 1))
        expected.backward()
        other.step()
        other.zero_grad()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(whole(p).detach(), q.detach(), rtol=1e-2, atol=1e-3)
    print("llama 2-d ok", flush=True)


if __name__ == "__main__":
    world = int(os.environ["WORLD_SIZE"])
    flat = init_device_mesh("cpu", (world,))
    toy(flat, False)
    toy(flat, True)
    dp = 2 if world % 2 == 0 else 1
    llama(init_device_mesh("cpu", (dp, world // dp), mesh_dim_names=("dp", "tp")))
    dist.destroy_process_group()
