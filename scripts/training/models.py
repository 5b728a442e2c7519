"""The networks of ``scripts/train.py``: a perceptron, a small convolutional net, a small GPT."""

from __future__ import annotations

import math

import numpy as np

import disttrain as dt
from disttrain.errors import ConfigError

from .datasets import Task
from .settings import Model

nn = dt.nn
F = dt.nn.functional


def make_model(model: Model, task: Task, block_size: int) -> nn.Module:
    """The network that the settings name, of the size that the task needs."""
    if model.name == "gpt":
        return GPT(model, len(task.alphabet), block_size)
    if model.name == "cnn":
        return _cnn(model, task)
    height, width = task.image_size
    return nn.Sequential(nn.Flatten(), *_head(model, height * width, task.num_classes))


def _cnn(model: Model, task: Task) -> nn.Module:
    """Convolutions of 3 x 3; the image is halved after each one of a large image, else once."""
    size, layers, before = min(task.image_size), [], 1
    height, width = task.image_size
    if size < 2:
        raise ConfigError(f"model.name: cnn for images of {height} x {width}; 2 x 2 is the least")
    for number, channels in enumerate(model.channels, 1):
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
        before = channels
        if min(height, width) >= 14 or number == len(model.channels):
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    head = _head(model, before * height * width, task.num_classes)
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(model.dropout), *head)


def _head(model: Model, num_inputs: int, num_classes: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for size in model.hidden:
        layers += [nn.Linear(num_inputs, size), nn.ReLU(), nn.Dropout(model.dropout)]
        num_inputs = size
    return [*layers, nn.Linear(num_inputs, num_classes)]


class Block(nn.Module):
    """Attention to what came before, then a perceptron, each added to the stream."""

    def __init__(self, width: int, num_heads: int, dropout: float, form: str = "none") -> None:
        super().__init__()
        self.num_heads, self.form = num_heads, form  # of gelu
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        # Query, key and value of a head lie together, so a part of ``qkv`` is a part of the heads.
        heads = self.qkv(self.norm1(x)).reshape(batch, length, -1, 3 * width // self.num_heads)
        q, k, v = (part.transpose(1, 2) for part in heads.chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, -1)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), self.form)))


class GPT(nn.Module):
    """Characters [batch, length] to the scores of the next one [batch, length, vocabulary].

    The form of GPT-2 (Radford et al. 2019): layer norms in front, learned positions, and weights
    that start at a standard deviation of 0.02, less for those that add to the stream.
    """

    def __init__(self, model: Model, vocabulary: int, block_size: int) -> None:
        super().__init__()
        self.block_size = block_size
        self.tokens = nn.Embedding(vocabulary, model.width)
        self.positions = nn.Embedding(block_size, model.width)
        form = "tanh" if model.activation == "gelu_tanh" else "none"
        sizes = (model.width, model.num_heads, model.dropout, form)
        self.blocks = nn.ModuleList([Block(*sizes) for _ in range(model.num_layers)])
        self.norm = nn.LayerNorm(model.width)
        self.scores = nn.Linear(model.width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                adds = name.endswith(("out.weight", "down.weight"))
                std = 0.02 / math.sqrt(2 * model.num_layers) if adds else 0.02
                nn.init.normal_(parameter, mean=0.0, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, codes):
        x = self.tokens(codes) + self.positions(dt.arange(codes.shape[1], device=codes.device))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


def write_text(model: GPT, alphabet: str, length: int, seed: int) -> str:
    """``length`` characters that the model comes up with after a line break."""
    draw = np.random.default_rng(seed)
    codes = [max(alphabet.find("\n"), 0)]
    model.eval()
    device = next(model.parameters()).device
    with dt.no_grad():
        for _ in range(length):
            context = np.asarray([codes[-model.block_size :]], np.int64)
            scores = model(dt.from_numpy(context).to(device))[0, -1]
            chances = F.softmax(scores, dim=-1).cpu().numpy().astype(np.float64)
            codes.append(int(draw.choice(len(chances), p=chances / chances.sum())))
    return "".join(alphabet[code] for code in codes[1:])
