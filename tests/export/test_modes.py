"""Both modes of a module in one file."""

from __future__ import annotations

import io

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compat.torch import scripted
from disttrain.errors import CaptureError, SerializationError
from disttrain.export import modes
from disttrain.export.files import load_program

jit = scripted.jit()


def net() -> nn.Module:
    dt.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 1)
    )


def again(script: object) -> nn.Module:
    file = io.BytesIO()
    jit.save(script, file)
    file.seek(0)
    return jit.load(file)


def run(module: nn.Module, x: dt.Tensor) -> list:
    dt.manual_seed(3)
    return module(x).tolist()


@pytest.mark.parametrize("start", [True, False])
def test_a_loaded_script_computes_in_the_mode_that_it_is_in(start) -> None:
    model, x = net().train(start), dt.randn(8, 2)
    script = jit.script(model)
    script(x)
    loaded = again(script)
    assert loaded.training is start
    assert loaded.state_dict().keys() == model.state_dict().keys()
    rows = [(m, dt.optim.SGD(m.parameters(), 0.1)) for m in (model, loaded)]
    for mode in (True, False, True, True, False):
        for module, optimizer in rows:
            module.train(mode)
            dt.manual_seed(3)
            optimizer.zero_grad()
            module(x).sum().backward()
            optimizer.step()
        assert run(loaded, x) == run(model, x), mode
    for name, tensor in model.state_dict().items():
        assert loaded.state_dict()[name].tolist() == tensor.tolist(), name
    twice = again(loaded)  # of what was loaded
    for mode in (True, False):
        assert run(twice.train(mode), x) == run(model.train(mode), x)
    twice.load_state_dict({n: t * 0 for n, t in model.state_dict().items()})
    assert run(twice.train(), x) == run(twice.eval(), x) == [[0.0]] * 8


def test_a_module_that_computes_alike_has_one_program() -> None:
    found = modes.programs(nn.Linear(2, 3), (dt.ones(1, 2),), {})
    file = io.BytesIO()
    modes.save(found, True, file)
    file.seek(0)
    loaded, mode = modes.load(file)
    assert mode is True and loaded[True] is loaded[False]


def test_a_file_of_one_mode_says_so() -> None:
    class Refuses(nn.Module):
        def forward(self, x):
            return x * 2 if self.training else x.numpy()

    script = jit.script(Refuses())
    script(dt.ones(2))
    loaded = again(script)
    assert loaded.training and loaded(dt.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(CaptureError, match=r"computes in training alone.*\.train\(False\)"):
        loaded.eval()(dt.ones(2))
    file = io.BytesIO()
    loaded.save(file)
    file.seek(0)
    assert load_program(file)(dt.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("text", ["[", "{}", "[1, 2]", '["{}", {}]', '["[]", {"a": ["F32"]}]'])
def test_damaged_texts(tmp_path, text) -> None:
    program = modes.programs(nn.Dropout(0.5), (dt.ones(2),), {})[True]
    program.metadata.update(training="True", other_mode=text)
    program.save(tmp_path / "m.pt")
    with pytest.raises(SerializationError, match="of the other mode"):
        modes.load(tmp_path / "m.pt")


def test_a_loaded_script_in_another_one(tmp_path) -> None:
    """Exports set ``training`` for a while."""
    inner = again(called(jit.script(nn.Dropout(0.5))))
    whole = jit.script(nn.Sequential(inner, nn.Linear(3, 3)).eval())
    loaded = again(called(whole))
    assert inner.training is False
    x = dt.ones(3)
    assert loaded(x).tolist() == whole(x).tolist()
    assert run(loaded.train(), x) == run(whole.train(), x)


def called(script: nn.Module) -> nn.Module:
    script(dt.ones(3))
    return script
