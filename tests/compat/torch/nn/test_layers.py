"""``torch.nn.modules`` by PyTorch's file names, and ``torch._foreach_*``."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict

import pytest

import disttrain as dt
from disttrain.compat.torch.nn import layers
from disttrain.compat.torch.top import foreach
from disttrain.errors import ShapeError

NAMES = foreach.names()


def test_files_give_layers_and_bases():
    found = layers.modules()
    conv, norm = found["torch.nn.modules.conv"], found["torch.nn.modules.batchnorm"]
    assert conv.Conv2d is dt.nn.Conv2d and issubclass(dt.nn.ConvTranspose1d, conv._ConvNd)
    assert issubclass(dt.nn.SyncBatchNorm, norm._BatchNorm)
    assert found["torch.nn.modules.pooling"].MaxPool2d is dt.nn.MaxPool2d
    assert "LSTM" in found["torch.nn.modules.rnn"].__all__
    pair, four = found["torch.nn.modules.utils"]._pair, found["torch.nn.modules.utils"]._ntuple(4)
    assert pair(3) == (3, 3) and pair((1, 2)) == (1, 2) and four(0) == (0, 0, 0, 0)


def test_files_give_what_pytorchs_files_import():
    found = layers.modules()
    for name, file in found.items():
        if name not in ("torch.nn.modules.lazy", "torch.nn.modules.utils"):
            assert (file.Module, file.Parameter) == (dt.nn.Module, dt.nn.Parameter), name
    transformer = found["torch.nn.modules.transformer"]
    assert transformer.ModuleList is dt.nn.ModuleList
    assert "ModuleList" not in transformer.__all__


def test_each_file_can_be_imported():
    program = (
        "import importlib; from disttrain.compat.torch import install; install(); "
        "from disttrain.compat.torch.nn import layers; "
        "assert all(importlib.import_module(n).__name__ == n for n in layers.modules())"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


def test_a_prefix_is_taken_off():
    consume = layers.modules()["torch.nn.modules.utils"].consume_prefix_in_state_dict_if_present
    state = OrderedDict({"module.a": 1, "b": 2, "modules": 3})
    state._metadata = OrderedDict({"": 1, "module": 2, "module.x": 3, "other": 4})
    consume(state, "module.")
    assert dict(state) == {"b": 2, "modules": 3, "a": 1}
    assert dict(state._metadata) == {"": 2, "other": 4, "x": 3}


def lists():
    return [dt.ones(2), dt.full((3,), 2.0)], [dt.full((2,), 3.0), dt.full((3,), 4.0)]


def call(name, *args, **options):
    return NAMES[f"_foreach_{name}"](*args, **options)


def test_lists_numbers_and_tensors_of_numbers():
    a, b = lists()
    assert [t[0].item() for t in call("add", a, b, alpha=2)] == [7.0, 10.0]
    assert [t[0].item() for t in call("mul", a, 3.0)] == [3.0, 6.0]
    assert [t[0].item() for t in call("div", a, [2.0, 4.0])] == [0.5, 0.5]
    assert [t[0].item() for t in call("sub", a, dt.tensor(1.0))] == [0.0, 1.0]
    assert [t[0].item() for t in call("pow", 2.0, a)] == [2.0, 4.0]
    assert [t[0].item() for t in call("addcmul", a, a, b, value=0.5)] == [2.5, 6.0]
    assert [t[0].item() for t in call("addcdiv", a, b, a, [1.0, 2.0])] == [4.0, 6.0]
    assert [t[0].item() for t in call("lerp", a, b, 0.5)] == [2.0, 3.0]
    assert [t[0].item() for t in call("maximum", a, b)] == [3.0, 4.0]
    assert [t.item() for t in call("norm", b, 1)] == [6.0, 12.0]
    assert [t.item() for t in call("max", b)] == [3.0, 4.0]


def test_in_place_forms_write_and_return_nothing():
    a, b = lists()
    assert call("add_", a, b) is None and call("addcdiv_", a, b, b, value=2) is None
    assert [t[0].item() for t in a] == [6.0, 8.0]
    call("copy_", b, a)
    call("zero_", a)
    call("minimum_", b, 7.0)
    assert [t[0].item() for t in a] == [0.0, 0.0] and [t[0].item() for t in b] == [6.0, 7.0]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_lists_of_different_lengths_are_refused(name):
    a, b = lists()
    short = name.removeprefix("_foreach_").rstrip("_")
    if short in (*foreach._UNARY, "zero", "norm", "max"):
        return
    rest = [b[:1]] * (2 if short in foreach._TERNARY else 1)
    rest += [0.5] if short == "lerp" else []
    with pytest.raises(ShapeError, match="same number of tensors"):
        NAMES[name](a, *rest)
