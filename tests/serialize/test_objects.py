"""Objects in files: what comes back, who decides which classes are used, and what never runs."""

from __future__ import annotations

import collections
import copy
import datetime
import enum
import functools
import io
import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn, optim
from disttrain.context import Rank, attach
from disttrain.errors import SerializationError
from disttrain.serialize import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    objects,
    safe_globals,
    save,
)
from disttrain.serialize.decoding import decode
from disttrain.serialize.layout import build


def saved(obj) -> io.BytesIO:
    f = io.BytesIO()
    save(obj, f)
    f.seek(0)
    return f


def again(obj, **options):
    return load(saved(obj), **{"weights_only": False, **options})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", dt.tensor(2.0), persistent=False)
        self.act, self.note = dt.relu, {"made": (1, 2)}

    def forward(self, x):
        return self.head(self.act(self.norm(self.embed(x)))) * self.scale


class Slots:
    __slots__ = ("a", "b")


class Colour(enum.Enum):
    RED = 1


class Numbered(enum.IntEnum):
    ONE = 1


Point = collections.namedtuple("Point", "x y")


@dataclass
class Config:
    lr: float = 0.1
    sizes: list = field(default_factory=list)


class Counted:
    made = 0

    def __init__(self):
        type(self).made += 1
        self.x = 1

    def __getstate__(self):
        return {"half": self.x / 2}

    def __setstate__(self, state):
        self.x = state["half"] * 2

    def twice(self):
        return 2 * self.x


class Named(dict):
    pass


class Row(list):
    pass


class Chain:
    def __init__(self, next=None):
        self.next = next


def double(x):
    return 2 * x


# --- what comes back -----------------------------------------------------------------------------


def test_a_whole_module_comes_back(tmp_path):
    net, x = Net(), dt.tensor([[0, 1], [2, 3]]).reshape(-1)
    net(x).sum().backward()
    path = tmp_path / "net.pt"
    save(net, path)
    other = load(path, weights_only=False)
    assert type(other) is Net and str(other) == str(net)
    assert other.head.weight is other.embed.weight and other.training
    assert type(other.head.weight) is nn.Parameter and other.head.weight.requires_grad
    assert other.note == {"made": (1, 2)} and "scale" not in other.state_dict()
    for m in (net, other):
        m.eval()
    assert dt.equal(net(x), other(x)) and other.head.weight.grad is None
    optim.SGD(other.parameters(), 0.1).zero_grad()
    assert not dt.equal(net.train()(x), dt.zeros(4, 5))


def test_the_tensors_of_a_module_can_be_read_by_other_tools(tmp_path):
    path = tmp_path / "net.pt"
    save(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), path)
    names = set(dt.serialize.inspect(path).entries)
    assert {"_modules.0._parameters.weight", "_modules.0._parameters.bias"} <= names


def test_an_optimizer_goes_on_where_it_was():
    def step(net, optimizer):
        optimizer.zero_grad()
        net(dt.ones(2, 3)).sum().backward()
        optimizer.step()

    net = nn.Linear(3, 2)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    step(net, optimizer)
    other, second = again((net, optimizer))
    assert second.param_groups[0]["params"][0] is other.weight
    for pair in ((net, optimizer), (other, second)):
        step(*pair)
    assert dt.equal(net.weight, other.weight)


VALUES = [
    Colour.RED, Numbered.ONE, Point(1, dt.float32), Config(0.5, [1]), Named(a=1, b=[2]),
    Row([1, 2]), range(3, 9, 2), slice(1, None), ..., collections.Counter("abca"),
    collections.deque([1, 2], 3), datetime.timedelta(2), double, nn.Linear, len, functools.reduce,
    {Colour.RED: 1, Point(1, 2): 2}, frozenset({1, (2, "a")}), np.dtype("int16"), 3 + 4j,
    dt.Size([2, 3]), dt.bfloat16, dt.device("cpu"), b"ab", np.float16(1.5), np.int64(3), [None],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(value):
    got = again([value])[0]
    assert type(got) is type(value) and got == value


def test_more_values():
    counts = collections.defaultdict(list, a=[1])
    got = again(counts, weights_only=True)
    assert got == counts and got.default_factory is list
    assert again(collections.defaultdict(None, a=1)).default_factory is None
    assert again(collections.defaultdict(double, a=1)).default_factory is double
    assert again(functools.partial(double, 4))() == 8
    slots = Slots()
    slots.a = [1]
    got = again(slots)
    assert got.a == [1] and not hasattr(got, "b")


def test_init_does_not_run_and_state_methods_do():
    thing = Counted()
    thing.x = 6
    before = Counted.made
    got = again({"thing": thing, "method": thing.twice})
    assert (got["thing"].x, got["method"](), Counted.made) == (6, 12, before)
    assert got["method"].__self__ is got["thing"]


def test_what_is_one_stays_one():
    shared, thing = [1], Config()
    a, b, c, d = again([shared, shared, thing, thing])
    assert a is b and c is d
    a.append(2)
    assert b == [1, 2] and again([[], []])[0] == []
    mapping = {"x": dt.ones(2)}
    left, right = again([mapping, {"inner": mapping}], weights_only=True)
    assert left is right["inner"]


def test_attributes_of_tensors_come_back():
    t, p = dt.zeros(2), nn.Parameter(dt.ones(2))
    t.note, p.note = "mine", [1, t]
    got = again([t, p, t], weights_only=True)
    assert got[0] is got[2] is got[1].note[1] and got[0].note == "mine"
    assert type(got[0]) is dt.Tensor and type(got[1]) is nn.Parameter and got[1].note[0] == 1


class Wrapped(dt.Tensor):
    __slots__ = ("elem", "other")

    @staticmethod
    def __new__(cls, elem):
        out = dt.Tensor._make_subclass(cls, elem.to("meta"), elem.requires_grad)
        out.elem = elem
        return out


def test_tensors_of_a_class_of_their_own():
    wrapped = Wrapped(dt.arange(3.0))
    wrapped.note = "mine"
    copies = [copy.deepcopy(wrapped), copy.copy(wrapped), pickle.loads(pickle.dumps(wrapped)),
              again(wrapped, weights_only=True, classes=[Wrapped])]  # fmt: skip
    for got in copies:
        assert type(got) is Wrapped and got.note == "mine" and not hasattr(got, "other")
        assert got.elem.tolist() == [0.0, 1.0, 2.0] and got.shape == (3,) and got.is_meta
    with pytest.raises(SerializationError, match=r"of [^,]*Wrapped\. If"):
        again(wrapped, weights_only=True)


def test_an_open_file_is_complete_under_its_name(tmp_path):
    with open(tmp_path / "x", "wb") as f:
        save({"a": dt.ones(2)}, f)
        assert load(tmp_path / "x")["a"].tolist() == [1.0, 1.0]


def test_circles_come_back():
    loop: list = []
    loop.append({"self": loop})
    got = again(loop, weights_only=True)
    assert got[0]["self"] is got
    first = Chain()
    first.next = Chain(first)
    got = again(first)
    assert got.next.next is got and got is not got.next
    numbers = collections.OrderedDict(a=1)
    numbers["self"] = numbers
    got = again(numbers, weights_only=True)
    assert got["self"] is got and got["a"] == 1


def test_deep_modules():
    net = nn.Linear(1, 1)
    for _ in range(25):
        net = nn.Sequential(net)
    assert str(again(net)) == str(net)
    with pytest.raises(SerializationError, match="more than 100 containers"):
        save(functools.reduce(lambda inner, _: [inner], range(200), []), io.BytesIO())


def test_generators_go_on():
    g = dt.Generator().manual_seed(4)
    g.get_state()
    dt.rand(3, generator=g)
    state = load(saved({"g": g.get_state()}))["g"]
    whole, twin = again(g), copy.deepcopy(g)
    want = dt.rand(3, generator=g).tolist()
    assert dt.rand(3, generator=whole).tolist() == dt.rand(3, generator=twin).tolist() == want
    assert dt.rand(3, generator=dt.Generator().set_state(state)).tolist() == want


# --- who decides ---------------------------------------------------------------------------------


def test_nothing_is_allowed_by_itself():
    f = saved({"net": Net(), "colour": Colour.RED})
    with pytest.raises(SerializationError, match=r"(?s)Weights only load failed") as told:
        load(f)
    for name in ("test_objects.Net", "test_objects.Colour", "disttrain.nn.", "Embedding"):
        assert name in str(told.value)
    assert isinstance(told.value, pickle.UnpicklingError)


def needed() -> list[Any]:
    return [Net, nn.Embedding, nn.BatchNorm1d, nn.Linear, dt.relu]


def test_classes_are_allowed_one_by_one():
    f = saved(Net())
    assert type(load(f, classes=needed())) is Net
    f.seek(0)
    with pytest.raises(SerializationError, match=r"holds objects, of [^,]*Net\. If"):
        load(f, classes=needed()[1:])
    f.seek(0)
    alias = (Net, f"{__name__}.Net")
    assert type(load(f, classes=[alias, *needed()[1:]])) is Net
    with pytest.raises(TypeError, match="'text' allowed; a class or function"):
        load(f, classes=["text"])


def test_the_list_belongs_to_the_rank():
    f = saved(Config())
    with attach(Rank()):
        add_safe_globals([Config])
        assert get_safe_globals() == [Config] and load(f) == Config()
        clear_safe_globals()
        assert get_safe_globals() == []
    with safe_globals([Config]):
        f.seek(0)
        assert load(f) == Config()
    assert get_safe_globals() == []


def test_unsafe_names_can_be_listed(tmp_path):
    path = tmp_path / "x"
    save({"c": Config(), "w": dt.ones(1)}, path)
    assert get_unsafe_globals_in_checkpoint(path) == [f"{__name__}.Config"]
    with safe_globals([Config]):
        assert get_unsafe_globals_in_checkpoint(path) == []
    save(nn.Linear(1, 1).weight, path)
    assert get_unsafe_globals_in_checkpoint(path) == []  # a Parameter is a tensor
    assert type(load(path)) is nn.Parameter


def test_a_class_that_is_gone_is_named():
    about = json.dumps({"version": 1, "tree": ["global", f"{__name__}:Konfig"], "views": {}})
    f = io.BytesIO(build([], {"disttrain": about}, []))
    with pytest.raises(SerializationError, match=r"test_objects\.Konfig, which cannot be imported"):
        load(f, weights_only=False)


def test_a_local_class_cannot_be_saved():
    class Local:
        pass

    with pytest.raises(SerializationError, match=r"<locals>\.Local, which cannot be found again"):
        save(Local(), io.BytesIO())


# --- what never runs -----------------------------------------------------------------------------


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def test_calls_of_functions_are_not_saved():
    with pytest.raises(SerializationError, match="Attack; it cannot be taken apart into data"):
        save(Attack(), io.BytesIO())


@pytest.mark.parametrize("how", ["new", "make"])
def test_functions_are_not_called_even_with_trust(tmp_path, monkeypatch, how):
    """A file that says that os.system makes an object."""
    monkeypatch.chdir(tmp_path)
    call = ["object", 0, how, ["global", "os:system"], ["list", "touch attacked"], {}, 0, 0, 0]
    about = json.dumps({"version": 1, "tree": call, "views": {}})
    data = build([], {"disttrain": about}, [])
    with pytest.raises(SerializationError, match="a class is needed"):
        load(io.BytesIO(data), weights_only=False)
    with pytest.raises(SerializationError, match=r"of os\.system"):
        load(io.BytesIO(data))
    assert os.listdir() == []


def test_refused_names_are_not_imported(tmp_path):
    (tmp_path / "evil.py").write_text("open('attacked', 'w')\nclass C: pass\n")
    program = (
        "import sys, io, disttrain as dt, evil\nf = io.BytesIO()\ndt.save(evil.C(), f)\n"
        "open('file', 'wb').write(f.getvalue())"
    )
    reader = (
        "import sys, disttrain as dt\ntry: dt.load('file')\nexcept ValueError as e: print(e)\n"
        "print('evil' in sys.modules)\ndt.load('file', weights_only=False)\n"
        "print('evil' in sys.modules)"
    )
    root = os.path.dirname(os.path.dirname(dt.__file__))
    env = {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}"}
    for text in (program, reader):
        done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, check=True,
                              capture_output=True, text=True)  # fmt: skip
    assert done.stdout.splitlines()[1:] == ["False", "True"] and "evil.C" in done.stdout


def test_a_sparse_tensor_of_a_file_that_has_it_as_dense_is_read():
    """As it was saved before sparse tensors had a description of their own."""
    dense = dt.tensor([[0.0, 2.0], [3.0, 0.0]])
    kind = ["global", "disttrain.ops.functions.sparse:SparseTensor"]
    known = objects.Known([], trust=True)
    found = decode(["subclass", kind, ["tensor", "x"], {}], lambda *_: dense, "here", known)
    assert found.is_sparse and found.to_dense().tolist() == dense.tolist()
