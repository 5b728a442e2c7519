"""Containers of modules and parameters."""

from collections import OrderedDict

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.errors import DimError, ModuleNameError


def tensor(*values):
    return core.wrap(np.array(values, np.float32))


class Add(nn.Module):
    def __init__(self, n=1.0):
        super().__init__()
        self.n = n

    def forward(self, x):
        return x + self.n

    def extra_repr(self):
        return f"{self.n}"


def test_sequential_runs_slices_and_edits():
    net = nn.Sequential(Add(1), Add(2), Add(3))
    assert net(tensor(0.0)).tolist() == [6.0]
    assert len(net) == 3 and net[-1].n == 3
    assert [m.n for m in net[1:]] == [2, 3] and isinstance(net[1:], nn.Sequential)
    net[0] = Add(10)
    net.append(Add(4)).insert(0, Add(-1)).extend([Add(5)])
    assert [m.n for m in net] == [-1, 10, 2, 3, 4, 5]
    assert list(net._modules) == ["0", "1", "2", "3", "4", "5"]
    del net[0]
    assert net.pop(0).n == 10
    del net[2:]
    assert [m.n for m in net] == [2, 3] and list(net._modules) == ["0", "1"]
    assert [m.n for m in net + nn.Sequential(Add(7))] == [2, 3, 7]
    with pytest.raises(DimError, match="out of range"):
        net[5]
    with pytest.raises(IndexError):
        net[-3]
    with pytest.raises(TypeError):
        net.append("no module")
    with pytest.raises(TypeError):
        net.insert(0, 3)


def test_sequential_with_names():
    net = nn.Sequential(OrderedDict([("one", Add(1)), ("two", Add(2))]))
    assert net.two.n == 2 and list(net[:1]._modules) == ["one"]
    assert repr(net) == "Sequential(\n  (one): Add(1)\n  (two): Add(2)\n)"


def test_module_list():
    items = nn.ModuleList([Add(1), Add(1)])
    items += [Add(2)]
    assert len(items) == 3 and [m.n for m in items[:2]] == [1, 1]
    assert [m.n for m in items + [Add(9)]] == [1, 1, 2, 9]
    assert repr(items) == "ModuleList(\n  (0-1): 2 x Add(1)\n  (2): Add(2)\n)"
    assert repr(nn.ModuleList()) == "ModuleList()"
    with pytest.raises(NotImplementedError):
        items(1)
    with pytest.raises(TypeError, match="iterable"):
        items.extend(3)


def test_module_dict():
    d = nn.ModuleDict({"a": Add(1)})
    d["b"] = Add(2)
    d.update([("c", Add(3))])
    assert list(d) == ["a", "b", "c"] and "b" in d and len(d) == 3
    assert d.pop("a").n == 1 and [m.n for m in d.values()] == [2, 3]
    assert [k for k, _ in d.items()] == ["b", "c"] == list(d.keys())
    del d["b"]
    with pytest.raises(KeyError, match="it has c"):
        d["b"]
    with pytest.raises(ModuleNameError):
        d["x.y"] = Add(1)
    d.clear()
    assert len(d) == 0


def test_parameter_list():
    ps = nn.ParameterList([tensor(1.0), nn.Parameter(tensor(2.0, 3.0))])
    ps.append(tensor(4.0))
    ps += [tensor(5.0)]
    assert len(ps) == 4 and all(isinstance(p, nn.Parameter) for p in ps)
    assert [n for n, _ in ps.named_parameters()] == ["0", "1", "2", "3"]
    ps[0] = tensor(9.0)
    assert ps[0].tolist() == [9.0] and len(ps[1:3]) == 2
    assert "(0): Parameter containing: [" in repr(ps)
    with pytest.raises(IndexError):
        ps[4]


def test_parameter_dict():
    pd = nn.ParameterDict({"a": tensor(1.0)})
    pd["b"] = nn.Parameter(tensor(2.0))
    pd["note"] = "kept as it is"
    assert [n for n, _ in pd.named_parameters()] == ["a", "b"]
    assert "b" in pd and pd.get("zz", 3) == 3 and list(pd.keys()) == ["a", "b", "note"]
    assert pd.pop("a").tolist() == [1.0] and len(pd) == 2
    del pd["b"]
    assert list(pd.parameters()) == [] and pd.values() == ["kept as it is"]
    with pytest.raises(KeyError):
        pd["a"]
