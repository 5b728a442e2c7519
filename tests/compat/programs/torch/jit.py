"""A model that is traced, a function that is scripted; saved, and loaded without their classes."""

import os
import tempfile

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.gate = gate
        self.linear = nn.Linear(4, 4)

    def forward(self, x, h):
        new_h = torch.tanh(self.gate(self.linear(x)) + h)
        return new_h, new_h


class Plain(nn.Module):
    def forward(self, x):
        return x


torch.manual_seed(0)
folder = tempfile.mkdtemp()
path = os.path.join(folder, "cell.pt")
x, h = torch.rand(3, 4), torch.rand(3, 4)

cell = Cell(Plain())
traced = torch.jit.trace(cell, (x, h))
out, state = traced(x, h)
print("traced", torch.equal(out, cell(x, h)[0]), isinstance(traced, nn.Module))
traced.save(path)
loaded = torch.jit.load(path)
print("loaded", torch.equal(loaded(x, h)[0], out))
print(sorted(loaded.state_dict()))
other = torch.rand(7, 4), torch.rand(7, 4)
print("other size", torch.equal(loaded(*other)[0], cell(*other)[0]))


@torch.jit.script
def scale(a, b: float):
    return a * b + 1


print(scale(torch.ones(2), 2.0).tolist())

model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
model.eval()
image = torch.rand(2, 1, 8, 8)
frozen = torch.jit.trace(model, image)
frozen.save(path)
back = torch.jit.load(path, map_location="cpu")
print("images", torch.allclose(back(image), model(image)), tuple(back(image).shape))
back(image).sum().backward()
print("gradients", all(p.grad is not None for p in back.parameters()))
