"""Hogwild training: several processes train one model in shared memory, without any lock."""

import argparse

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, kernel_size=3)
        self.fc1 = nn.Linear(8 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv(x), 2))
        x = F.relu(self.fc1(x.view(-1, 72)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits(num, seed):
    """Noisy copies of ten pictures."""
    pictures = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)) > 0.5
    g = torch.Generator().manual_seed(seed)
    target = torch.randint(10, (num,), generator=g)
    return pictures.float()[target] + 0.5 * torch.randn(num, 1, 8, 8, generator=g), target


def train(rank, args, model, steps):
    torch.manual_seed(args.seed + rank)
    data, target = digits(512, args.seed + rank)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data, target), batch_size=32, shuffle=True
    )
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
    model.train()
    for epoch in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            steps[rank] += 1


def test(model):
    model.eval()
    data, target = digits(500, 99)
    with torch.no_grad():
        output = model(data)
    loss = F.nll_loss(output, target).item()
    correct = output.argmax(dim=1).eq(target).sum().item()
    return loss, correct / len(target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="spawn")
    parser.add_argument("--num-processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model, steps = Net(), torch.zeros(args.num_processes, dtype=torch.int64)
    first_loss, first = test(model)
    if args.method == "mp.spawn":  # shares what it is given
        mp.spawn(train, args=(args, model, steps), nprocs=args.num_processes)
    else:
        context = mp.get_context(args.method)
        model.share_memory()
        steps.share_memory_()
        processes = []
        for rank in range(args.num_processes):
            p = context.Process(target=train, args=(rank, args, model, steps))
            p.start()
            processes.append(p)
        for p in processes:
            p.join()
            assert p.exitcode == 0
    last_loss, last = test(model)
    print(f"steps {steps.tolist()} accuracy {first:.2f} -> {last:.2f} loss {first_loss:.2f} -> {last_loss:.2f}")
