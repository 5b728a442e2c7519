"""Calls that are answered together: a server that computes one batch for all of its clients.

    dtrun --nproc-per-node 4 scripts/examples/batch_rpc.py

Split learning: every client keeps its images and the first layer of the network to itself, and
sends the server what that layer says of them. With ``async_execution`` a call's handler returns a
Future, which frees its thread; the last client to arrive has the server compute a single batch,
whose gradients answer all the calls.
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

NEEDED = 0.92  # of the test images
BATCH, WIDTH = 16, 64


class Server:
    """The upper layers, and the calls that wait for the present batch to be complete."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.model = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = dt.optim.Adam(self.model.parameters(), lr=2e-3)
        self.lock = threading.Lock()
        self.parts: dict[int, tuple[dt.Tensor, dt.Tensor]] = {}
        self.answer: dt.futures.Future = dt.futures.Future()

    @staticmethod
    @rpc.functions.async_execution
    def step(
        rref: rpc.RRef, client: int, hidden: dt.Tensor, labels: dt.Tensor
    ) -> dt.futures.Future:
        """The gradient for ``hidden`` [batch, WIDTH], once all clients have sent their part."""
        self = rref.local_value()
        with self.lock:
            self.parts[client] = (hidden, labels)
            mine = self.answer.then(lambda done: done.value()[client])
            if len(self.parts) == self.clients:
                answer, self.answer = self.answer, dt.futures.Future()
                answer.set_result(self.learn())
        return mine

    def learn(self) -> dict[int, dt.Tensor]:
        """One step on everybody's part; for each client the gradient of what it sent."""
        order = sorted(self.parts)
        hidden = dt.cat([self.parts[k][0] for k in order]).requires_grad_()
        labels = dt.cat([self.parts[k][1] for k in order])
        self.parts = {}
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(hidden), labels).backward()
        self.optimizer.step()
        assert hidden.grad is not None
        return dict(zip(order, hidden.grad.chunk(len(order)), strict=True))

    def correct(self, hidden: dt.Tensor, labels: dt.Tensor) -> int:
        with dt.no_grad():
            return int((self.model(hidden).argmax(1) == labels).sum().item())


def work(server: rpc.RRef, client: int, clients: int, steps: int) -> tuple[int, int]:
    """A client: train with the server; how many of its test images are read, and of how many."""
    dt.manual_seed(client)
    images, labels, *test = (part[client::clients] for part in digits())
    first = nn.Linear(64, WIDTH)
    optimizer = dt.optim.Adam(first.parameters(), lr=2e-3)
    for _ in range(steps):
        chosen = dt.randint(0, len(labels), (BATCH,))
        hidden = first(images[chosen])
        arguments = (server, client, hidden.detach(), labels[chosen])
        gradient = rpc.rpc_sync(server.owner(), Server.step, arguments)
        optimizer.zero_grad()
        hidden.backward(gradient)
        optimizer.step()
    with dt.no_grad():
        return server.rpc_sync().correct(first(test[0]), test[1]), len(test[1])


def train(steps: int, clients: int) -> float:
    server = rpc.RRef(Server(clients))
    calls = [rpc.rpc_async(f"client{k}", work, (server, k, clients, steps)) for k in range(clients)]
    results = [call.wait() for call in calls]
    return sum(right for right, _ in results) / sum(all_ for _, all_ in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--needed", type=float, default=NEEDED)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dt.manual_seed(0)
    rpc.init_rpc(f"client{rank - 1}" if rank else "server", rank=rank, world_size=world_size)
    accuracy = train(options.steps, world_size - 1) if rank == 0 else 1.0
    rpc.shutdown()
    if rank == 0:
        print(f"batch: test accuracy {accuracy:.3f} (needed: {options.needed})")
    return int(accuracy < options.needed)


if __name__ == "__main__":
    sys.exit(main())
