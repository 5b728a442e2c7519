"""A user's training loop with ``device="cuda"``, on the strict device double: the numbers of the
CPU's run, and a step that copies nothing between host and device and waits for nothing."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import amp, nn


class Block(nn.Module):
    """A transformer's block: attention and a small network, each with a norm before it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        heads = [
            y.reshape(b, t, self.heads, d // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).chunk(3, -1)
        ]
        seen = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A small language model."""

    def __init__(self, words=17, width=16, length=8):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        y = self.words(x) + self.places(dt.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y))


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


MODELS = {"mlp": mlp, "cnn": cnn, "gpt": GPT}
OPTIMIZERS = {
    "AdamW": lambda params: dt.optim.AdamW(params, lr=1e-2, eps=1e-2),
    "SGD": lambda params: dt.optim.SGD(params, lr=1e-1, momentum=0.9, weight_decay=1e-2),
}


def batch(name):
    rng = np.random.default_rng(0)
    if name == "gpt":
        return rng.integers(0, 17, (2, 8)), rng.integers(0, 17, (2, 8))
    shape = (6, 8) if name == "mlp" else (3, 1, 8, 8)
    return rng.normal(size=shape).astype("f4"), rng.integers(0, 4, shape[0])


def train(name, optimizer, device, check, kind=None, model=None):
    """Losses and parameters after three steps, with autocast to ``kind``; ``check`` looks at each
    step's counts."""
    dt.manual_seed(0)
    model = (MODELS[name]() if model is None else model()).to(device)
    update = OPTIMIZERS[optimizer](model.parameters())
    scaler = amp.GradScaler(device, enabled=kind is dt.float16)
    x, y = (dt.tensor(a).to(device) for a in batch(name))
    losses = []
    for _ in range(3):
        with check():
            update.zero_grad()
            with amp.autocast(device, dtype=kind, enabled=kind is not None):
                out = model(x)
                loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
            scaler.scale(loss).backward()
            scaler.unscale_(update)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(update)
            scaler.update()
            losses.append(loss.detach())
    return [v.item() for v in losses], [p.detach().cpu().numpy() for p in model.parameters()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_the_cpus_and_never_waits(double, name, optimizer):
    want = train(name, optimizer, "cpu", double.quiet)
    got = train(name, optimizer, "cuda", double.quiet)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    for g, w in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_mixed_precision(double, name, kind):
    """Near the run in full precision. A step waits for nothing; a scaler looks at one flag."""
    kind = getattr(dt, kind)
    full, seen = train(name, "AdamW", "cuda", double.quiet), []

    @contextlib.contextmanager
    def counted():
        double.counts.clear()
        yield
        seen.append((double.counts.uploads, double.counts.downloads, [*double.counts.waits]))

    mixed = train(name, "AdamW", "cuda", counted, kind)
    looks = (0, 1, ["download"]) if kind is dt.float16 else (0, 0, [])
    assert seen == [looks] * 3
    np.testing.assert_allclose(mixed[0], full[0], rtol=2e-2)
    assert mixed[0] != full[0] and all(p.dtype == np.float32 for p in mixed[1])


def test_dropout_draws_the_same_numbers_from_the_same_seed_without_a_wait(double):
    def model():
        return nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 4))

    runs = [train("mlp", "SGD", "cuda", double.quiet, model=model)[0] for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != train("mlp", "SGD", "cuda", double.quiet, dt.bfloat16, model)[0]


STEPPED = sorted(
    n for n, c in vars(dt.optim).items()
    if isinstance(c, type) and issubclass(c, dt.optim.Optimizer)
    and n not in ("Optimizer", "LBFGS", "SparseAdam")  # looks at the loss; wants sparse gradients
)  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_every_optimizer_has_the_cpus_bits(double, name):
    def run(device):
        dt.manual_seed(0)
        model = nn.Linear(4, 3, bias=name != "Muon").to(device)
        update = getattr(dt.optim, name)(model.parameters(), lr=0.1)
        x = dt.tensor(np.random.default_rng(0).normal(size=(5, 4)).astype("f4")).to(device)
        for i in range(3):
            update.zero_grad()
            (model(x) ** 2).mean().backward()
            with double.quiet() if i else contextlib.nullcontext():  # the first makes the states
                update.step()
        return [p.detach().cpu().numpy() for p in model.parameters()]

    sums = name in ("Adafactor", "Muon")  # of rows and columns, in another order there
    for here, there in zip(run("cpu"), run("cuda"), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-6 if sums else 0)
