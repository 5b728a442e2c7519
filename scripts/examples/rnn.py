"""A language model whose embedding table and decoder live on another worker.

    dtrun --nproc-per-node 2 scripts/examples/rnn.py

The trainer owns the LSTM. A table of embeddings is often too large for one worker; here it is
small, and the calls are the same: the trainer sends character codes and gets vectors. That
gradients find their way back takes no line of code: distributed autograd recorded the calls.
"""

from __future__ import annotations

import argparse
import os
import sys

from example_data import characters

import disttrain as dt
from disttrain import nn
from disttrain.distributed import autograd, rpc
from disttrain.distributed.optim import DistributedOptimizer

NEEDED = 2.0  # nats a character; one that knows only how frequent each is needs about 3.1
LENGTH, BATCH, WIDTH = 32, 32, 64


class Embedding(nn.Embedding):
    """The table, as its owner has it."""

    def parameter_rrefs(self) -> list[rpc.RRef]:
        return [rpc.RRef(parameter) for parameter in self.parameters()]


class Decoder(nn.Linear):
    """From hidden states to the next character."""

    def parameter_rrefs(self) -> list[rpc.RRef]:
        return [rpc.RRef(parameter) for parameter in self.parameters()]


class Model(nn.Module):
    """Embedding and decoder on ``owner``, the LSTM here."""

    def __init__(self, owner: str, alphabet: int) -> None:
        super().__init__()
        self.embedding = rpc.remote(owner, Embedding, (alphabet, WIDTH))
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.decoder = rpc.remote(owner, Decoder, (WIDTH, alphabet))

    def forward(self, codes: dt.Tensor) -> dt.Tensor:
        """Logits [batch, length, alphabet] of the characters that follow ``codes``."""
        vectors = self.embedding.rpc_sync().forward(codes)
        states, _ = self.lstm(vectors)
        return self.decoder.rpc_sync().forward(states)

    def parameter_rrefs(self) -> list[rpc.RRef]:
        there = (self.embedding, self.decoder)
        remote = [rref for part in there for rref in part.rpc_sync().parameter_rrefs()]
        return remote + [rpc.RRef(parameter) for parameter in self.lstm.parameters()]


def loss_of(model: Model, windows: dt.Tensor) -> dt.Tensor:
    """The mean cross entropy of each window's characters after the first."""
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def train(steps: int) -> float:
    """Train on the text; the loss on its last tenth, which was not trained on."""
    codes, alphabet = characters(120_000)
    windows = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    cut = len(windows) * 9 // 10
    model = Model("owner", len(alphabet))
    optimizer = DistributedOptimizer(dt.optim.Adam, model.parameter_rrefs(), lr=5e-3)
    for step in range(steps):
        chosen = dt.randint(0, cut, (BATCH,))
        with autograd.context() as context:
            loss = loss_of(model, windows[chosen])
            autograd.backward(context, [loss])
            optimizer.step(context)
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    with dt.no_grad():
        return loss_of(model, windows[cut:]).item()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--needed", type=float, default=NEEDED)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dt.manual_seed(0)
    rpc.init_rpc("owner" if rank else "trainer", rank=rank, world_size=world_size)
    loss = train(options.steps) if rank == 0 else 0.0
    rpc.shutdown()
    if rank == 0:
        print(f"rnn: test loss {loss:.3f} (needed: {options.needed})")
    return int(loss > options.needed)


if __name__ == "__main__":
    sys.exit(main())
