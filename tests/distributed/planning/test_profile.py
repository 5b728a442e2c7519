"""Profiles made on the meta device, against what the same step really keeps."""

from __future__ import annotations

import tracemalloc

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed.planning import profile_step
from disttrain.errors import ConfigError

F = nn.functional


class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.reshape(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(17, 32)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.norm, self.scores = nn.LayerNorm(32), nn.Linear(32, 17, bias=False)

    def forward(self, codes):
        x = self.tokens(codes)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


def mlp():
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 64), nn.GELU()
    )


def cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)),
    )


def loss_on(shape, device="meta", kind=dt.float32):
    def loss(model, batch):
        scores = model(dt.zeros(batch, *shape, dtype=kind, device=device))
        scores = scores.reshape(-1, scores.shape[-1])
        return F.cross_entropy(scores, dt.zeros(len(scores), dtype=dt.int64, device=device))

    return loss


CASES = {
    "gpt": (GPT, (32,), dt.int64, 8),
    "mlp": (mlp, (64,), dt.float32, 512),
    "cnn": (cnn, (1, 8, 8), dt.float32, 128),
}


def on_meta(make):
    with dt.device("meta"):
        return make()


@pytest.mark.parametrize("name", CASES)
def test_what_is_saved_is_what_a_real_forward_keeps(name):
    make, shape, kind, batch = CASES[name]
    profile = profile_step(on_meta(make), loss_on(shape, kind=kind), batch)
    model, loss_of = make(), loss_on(shape, "cpu", kind)
    loss_of(model, batch)  # what is made once is made
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        loss = loss_of(model, batch)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert loss.requires_grad
    assert sum(u.saved for u in profile.units) == pytest.approx(kept, rel=0.05)


def test_units_have_their_own_weights_and_activations():
    loss_of = loss_on((32,), kind=dt.int64)
    profile = profile_step(on_meta(GPT), loss_of, 8, lambda m: isinstance(m, Block))
    root, *blocks = profile.units
    assert [u.name for u in blocks] == ["blocks.0", "blocks.1", "blocks.2"]
    assert {w.name for w in root.weights} == {
        "tokens.weight", "norm.weight", "norm.bias", "scores.weight",
    }  # fmt: skip
    assert len({(u.nbytes, u.saved, u.inputs) for u in blocks}) == 1
    assert blocks[0].inputs == 8 * 32 * 32 * 4 and root.inputs == 0
    plain = profile_step(on_meta(GPT), loss_of, 8)
    assert sum(u.saved for u in profile.units) == plain.units[0].saved
    assert sum(w.nbytes for w in profile.weights) == plain.units[0].nbytes


def test_split_layers_divide_what_lies_between_them():
    split = {"*.qkv": "colwise", "*.out": "rowwise", "*.up": "colwise", "*.down": "rowwise"}
    is_block = lambda m: isinstance(m, Block)
    profile = profile_step(on_meta(GPT), loss_on((32,), kind=dt.int64), 8, is_block, split)
    root, block = profile.units[:2]
    tokens = 8 * 32 * 4  # bytes of one number per token
    attention = 8 * 4 * 32 * 32 * 4  # the weights of 4 heads
    assert block.split == (3 * 32 + 32 + 2 * 4 * 32) * tokens + attention
    assert block.crossings == 2 * 32 * tokens and root.split == 0
    assert {w.name.split(".", 2)[2]: w.split for w in block.weights if w.split} == {
        "qkv.weight": "colwise", "qkv.bias": "colwise", "out.weight": "rowwise",
        "up.weight": "colwise", "up.bias": "colwise", "down.weight": "rowwise",
    }  # fmt: skip


def test_optimizer_state_is_what_the_optimizer_makes():
    def ratio(make):
        return profile_step(on_meta(mlp), loss_on((64,)), 4, optimizer=make).optimizer_ratio

    assert ratio(None) == 0 and ratio(lambda p: dt.optim.SGD(p, lr=0.1)) == 0
    assert ratio(lambda p: dt.optim.SGD(p, lr=0.1, momentum=0.9)) == 1
    assert ratio(dt.optim.AdamW) == 2
    assert ratio(lambda p: dt.optim.AdamW(p, amsgrad=True)) == 3


def test_frozen_parameters_and_buffers():
    def half():
        model = cnn()
        model[0].requires_grad_(False)
        return model

    profile = profile_step(on_meta(half), loss_on((1, 8, 8)), 4)
    assert {w.name for w in profile.weights if not w.trained} == {"0.weight", "0.bias"}
    assert profile.buffers == 2 * 8 * 4 + 8


def test_a_model_with_data_is_refused():
    with pytest.raises(ConfigError, match=r"parameter 0\.weight is on cpu; build the model on the"):
        profile_step(mlp(), loss_on((64,)), 4)
    with pytest.raises(ConfigError, match="'columns' given; needed is 'colwise' or 'rowwise'"):
        profile_step(on_meta(mlp), loss_on((64,)), 4, split={"0": "columns"})
