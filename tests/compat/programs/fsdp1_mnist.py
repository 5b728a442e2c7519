"""In the style of public tutorials: a small network under FullyShardedDataParallel with an automatic
wrapping policy, a distributed sampler, a schedule, and a full state dict saved by rank 0."""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributed.fsdp import FullStateDictConfig, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch, CPUOffload
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup():
    dist.init_process_group("gloo")


def cleanup():
    dist.destroy_process_group()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.1)
        self.fc1 = nn.Linear(256, 64)
        self.fc2 = nn.Linear(64, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(torch.flatten(x, 1))
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def pictures(n, seed):
    """Bright quarters of 12 x 12 pictures; the class says which one."""
    gen = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 12, 12, generator=gen)
    y = torch.randint(0, 4, (n,), generator=gen)
    for i in range(n):
        r, c = divmod(int(y[i]), 2)
        x[i, 0, 6 * r : 6 * r + 6, 6 * c : 6 * c + 6] += 0.5
    return TensorDataset(x, y)


def train(args, model, rank, world_size, train_loader, optimizer, epoch, sampler=None):
    model.train()
    ddp_loss = torch.zeros(2).to(rank)
    if sampler:
        sampler.set_epoch(epoch)
    for data, target in train_loader:
        data, target = data.to(rank), target.to(rank)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target, reduction="sum")
        loss.backward()
        model.clip_grad_norm_(100.0)
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == "cpu" or dist.get_rank() == 0:
        print(f"Train Epoch: {epoch} \tLoss: {ddp_loss[0] / ddp_loss[1]:.6f}")


def test(model, rank, world_size, test_loader):
    model.eval()
    ddp_loss = torch.zeros(3).to(rank)
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(rank), target.to(rank)
            output = model(data)
            ddp_loss[0] += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            ddp_loss[1] += pred.eq(target.view_as(pred)).sum().item()
            ddp_loss[2] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    accuracy = 100.0 * ddp_loss[1] / ddp_loss[2]
    if dist.get_rank() == 0:
        print(f"Test set: Accuracy: {int(ddp_loss[1])}/{int(ddp_loss[2])} ({accuracy:.2f}%)")
    return accuracy


def fsdp_main(args):
    setup()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(args.seed)
    dataset1, dataset2 = pictures(256, 1), pictures(64, 2)
    sampler1 = DistributedSampler(dataset1, rank=rank, num_replicas=world_size, shuffle=True)
    sampler2 = DistributedSampler(dataset2, rank=rank, num_replicas=world_size)
    train_loader = DataLoader(dataset1, batch_size=args.batch_size, sampler=sampler1)
    test_loader = DataLoader(dataset2, batch_size=args.batch_size, sampler=sampler2)

    my_auto_wrap_policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
    model = FSDP(
        Net().to(device),
        auto_wrap_policy=my_auto_wrap_policy,
        sharding_strategy=ShardingStrategy[args.strategy],
        mixed_precision=MixedPrecision(param_dtype=torch.float32),
        cpu_offload=CPUOffload(offload_params=args.offload),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        limit_all_gathers=True,
    )
    units = sum(isinstance(m, FSDP) for m in model.modules())
    assert units == 3, model  # conv2, fc1 and what is left
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, world_size, train_loader, optimizer, epoch, sampler=sampler1)
        accuracy = test(model, device, world_size, test_loader)
        scheduler.step()

    with FSDP.summon_full_params(model):
        sizes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert sizes["fc1.weight"] == (64, 256), sizes
    dist.barrier()
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        states = model.state_dict()
    optim_state = FSDP.optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save(states, "mnist_cnn.pt")
        plain = Net()
        plain.load_state_dict(torch.load("mnist_cnn.pt", weights_only=True))
        plain.eval()
        x, y = dataset2.tensors
        with torch.no_grad():
            right = (plain(x).argmax(1) == y).float().mean().item()
        assert abs(100 * right - accuracy) < 1e-3, (right, accuracy)
        assert optim_state["state"], optim_state
        print(f"{args.strategy} saved and loaded alike", flush=True)
    cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PyTorch FSDP example")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strategy", default="FULL_SHARD")
    parser.add_argument("--offload", action="store_true")
    fsdp_main(parser.parse_args())
