"""Programs written once for ``torch.export`` and for PyTorch's own: the same inputs, state, ranges
and numbers; and scripts that are saved and loaded by both."""

from __future__ import annotations

import io

import numpy as np
import pytest


def nets(nn, F, T):  # noqa: N803
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3)))

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 5, bias=False)
            self.register_buffer("k", T.ones(5))

        def forward(self, x, y=None, *, scale=1.0):
            out = self.a(x) * scale + self.k
            return {"sum": out + y, "parts": (out[:, :2], out.sum(-1))}

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(7, 4), nn.LayerNorm(4)

        def forward(self, i):
            x = self.table(i)
            return (self.last(x) @ x.transpose(1, 2)).softmax(-1)

    return {
        "layers": (Layers, lambda n, t: (draw((n, 1, 6, 6)),), {}, ({0: "b"},)),
        "two": (Two, lambda n, t: (draw((n, 4)),), lambda n: {"y": draw((n, 5))}, None),
        "rows": (Rows, lambda n, t: (np.arange(n * t).reshape(n, t) % 7,), {}, ({0: "b", 1: "t"},)),
    }


def draw(shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def filled(net, T):  # noqa: N803
    for p in net.parameters():
        p.data.copy_(T.tensor(draw(tuple(p.shape))))
    return net.eval()


def tensors(T, args):  # noqa: N803
    return tuple(T.tensor(a) for a in args)


@pytest.mark.peer
@pytest.mark.parametrize("name", ["layers", "two", "rows"])
def test_exported_alike(name):
    import torch

    import disttrain as dt
    from disttrain.export import exported

    told = {}
    for T, te in ((torch, torch.export), (dt, exported)):
        make, args, kwargs, dynamic = nets(T.nn, T.nn.functional, T)[name]
        net = filled(make(), T)

        def named(n, T=T, kwargs=kwargs):
            made = kwargs(n) if callable(kwargs) else kwargs
            return {k: T.tensor(v) for k, v in made.items()}

        if dynamic is not None:
            dims = {"b": te.Dim("b", min=1, max=64), "t": te.Dim("t", min=1, max=64)}
            dynamic = tuple({d: dims[n] for d, n in part.items()} for part in dynamic)
        ep = te.export(net, tensors(T, args(3, 4)), named(3), dynamic_shapes=dynamic)
        sign, module = ep.graph_signature, ep.module()
        leaves = []
        for n, t in ((3, 4), (2, 5), (7, 3)) if dynamic is not None else ((3, 4),):
            found = module(*tensors(T, args(n, t)), **named(n))
            whole = found if isinstance(found, dict) else {"out": found}
            for key, part in whole.items():
                parts = part if isinstance(part, tuple) else (part,)
                leaves += [(key, p.detach().numpy()) for p in parts]
        told[te] = (
            list(sign.user_inputs), set(sign.parameters),
            {b for b in sign.buffers if "num_batches" not in b},
            sum(s.kind.name == "USER_INPUT" for s in sign.input_specs), leaves,
        )  # fmt: skip
    (*want, their), (*got, own) = told.values()
    assert want == got and [k for k, _ in their] == [k for k, _ in own]
    for (_, a), (_, b) in zip(their, own, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # (PyTorch's own)
def test_scripts_alike():
    import torch

    import disttrain as dt
    from disttrain.compat.torch import scripted

    for T, jit in ((torch, torch.jit), (dt, scripted.jit())):
        make, args, _, _ = nets(T.nn, T.nn.functional, T)["layers"]
        net = filled(make(), T)
        given = tensors(T, args(3, 4))
        trace = jit.trace(net, given)
        assert isinstance(trace, jit.ScriptModule) and trace.fc.weight.shape == (3, 4)
        file = io.BytesIO()
        jit.save(trace, file, _extra_files={"a": "b"})
        file.seek(0)
        texts = {"a": ""}
        again = jit.load(file, map_location="cpu", _extra_files=texts)
        assert texts["a"] in ("b", b"b") and isinstance(again, jit.ScriptModule)
        assert {n for n, _ in again.named_parameters()} == {n for n, _ in net.named_parameters()}
        for n in (1, 5):
            one = tensors(T, args(n, 4))
            assert T.allclose(again(*one), net(*one), atol=1e-6)
        with pytest.raises(Exception, match=r".*"):
            again(T.ones(2, 3))
        double = jit.trace(lambda x: x + x, T.ones(2))
        assert isinstance(double, jit.ScriptFunction) and double(T.ones(3)).sum() == 6


@pytest.mark.peer
def test_what_both_refuse():
    import torch

    import disttrain as dt
    from disttrain.export import exported

    for T, te in ((torch, torch.export), (dt, exported)):

        class Fixes(T.nn.Module):
            def forward(self, x):
                return x.view(3, -1) if x.shape[0] == 3 else x

        class Reads(T.nn.Module):
            def forward(self, x):
                return x * 2 if x.sum().item() > 0 else x

        with pytest.raises(Exception, match="b"):
            te.export(Fixes(), (T.ones(3, 4),), dynamic_shapes=({0: te.Dim("b")},))
        with pytest.raises(Exception, match=r".*"):
            te.export(Reads(), (T.ones(3),))
        with pytest.raises(ValueError, match="Expected `mod`"):
            te.export(lambda x: x, (T.ones(3),))
        with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
            te.export(T.nn.Linear(1, 1), (T.ones(1, 1),))(T.ones(1, 1))
