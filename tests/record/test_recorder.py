"""What a recorder says of modules, parameters, random states and settings."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.record import rows
from support.recordings import Net, only, train

pytestmark = pytest.mark.simulated


def names(found, kind):
    return [(r.module, r.name) for r in found if r.kind == kind]


def test_modules_with_their_gradients(tmp_path):
    train(tmp_path, "modules", steps=1)
    found = only(tmp_path)
    inside = [("Net.first", "Linear"), ("Net.norm", "BatchNorm1d"), ("Net.drop", "Dropout"),
              ("Net.second", "Linear")]  # fmt: skip
    assert names(found, rows.MODULE) == [*inside, ("Net", "Net")]
    back = names(found, rows.GRADIENT)
    assert back[0] == ("Net.second", "Linear")  # the network's own is the same
    assert back[-1] == ("Net.first", "Linear")
    assert all(r.phase == rows.BACKWARD for r in found if r.kind == rows.GRADIENT)


def test_parameters_settings_and_state(tmp_path):
    train(tmp_path, "ops", steps=2)
    found = only(tmp_path)
    assert ("", "Net.first.weight") in names(found, rows.PARAMETER)
    assert ("", "Net.first.weight exp_avg") in names(found, rows.STATE)
    assert ("", "Net.norm.running_mean") in names(found, rows.STATE)
    [first, second] = [r for r in found if r.kind == rows.SETTINGS]
    assert "lr=0.01" in first.about
    assert (first.step, second.step) == (0, 1)


def test_a_module_that_raises_is_left(tmp_path):
    net = Net()
    with dt.record(tmp_path, "modules"):
        with pytest.raises(dt.errors.ShapeError):
            net(dt.ones(5, 7))
        net(dt.ones(5, 6))
    assert names(only(tmp_path), rows.MODULE)[-1] == ("Net", "Net")


def test_the_random_state_tells_seeds_apart(tmp_path):
    for k in (1, 2):
        dt.manual_seed(k)
        with dt.record(tmp_path / str(k)):
            dt.rand(2)
    a, b = (only(tmp_path / str(k))[0] for k in (1, 2))
    assert a.kind == b.kind == rows.RANDOM
    assert a.hash != b.hash
    assert (a.about, b.about) == ("seed 1", "seed 2")
