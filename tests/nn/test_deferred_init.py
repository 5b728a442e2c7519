"""Every module of ours can be built without memory, and get memory and values later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import DeviceError

MODULES: dict[str, tuple] = {
    "Linear": (4, 3), "Bilinear": (2, 3, 4), "Embedding": (5, 3, 1),
    "Conv1d": (2, 3, 3), "Conv2d": (2, 3, 3), "Conv3d": (2, 3, 3), "ConvTranspose1d": (2, 3, 3),
    "ConvTranspose2d": (2, 3, 3), "ConvTranspose3d": (2, 3, 3), "BatchNorm1d": (4,),
    "BatchNorm2d": (4,), "BatchNorm3d": (4,), "SyncBatchNorm": (4,), "LayerNorm": (4,),
    "RMSNorm": (4,), "GroupNorm": (2, 4), "PReLU": (3,), "RNN": (3, 4, 2), "LSTM": (3, 4, 2),
    "GRU": (3, 4, 2), "RNNCell": (3, 4), "LSTMCell": (3, 4), "GRUCell": (3, 4),
    "MultiheadAttention": (4, 2), "TransformerEncoderLayer": (4, 2, 8),
    "TransformerDecoderLayer": (4, 2, 8), "Transformer": (4, 2, 1, 1, 8),
}  # fmt: skip


def tensors(m: nn.Module) -> list[Any]:
    return [*m.parameters(), *m.buffers()]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("way", ["device=", "with"])
def test_built_on_meta_then_given_memory_and_values(name: str, way: str) -> None:
    make, args = getattr(nn, name), MODULES[name]
    if way == "with":
        with dt.device("meta"):
            m = make(*args)
    else:
        m = make(*args, device="meta")
    assert all(t.is_meta for t in tensors(m))
    shapes = [tuple(t.shape) for t in tensors(m)]
    params = list(m.parameters())
    m.to_empty(device="cpu")
    for t in tensors(m):
        t.data.fill_(7)
    for part in m.modules():
        if list(part.parameters(recurse=False)) or list(part.buffers(recurse=False)):
            reset = getattr(part, "reset_parameters", None) or part._reset_parameters
            reset()
    assert [tuple(t.shape) for t in tensors(m)] == shapes
    assert all(a is b for a, b in zip(params, m.parameters(), strict=True))
    assert not any(t.is_meta or (t.detach().numpy() == 7).any() for t in tensors(m))
    assert sorted(m.state_dict()) == sorted(make(*args).state_dict())


def test_values_come_by_loading_too() -> None:
    with dt.device("meta"):
        m = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    theirs = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).state_dict()
    with pytest.raises(DeviceError, match="to_empty"):
        m.to("cpu")
    m.load_state_dict(theirs, assign=True)
    np.testing.assert_array_equal(m[0].weight.detach().numpy(), theirs["0.weight"].numpy())
    built = nn.utils.skip_init(nn.Linear, 3, 2)
    assert not built.weight.is_meta
