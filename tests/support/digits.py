"""A small convolutional net on handwritten digits, trained once for tests of quantization."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import nn, quantize

_FILE = Path(__file__).parents[2] / "scripts" / "data" / "digits.csv"
_TRAIN = 1437


class Net(nn.Module):
    """Two convolutions, the first with normalisation, and two Linear, between stubs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantize.QuantStub(), quantize.DeQuantStub()
        self.conv1, self.bn1, self.relu1 = (
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        self.conv2, self.relu2 = nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.relu3, self.fc2 = nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = self.relu1(self.bn1(self.conv1(self.quant(x))))
        x = dt.flatten(self.pool(self.relu2(self.conv2(x))), 1)
        return self.dequant(self.fc2(self.relu3(self.fc1(x))))


FUSED = [["conv1", "bn1", "relu1"], ["conv2", "relu2"], ["fc1", "relu3"]]


@functools.cache
def data() -> tuple[dt.Tensor, dt.Tensor, dt.Tensor, dt.Tensor]:
    """Images and labels, to train on and to test with."""
    table = np.loadtxt(_FILE, delimiter=",", dtype=np.float32)
    images, labels = table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].astype(np.int64)
    parts = images[:_TRAIN], labels[:_TRAIN], images[_TRAIN:], labels[_TRAIN:]
    return tuple(map(dt.tensor, parts))


def train(net: Any, epochs: int, lr: float = 3e-3) -> None:
    """By AdamW, over shuffled batches of 64."""
    x, y, _, _ = data()
    step, rng = dt.optim.AdamW(net.parameters(), lr=lr), np.random.default_rng(0)
    net.train()
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for first in range(0, len(x), 64):
            rows = dt.tensor(order[first : first + 64])
            step.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            step.step()
    net.eval()


@functools.cache
def trained() -> Net:
    """The net after twelve epochs."""
    dt.manual_seed(0)
    net = Net()
    train(net, 12)
    return net


def accuracy(net: Any, whole: bool = False) -> float:
    """Of the test images, or of all, in percent."""
    first, labels, x, y = data()
    if whole:
        x, y = dt.cat([first, x]), dt.cat([labels, y])
    with dt.no_grad():
        return 100 * float((net(x).argmax(1) == y).float().mean())
