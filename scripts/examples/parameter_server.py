"""A parameter server: one worker keeps the weights, the others compute gradients.

    dtrun --nproc-per-node 3 scripts/examples/parameter_server.py --mode sync
    dtrun --nproc-per-node 3 scripts/examples/parameter_server.py --mode async

``sync``: the server asks all trainers for the gradient of their next batch, takes the mean and
makes one step. ``async``: every trainer sends its gradient when it is ready and gets the newest
weights back; nobody waits for the others, and a gradient may be that of slightly older weights.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

from example_data import digits

import disttrain as dt
from disttrain import nn
from disttrain.distributed import rpc

NEEDED = 0.93  # of the test images
BATCH = 32


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Server:
    """The weights and their optimizer. Trainers reach it through an RRef."""

    def __init__(self) -> None:
        self.model = make_model()
        self.optimizer = dt.optim.Adam(self.model.parameters(), lr=3e-3)
        self.lock = threading.Lock()  # calls of several trainers run at once

    def weights(self) -> dict[str, dt.Tensor]:
        with self.lock:
            return {name: value.clone() for name, value in self.model.state_dict().items()}

    def update(self, gradients: list[dt.Tensor]) -> dict[str, dt.Tensor]:
        """One step with these gradients; the weights after it."""
        with self.lock:
            for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            self.optimizer.step()
        return self.weights()

    def accuracy(self) -> float:
        _, _, images, labels = digits()
        with dt.no_grad():
            return (self.model(images).argmax(1) == labels).float().mean().item()


class Trainer:
    """One trainer's part of the data, in an order of its own."""

    def __init__(self, index: int, trainers: int) -> None:
        images, labels, _, _ = digits()
        self.images, self.labels = images[index::trainers], labels[index::trainers]
        self.model = make_model()
        self.random = dt.Generator().manual_seed(index)

    def gradients(self, weights: dict[str, dt.Tensor]) -> list[dt.Tensor]:
        """Those of the loss on a batch, under these weights."""
        self.model.load_state_dict(weights)
        chosen = dt.randint(0, len(self.labels), (BATCH,), generator=self.random)
        self.model.zero_grad()
        nn.functional.cross_entropy(self.model(self.images[chosen]), self.labels[chosen]).backward()
        return [parameter.grad for parameter in self.model.parameters()]

    def run(self, server: rpc.RRef, steps: int) -> None:
        """Compute and send, ``steps`` times, without a look at the other trainers."""
        weights = server.rpc_sync().weights()
        for _ in range(steps):
            weights = server.rpc_sync().update(self.gradients(weights))


def train(mode: str, steps: int, trainers: int) -> float:
    """What the server does: put a Trainer on every other worker, and have them work."""
    server = Server()
    others = [rpc.remote(f"trainer{k}", Trainer, (k, trainers)) for k in range(trainers)]
    if mode == "async":
        here = rpc.RRef(server)
        for work in [other.rpc_async().run(here, steps) for other in others]:
            work.wait()
        return server.accuracy()
    for _ in range(steps):
        weights = server.weights()
        answers = [other.rpc_async().gradients(weights) for other in others]
        each = zip(*(answer.wait() for answer in answers), strict=True)
        server.update([dt.stack(gradients).mean(0) for gradients in each])
    return server.accuracy()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--steps", type=int, default=300, help="of every trainer")
    parser.add_argument("--needed", type=float, default=NEEDED)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dt.manual_seed(0)
    rpc.init_rpc(f"trainer{rank - 1}" if rank else "server", rank=rank, world_size=world_size)
    accuracy = train(options.mode, options.steps, world_size - 1) if rank == 0 else 1.0
    rpc.shutdown()
    if rank == 0:
        print(f"{options.mode}: test accuracy {accuracy:.3f} (needed: {options.needed})")
    return int(accuracy < options.needed)


if __name__ == "__main__":
    sys.exit(main())
