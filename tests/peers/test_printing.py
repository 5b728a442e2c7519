"""Tensors print as PyTorch's, with every option."""

from __future__ import annotations

import pytest


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_texts_of_tensors(monkeypatch):
    import torch
    from peers.generators.printed import printed

    import disttrain as dt
    from disttrain.core.types import dtypes, layout

    monkeypatch.setattr(dtypes.dtype, "namespace", "torch")
    monkeypatch.setattr(layout.layout, "namespace", "torch")
    ours, theirs = printed(dt), printed(torch)
    assert ours.keys() == theirs.keys()
    for name, text in theirs.items():
        assert ours[name] == text, name


@pytest.mark.peer
def test_texts_of_limits():
    import torch

    import disttrain as dt

    for name in ("float16", "bfloat16", "float32", "float64"):
        assert repr(dt.finfo(getattr(dt, name))) == repr(torch.finfo(getattr(torch, name)))
    for name in ("int8", "uint8", "int64", "int32"):
        assert repr(dt.iinfo(getattr(dt, name))) == repr(torch.iinfo(getattr(torch, name)))
