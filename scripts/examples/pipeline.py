"""A model split over workers: micro-batches flow through stages that live on other workers.

    dtrun --nproc-per-node 3 scripts/examples/pipeline.py

Worker 0 owns no weights. It cuts each batch into micro-batches and calls the stages: the result of
the first stage stays where it is and goes straight to the second one (an RRef names it).
Distributed autograd finds its way back, and DistributedOptimizer steps on every worker.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

from example_data import digits

import disttrain as dt
from disttrain import nn
from disttrain.distributed import autograd, rpc
from disttrain.distributed.optim import DistributedOptimizer

NEEDED = 0.93  # of the test images
BATCH, MICRO_BATCH = 96, 32


class Stage(nn.Module):
    """A part of the network. Its input is an RRef, on whichever worker it lies."""

    def __init__(self, index: int, stages: int) -> None:
        super().__init__()
        dt.manual_seed(index)
        layers: list[nn.Module] = []
        if index == 0:
            layers += [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()]
            layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 64)]
        else:
            layers += [nn.ReLU(), nn.Linear(64, 10 if index == stages - 1 else 64)]
        self.layers = nn.Sequential(*layers)
        self.lock = threading.Lock()  # micro-batches arrive on several threads

    def forward(self, x: rpc.RRef) -> dt.Tensor:
        value = x.to_here()
        with self.lock:
            return self.layers(value)

    def parameter_rrefs(self) -> list[rpc.RRef]:
        return [rpc.RRef(parameter) for parameter in self.parameters()]


class Pipeline:
    """The stages, each on a worker of its own."""

    def __init__(self, stages: int) -> None:
        self.stages = [rpc.remote(f"stage{k}", Stage, (k, stages)) for k in range(stages)]

    def __call__(self, batch: dt.Tensor) -> dt.Tensor:
        """Logits of a batch. All micro-batches are under way at once."""
        *inner, last = self.stages
        results = []
        for micro_batch in batch.split(MICRO_BATCH):
            value = rpc.RRef(micro_batch)
            for stage in inner:
                value = stage.remote().forward(value)
            results.append(last.rpc_async().forward(value))
        return dt.cat([result.wait() for result in results])

    def parameter_rrefs(self) -> list[rpc.RRef]:
        return [rref for stage in self.stages for rref in stage.rpc_sync().parameter_rrefs()]


def train(epochs: int, stages: int) -> float:
    """Train the pipeline; what part of the test images it reads correctly."""
    images, labels, test_images, test_labels = digits()
    pipeline = Pipeline(stages)
    optimizer = DistributedOptimizer(dt.optim.Adam, pipeline.parameter_rrefs(), lr=3e-3)
    for epoch in range(epochs):
        for chosen in dt.randperm(len(labels)).split(BATCH):
            with autograd.context() as context:
                loss = nn.functional.cross_entropy(pipeline(images[chosen]), labels[chosen])
                autograd.backward(context, [loss])
                optimizer.step(context)
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
    with dt.no_grad():
        return (pipeline(test_images).argmax(1) == test_labels).float().mean().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--needed", type=float, default=NEEDED)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dt.manual_seed(0)
    rpc.init_rpc(f"stage{rank - 1}" if rank else "driver", rank=rank, world_size=world_size)
    accuracy = train(options.epochs, world_size - 1) if rank == 0 else 1.0
    rpc.shutdown()
    if rank == 0:
        print(f"pipeline: test accuracy {accuracy:.3f} (needed: {options.needed})")
    return int(accuracy < options.needed)


if __name__ == "__main__":
    sys.exit(main())
