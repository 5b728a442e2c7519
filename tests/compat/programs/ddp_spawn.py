"""Data-parallel training that starts its own processes by multiprocessing.spawn."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo(rank, world_size, port):
    setup(rank, world_size, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)))
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    x, y = torch.randn(20, 10), torch.randn(20, 5)
    first = None
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    total = sum(p.sum() for p in model.parameters()).detach()
    both = [torch.zeros(()) for _ in range(world_size)]
    dist.all_gather(both, total)
    print(f"rank {rank}: falls {loss.item() < first}, equal {torch.equal(both[0], both[1])}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    mp.spawn(demo, args=(2, port), nprocs=2, join=True)
    print("SPAWN DONE")
