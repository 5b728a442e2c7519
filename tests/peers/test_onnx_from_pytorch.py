"""Models that PyTorch exports are read back and compute what they do there, in other sizes, too."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

import disttrain as dt

pytestmark = pytest.mark.peer
IMAGE = {0: "batch"}
TOKENS = {0: "batch", 1: "length"}
SERIES = dict(TOKENS)


def models():
    """Modules of PyTorch by name: how they are made, the shape of their input, what may change."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    def conv(i, o, k=3, s=1, g=1):
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o))

    class Residual(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.body = nn.Sequential(conv(i, o, 3, s), nn.ReLU(), conv(o, o))
            self.skip = conv(i, o, 1, s) if s > 1 else nn.Identity()

        def forward(self, x):
            return F.relu(self.body(x) + self.skip(x))

    class Inverted(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.a = nn.Sequential(
                conv(i, 2 * i, 1), nn.Hardswish(), conv(2 * i, 2 * i, 3, s, 2 * i)
            )
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * i, 2 * i, 1), nn.Hardsigmoid()
            )
            self.b = nn.Sequential(nn.ReLU6(), conv(2 * i, o, 1))

        def forward(self, x):
            y = self.a(x)
            return self.b(y * self.gate(y))

    def image(*layers, width):
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5))

    class Encoder(nn.Module):
        def __init__(self, **words):
            super().__init__()
            self.table = nn.Embedding(20, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **words)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x):
            return self.layers(self.table(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
            self.into, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            h = self.table(x)
            b, t, c = h.shape
            parts = [
                p.view(b, t, 2, 8).transpose(1, 2) for p in self.into(self.norm(h)).split(c, 2)
            ]
            y = F.scaled_dot_product_attention(*parts, is_causal=True)
            return (h + self.out(y.transpose(1, 2).reshape(b, t, c))) @ self.table.weight.t()

    class First(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0]

    class Shapes(nn.Module):
        def forward(self, x):
            y = F.interpolate(
                F.pad(x, (1, 2, 3, 1), mode="reflect"), scale_factor=2, mode="bilinear"
            )
            y = F.interpolate(y, size=(9, 9), mode="nearest")
            a, b = torch.cat([y, y.flip(-1)], 1).chunk(2, 1)
            y = torch.where(a > 0, a, b * 0.1)[:, :, ::2, 1:-1]
            return y.softmax(-1) + y.cumsum(1) + y.std(-1, keepdim=True) + y.topk(7, -1)[0]

    return {
        "resnet": (
            image(
                conv(3, 8, 7, 2),
                nn.ReLU(),
                nn.MaxPool2d(3, 2, 1),
                Residual(8, 8, 1),
                Residual(8, 16, 2),
                width=16,
            ),
            IMAGE,
        ),
        "mobilenet": (
            image(conv(3, 8, 3, 2), Inverted(8, 8, 1), Inverted(8, 12, 2), width=12),
            IMAGE,
        ),
        "vgg": (
            image(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), width=8),
            IMAGE,
        ),
        "norms": (
            image(
                nn.Conv2d(3, 8, 3),
                nn.GroupNorm(2, 8),
                nn.SiLU(),
                nn.ConvTranspose2d(8, 6, 2, 2),
                nn.PReLU(6),
                nn.InstanceNorm2d(6, affine=True),
                nn.GELU(),
                width=6,
            ),
            IMAGE,
        ),
        "shapes": (Shapes(), IMAGE),
        "encoder": (Encoder(activation="gelu"), TOKENS),
        "encoder, norm first": (Encoder(norm_first=True), TOKENS),
        "decoder": (Decoder(), TOKENS),
        "lstm": (First(nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)), SERIES),
        "gru": (First(nn.GRU(6, 5, 2, batch_first=True)), SERIES),
        "rnn": (First(nn.RNN(6, 5, batch_first=True, nonlinearity="relu")), SERIES),
    }


NAMES = (
    "resnet",
    "mobilenet",
    "vgg",
    "norms",
    "shapes",
    "encoder",
    "encoder, norm first",
    "decoder",
    "lstm",
    "gru",
    "rnn",
)


def given(sizes, larger):
    import torch

    torch.manual_seed(1)
    batch, length = (3, 7) if larger else (2, 5)
    if sizes is IMAGE:
        return torch.randn(batch, 3, 16, 16)
    return (
        torch.randn(batch, length, 6) if sizes is SERIES else torch.randint(0, 20, (batch, length))
    )


def exported(model, x, version, axes, fold=True):
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (x,),
            file,
            dynamo=False,
            opset_version=version,
            input_names=["x"],
            do_constant_folding=fold,
            dynamic_axes={"x": axes} if axes else None,
        )
    return file.getvalue()


@pytest.mark.parametrize("version", [14, 17, 20])
@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_pytorch_computes_the_same(name, version):
    import torch

    torch.manual_seed(0)
    model, sizes = models()[name]
    model.eval()
    changes = not name.startswith("encoder")  # PyTorch's attention writes the length into the file
    x = given(sizes, False)
    loaded = dt.onnx.load(exported(model, x, version, sizes if changes else None))
    for larger in (False, True) if changes else (False,):
        x = given(sizes, larger)
        want = model(x).detach().numpy()
        found = loaded.run({"x": x.numpy()})
        assert np.allclose(next(iter(found.values())), want, atol=1e-5), name


@pytest.mark.parametrize("name", NAMES)
def test_its_gradients_are_those_of_pytorch(name):
    import torch

    torch.manual_seed(0)
    model, sizes = models()[name]
    model.eval()
    with torch.no_grad():  # equal ones become one initializer
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    x = given(sizes, False)
    loaded = dt.onnx.load(exported(model, x, 17, None, fold=False))
    if x.dtype != torch.float32:
        return check_weights(model, loaded, x)
    x.requires_grad_()
    (model(x) ** 2).sum().backward()
    ours = dt.tensor(x.detach().numpy(), requires_grad=True)
    (loaded(ours) ** 2).sum().backward()
    assert np.allclose(ours.grad.numpy(), x.grad.numpy(), rtol=1e-3, atol=1e-4)


def check_weights(model, loaded, x):
    """Gradients of the parameters that keep their names in the file."""
    (model(x) ** 2).sum().backward()
    (loaded(dt.tensor(x.numpy())) ** 2).sum().backward()
    theirs, ours = dict(model.named_parameters()), dict(loaded.named_parameters())
    common = theirs.keys() & ours.keys()
    assert len(common) > 3, sorted(ours)
    for name in common:
        assert np.allclose(
            ours[name].grad.numpy(), theirs[name].grad.numpy(), rtol=1e-3, atol=1e-3
        ), name
