"""Programs as modules."""

from __future__ import annotations

import copy

import disttrain as dt
from disttrain import nn
from disttrain.export.modules import ProgramModule
from support.cases.exported import Mixed, filled, made, reread, same

ARGS = (dt.ones(2, 1, 6, 6), dt.zeros(2, 3, dtype=dt.int64))


def test_state_and_attributes():
    original = filled(Mixed()).eval()
    module = ProgramModule(reread(made("mixed")))
    assert same(module(*ARGS), original(*ARGS)) and not module.training
    own = original.state_dict()
    assert set(module.state_dict()) == set(own) - {"norm.num_batches_tracked"}
    assert dt.equal(module.conv.weight, original.conv.weight)
    assert {n for n, _ in module.named_parameters()} == {n for n, _ in original.named_parameters()}


def test_what_is_loaded_or_trained_is_what_it_computes_with():
    module = ProgramModule(reread(dt.export(nn.Linear(3, 2), (dt.ones(1, 3),), dynamic=[{0: "b"}])))
    other = nn.Linear(3, 2)
    module.load_state_dict(other.state_dict())
    assert same(module(dt.ones(4, 3)), other(dt.ones(4, 3)))
    twin = copy.deepcopy(module)
    for m in (module, other):
        optimizer = dt.optim.SGD(m.parameters(), 0.1)
        m(dt.ones(4, 3)).sum().backward()
        optimizer.step()
    assert same(module(dt.ones(4, 3)), other(dt.ones(4, 3)))
    assert not same(twin(dt.ones(4, 3)), other(dt.ones(4, 3)))
    module.weight = nn.Parameter(dt.zeros(2, 3))
    assert module(dt.ones(1, 3)).tolist()[0] == module.bias.tolist()
