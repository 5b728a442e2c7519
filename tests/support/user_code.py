"""Lines that users write, with the types that a checker must see in them: checked by mypy and
pyright (``scripts/lint``), and run, so that what they say is true."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import disttrain as dt
import disttrain.nn.functional as F  # noqa: N812
from disttrain import nn
from disttrain.distributed import DistributedDataParallel
from disttrain.distributed.fsdp import fully_shard
from disttrain.optim.lr_scheduler import CosineAnnealingLR, LambdaLR


def making() -> dt.Tensor:
    """Tensors from sizes, numbers and arrays."""
    a = dt.randn(4, 3)
    b = dt.zeros((4, 3), dtype=dt.float32, device="cpu")
    c = dt.ones([4, 3]) + dt.empty(4, 3).fill_(0)
    d = dt.tensor([[1.0, 2.0, 3.0]] * 4, requires_grad=True)
    e = dt.arange(12).reshape(4, 3).float()
    f = dt.from_numpy(np.ones((4, 3), np.float32))
    g = dt.full((4, 3), 2.5) + dt.eye(4)[:, :3] + dt.linspace(0, 1, 3)
    h = dt.randint(0, 10, (4, 3)) + dt.randint(10, (4, 3)) + dt.randperm(3)
    i = dt.zeros_like(a, dtype=dt.float64) + a.new_zeros(4, 3) + a.new_full((4, 3), 1)
    j = dt.randn(4, 3, generator=dt.Generator().manual_seed(0)) + dt.rand_like(a)
    k = dt.as_tensor([1, 2, 3]) + dt.normal(0.0, 1.0, (4, 3)) + dt.bernoulli(dt.rand(4, 3))
    total = a + b + c + d + e + f + g + h + i + j + k
    assert_type(total, dt.Tensor)
    return total


def arithmetic(x: dt.Tensor) -> None:
    """Operators with tensors, numbers and arrays on both sides."""
    y = x + 1 - 2 * x / 3 + x**2 - (2.5 - x) + 1 / (x * x + 1) + x // 2 + x % 3
    assert_type(y, dt.Tensor)
    assert_type(x @ x.T, dt.Tensor)
    assert_type(-x + abs(x) + +x, dt.Tensor)
    assert_type((x > 0) & (x < 1) | ~(x == 0) ^ (x != 1), dt.Tensor)
    assert_type(x + np.float32(2) + np.ones(3), dt.Tensor)
    assert_type(x.add(1).mul_(2).sub(x, alpha=2).clamp(min=0), dt.Tensor)
    y += 1
    y *= x
    y /= 2
    y -= x
    assert_type(y, dt.Tensor)
    assert_type(sum([x, x], start=dt.zeros(1)), dt.Tensor)
    assert_type(dt.where(x > 0, x, 0.0), dt.Tensor)
    assert_type(dt.where(x > 0), tuple[dt.Tensor, ...])
    assert_type(x.exp().log1p().sqrt().sigmoid().tanh().relu(), dt.Tensor)
    assert_type(dt.allclose(x, x), bool)
    if (x == x).all():
        print(f"{x.sum().item():.3f}", float(x.mean()), int(x.argmax()), len(x), list(x))


def reducing(x: dt.Tensor) -> None:
    """Results over some dimensions, and pairs of values and places."""
    assert_type(x.sum(), dt.Tensor)
    assert_type(x.sum(0, keepdim=True) + x.sum(dim=(0, 1)) + x.sum(axis=0), dt.Tensor)
    assert_type(x.mean(-1).std(dim=0, unbiased=False) + x.var(), dt.Tensor)
    assert_type(x.max(), dt.Tensor)
    values, indices = x.max(dim=1)
    assert_type(values, dt.Tensor)
    assert_type(x.max(dim=1).indices + indices, dt.Tensor)
    assert_type(x.topk(2).values, dt.Tensor)
    top, places = x.sort(descending=True)
    assert_type(top.gather(1, places), dt.Tensor)
    assert_type(x.argmax(dim=1) + x.argmin(1), dt.Tensor)
    assert_type(dt.max(x, x) + dt.min(x, dim=0).values, dt.Tensor)
    assert_type(x.softmax(dim=-1).cumsum(0).norm(p=2, dim=1), dt.Tensor)
    assert_type(x.nonzero(), dt.Tensor)
    assert_type(x.unique(), dt.Tensor)
    assert_type(x.any() | x.all(dim=0), dt.Tensor)


def reshaping(x: dt.Tensor) -> None:
    """Shapes, indices, joins."""
    rows, columns = x.shape
    assert_type(rows * columns, int)
    assert_type(x.shape, dt.Size)
    assert_type(x.size(), dt.Size)
    assert_type(x.size(0) + x.dim() + x.numel() + x.shape[-1] + x.ndim, int)
    assert_type(x.view(-1), dt.Tensor)
    assert_type(x.view(rows, columns).view((columns, rows)), dt.Tensor)
    assert_type(x.reshape(columns, -1).permute(1, 0).transpose(0, 1).t(), dt.Tensor)
    assert_type(x.unsqueeze(0).squeeze(0).flatten(0, 1).unflatten(0, (rows, columns)), dt.Tensor)
    assert_type(x[None].expand(2, -1, -1).repeat(1, 2, 1).contiguous(), dt.Tensor)
    assert_type(x[0] + x[..., 0, None] + x[:, 1:2][0] + x[x > 9].sum(), dt.Tensor)
    assert_type(x[dt.tensor([0, 1])], dt.Tensor)
    x = x.clone()
    x[0] = 1
    x[:, 0] = dt.zeros(rows)
    assert_type(dt.cat([x, x], dim=0).chunk(2), tuple[dt.Tensor, ...])
    assert_type(dt.stack((x, x)).split(1)[0].sum(), dt.Tensor)
    assert_type(dt.einsum("ij,kj->ik", x, x), dt.Tensor)


def converting(x: dt.Tensor) -> None:
    """Types, devices, numpy, gradients."""
    assert_type(x.dtype, dt.dtype)
    assert_type(x.device, dt.device)
    assert_type(x.to("cpu").to(dt.float64).to(x).to(dt.device("cpu"), dt.float32), dt.Tensor)
    assert_type(x.to(device="cpu", dtype=dt.bfloat16, non_blocking=True), dt.Tensor)
    assert_type(x.float().double().half().long().int().bool().type(dt.float32), dt.Tensor)
    assert_type(x.type(), str)
    assert_type(x.detach().cpu().numpy(), np.ndarray)
    leaf = dt.randn(3, requires_grad=True)
    (leaf * 2).sum().backward(retain_graph=True)
    assert leaf.grad is not None
    assert_type(leaf.grad.norm(), dt.Tensor)
    leaf.grad.zero_()
    leaf.grad = None
    assert_type(leaf.requires_grad and leaf.is_leaf, bool)
    handle = leaf.register_hook(lambda g: g * 2)
    handle.remove()
    (g,) = dt.autograd.grad(leaf.exp().sum(), leaf, create_graph=True)
    assert_type(nn.Parameter(g.detach()).requires_grad_(False).mul_(2), nn.Parameter)


def transforming(x: dt.Tensor) -> None:
    """Functions of functions, and one with a gradient of its own."""
    batched = dt.func.vmap(lambda row: row.sum())(x)
    slope = dt.func.grad(lambda v: (v**2).sum())(x)
    _, moved = dt.func.jvp(lambda v: v * 2, (x,), (x,))
    print(batched, slope, moved, Double.apply(x), dt.linalg.norm(x), dt.linalg.svd(x)[1])


class Double(dt.autograd.Function):
    """A function with a rule of its own."""

    @staticmethod
    def forward(ctx: Any, x: dt.Tensor) -> dt.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: dt.Tensor) -> dt.Tensor:
        return g * 2


class Net(nn.Module):
    """A module as everybody writes it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Dropout(0.1))
        self.norm = nn.LayerNorm(width)
        self.heads = nn.ModuleList([nn.Linear(width, 2) for _ in range(2)])
        self.scale = nn.Parameter(dt.ones(1))
        self.register_buffer("seen", dt.zeros(1))

    def forward(self, x: dt.Tensor, mask: dt.Tensor | None = None) -> dt.Tensor:
        x = self.norm(F.relu(self.body(x))) * self.scale
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        return sum((head(x) for head in self.heads), start=dt.zeros(1))


@dt.no_grad()
def accuracy(model: nn.Module, x: dt.Tensor, y: dt.Tensor) -> float:
    """A decorated function keeps its signature."""
    model.eval()
    return (model(x).argmax(dim=1) == y).float().mean().item()


def training(epochs: int = 1) -> None:
    """A loop with a loader, an optimizer, a scheduler, clipping and mixed precision."""
    dt.manual_seed(0)
    data = dt.data.TensorDataset(dt.randn(8, 3), dt.randint(0, 2, (8,)))
    loader = dt.data.DataLoader(data, batch_size=4, shuffle=True)
    model = Net().train()
    optimizer = dt.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = CosineAnnealingLR(optimizer, T_max=10)
    LambdaLR(dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lambda step: 0.9**step)
    criterion = nn.CrossEntropyLoss()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            with dt.autocast("cpu", dtype=dt.bfloat16, enabled=False):
                loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    assert_type(accuracy(model, *data.tensors), float)
    state: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    model.load_state_dict(state["model"])
    names = [name for name, p in model.named_parameters() if p.requires_grad and p.ndim > 1]
    print(names, sum(p.numel() for p in model.parameters()), scheduler.get_last_lr())
    fast = dt.compile(model)
    with dt.inference_mode():
        fast(dt.randn(2, 3))


def on_one_rank() -> float:
    """What a rank does."""
    dist = dt.distributed
    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    assert_type(rank + world, int)
    x = dt.ones(4) * rank
    dist.all_reduce(x, op=dist.ReduceOp.SUM)
    dist.broadcast(x, src=0)
    gathered = [dt.zeros(4) for _ in range(world)]
    dist.all_gather(gathered, x)
    work = dist.all_reduce(x, async_op=True)
    if work is not None:
        work.wait()
    dist.barrier()
    group = dist.new_group([0])
    dist.all_reduce(x, group=group)
    model = DistributedDataParallel(Net())
    with model.no_sync():
        model(dt.randn(2, 3)).sum().backward()
    mesh = dist.init_device_mesh("cpu", (world,))
    sharded = fully_shard(nn.Linear(4, 4), mesh=mesh)
    sharded(dt.randn(1, 4)).sum().backward()
    dist.destroy_process_group()
    return x.sum().item()


def main() -> None:
    x = dt.rand(4, 3)
    making()
    for each in (arithmetic, reducing, reshaping, converting, transforming):
        each(x)
    training()
    print(dt.launch(on_one_rank, 1))


if __name__ == "__main__":
    main()
