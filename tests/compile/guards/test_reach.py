"""State that Python keeps: what a step reads is seen by every call, what it changes is changed."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import functools
import itertools
import os
import random
import sys
import time
import types

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile.guards import reach
from disttrain.nn.global_hooks import register_module_forward_hook
from support.agree import check

F = nn.functional
SPECIMENS = {}


def specimen(fn):
    """``fn()`` gives the step and a function that changes state for call i; the step gets x."""
    SPECIMENS[fn.__name__] = fn
    return fn


class Box:
    """An object of the user's."""

    scale = 1.0

    def __init__(self, **values):
        self.__dict__.update(values)

    def step(self, x):
        return x * self.value

    @property
    def doubled(self):
        return self.value * 2

    def __getitem__(self, i):
        return self.values[i]

    def __call__(self, x):
        return x + self.value


class Slotted:
    __slots__ = ("value",)


@dataclasses.dataclass
class Config:
    rate: float = 1.0
    inner: Box | None = None


@specimen
def rebound_tensor_attribute():
    box = Box(value=dt.ones(2))
    return box.step, lambda i: setattr(box, "value", dt.full((2,), float(i)))


@specimen
def rebound_buffer():
    m = nn.Module()
    m.register_buffer("b", dt.ones(2))
    m.forward = lambda x: x * m.b
    return (lambda x: m(x)), lambda i: setattr(m, "b", dt.full((2,), float(i)))


@specimen
def buffer_written_in_place():
    box = Box(value=dt.ones(2))
    return box.step, lambda i: box.value.fill_(i)


@specimen
def data_of_a_tensor_replaced():
    box = Box(value=dt.ones(2))
    return box.step, lambda i: setattr(box.value, "data", dt.full((2,), float(i)))


@specimen
def dict_contents():
    d = {"a": 1.0}
    return (lambda x: x * d["a"]), lambda i: d.update(a=float(i))


@specimen
def dict_of_tensors():
    d = {"a": dt.ones(2)}
    return (lambda x: x * d["a"]), lambda i: d.update(a=dt.full((2,), float(i)))


@specimen
def new_keys_of_a_dict():
    d = {}
    return (lambda x: x * len(d) + sum(d.values())), lambda i: d.update({i: float(i)})


@specimen
def order_of_a_dict():
    d = {"a": 2.0, "b": 3.0}

    def change(i):
        k = next(iter(d))
        d[k] = d.pop(k)

    def step(x):
        for v in d.values():
            x = x * v + 1
        return x

    return step, change


@specimen
def list_contents():
    values = [1.0, 2.0]
    return (lambda x: x * values[0] + values[1]), lambda i: values.__setitem__(i % 2, float(i))


@specimen
def list_grows():
    values = [dt.ones(2)]
    return (lambda x: sum(values, x)), lambda i: values.append(dt.full((2,), float(i)))


@specimen
def nested_containers():
    state = {"a": [{"b": (dt.ones(2), [1.0])}]}

    def change(i):
        state["a"][0]["b"][1][0] = float(i)

    return (lambda x: x * state["a"][0]["b"][1][0]), change


@specimen
def set_contents():
    s = {1, 2}
    return (lambda x: x * sum(s)), lambda i: s.add(10 + i)


@specimen
def deque_contents():
    q = collections.deque([1.0], maxlen=2)
    return (lambda x: x * q[0]), lambda i: q.append(float(i))


@specimen
def counter_contents():
    c = collections.Counter("ab")
    return (lambda x: x * c["a"]), lambda i: c.update("a")


@specimen
def namespace_contents():
    n = types.SimpleNamespace(a=1.0)
    return (lambda x: x * n.a), lambda i: setattr(n, "a", float(i))


@specimen
def dataclass_contents():
    c = Config(inner=Box(value=1.0))

    def change(i):
        c.inner.value = float(i)

    return (lambda x: x * c.rate * c.inner.value), change


@specimen
def deep_objects():
    root = box = Box()
    for _ in range(9):
        box.inner = Box()
        box = box.inner
    box.value = 1.0

    def step(x):
        b = root
        while not hasattr(b, "value"):
            b = b.inner
        return x * b.value

    return step, lambda i: setattr(box, "value", float(i))


@specimen
def closure_cells():
    value = 1.0

    def step(x):
        return x * value

    def change(i):
        nonlocal value
        value = float(i)

    return step, change


@specimen
def closure_of_a_called_function():
    value = 1.0

    def inner(x):
        return x * value

    def change(i):
        nonlocal value
        value = float(i)

    return (lambda x: inner(x)), change


@specimen
def functions_in_a_table():
    value = 1.0
    table = {"f": lambda x: x * value}

    def change(i):
        nonlocal value
        value = float(i)

    return (lambda x: table["f"](x)), change


@specimen
def replaced_function():
    box = Box(run=lambda x: x)
    return (lambda x: box.run(x)), lambda i: setattr(box, "run", lambda x: x * i)


@specimen
def partial_arguments():
    box = Box(value=1.0)
    return functools.partial(lambda b, x: x * b.value, box), lambda i: setattr(box, "value", i)


GLOBAL = 1.0
TABLE = {"k": [1.0]}


@specimen
def globals_rebound():
    return (lambda x: x * GLOBAL), lambda i: globals().__setitem__("GLOBAL", float(i))


@specimen
def globals_of_helpers():
    def change(i):
        TABLE["k"][0] = float(i)

    return (lambda x: helper(x)), change


def helper(x):
    return x * TABLE["k"][0]


@specimen
def shadowed_builtin():
    def change(i):
        globals()["abs"] = lambda x: x * i

    return (lambda x: abs(x)), change


@specimen
def default_arguments():
    box = Box()

    def step(x, cache=[1.0], *, other={"a": 1.0}):  # noqa: B006
        return x * cache[0] * other["a"]

    def change(i):
        step.__defaults__[0][0] = float(i)
        step.__kwdefaults__["other"]["a"] = i + 1.0

    del box
    return step, change


@specimen
def replaced_defaults():
    def step(x, k=1.0):
        return x * k

    return step, lambda i: setattr(step, "__defaults__", (float(i),))


@specimen
def class_attributes():
    class Local(Box):
        pass

    box = Local()
    return (lambda x: x * box.scale), lambda i: setattr(Local, "scale", float(i))


@specimen
def instance_hides_class():
    box = Box()
    return (lambda x: x * box.scale), lambda i: setattr(box, "scale", float(i))


@specimen
def methods_replaced():
    class Local(Box):
        def run(self, x):
            return x

    box = Local()
    return (lambda x: box.run(x)), lambda i: setattr(Local, "run", lambda self, x: x * i)


@specimen
def properties():
    box = Box(value=1.0)
    return (lambda x: x * box.doubled), lambda i: setattr(box, "value", float(i))


@specimen
def dunder_methods():
    box, other = Box(values=[1.0]), Box(value=1.0)

    def change(i):
        box.values[0] = float(i)
        other.value = -float(i)

    return (lambda x: other(x * box[0])), change


@specimen
def getattr_by_computed_names():
    box = Box(a1=1.0)
    return (lambda x: x * getattr(box, "a" + str(1))), lambda i: setattr(box, "a1", float(i))


@specimen
def getattr_by_name():
    box = Box(value=1.0)
    return (lambda x: x * getattr(box, "value", 3)), lambda i: setattr(box, "value", float(i))


@specimen
def vars_of_an_object():
    box = Box(value=1.0)
    return (lambda x: x * vars(box)["value"]), lambda i: setattr(box, "value", float(i))


@specimen
def slots():
    s = Slotted()
    s.value = 1.0
    return (lambda x: x * s.value), lambda i: setattr(s, "value", float(i))


@specimen
def numpy_in_place():
    a = np.ones(2, np.float32)
    return (lambda x: x * dt.from_numpy(a)), lambda i: a.fill(i)


@specimen
def numpy_scalar_read():
    a = np.ones(2, np.float32)
    return (lambda x: x * float(a[0])), lambda i: a.fill(i)


@specimen
def numpy_copied():
    a = np.ones(2, np.float32)
    return (lambda x: x * dt.tensor(a)), lambda i: a.fill(i)


@specimen
def numpy_behind_a_tensor_that_is_read():
    a = np.ones(1, np.float32)
    t = dt.from_numpy(a)
    return (lambda x: x * t.item()), lambda i: a.fill(i)


@specimen
def large_numpy():
    a = np.ones(100_000, np.float32)
    return (lambda x: x * float(a[50_000])), lambda i: a.fill(i)


@specimen
def tensor_number_read():
    t = dt.ones(1)
    return (lambda x: x * t.item()), lambda i: t.fill_(i)


@specimen
def tensor_attributes_of_the_user():
    t = dt.ones(1)
    t.tag = 1.0
    return (lambda x: x * t * t.tag), lambda i: setattr(t, "tag", float(i))


@specimen
def mask_kept_in_state():
    box = Box(mask=dt.tensor([True, False]))
    return (lambda x: x[box.mask].sum()), lambda i: box.mask.logical_not_()


@specimen
def indices_kept_in_state():
    box = Box(index=dt.tensor([0, 1]))
    return (lambda x: x[box.index]), lambda i: box.index.fill_(i % 2)


@specimen
def python_random():
    return (lambda x: x * random.random()), lambda i: random.seed(i)


@specimen
def python_random_methods():
    rng = random.Random(3)
    return (lambda x: x * rng.randint(0, 1000) + random.choice([0, 0])), lambda i: None


@specimen
def numpy_random():
    return (lambda x: x * float(np.random.rand())), lambda i: np.random.seed(i)


@specimen
def numpy_generator():
    rng = np.random.default_rng(3)
    return (lambda x: x + dt.from_numpy(rng.normal(size=2).astype(np.float32))), lambda i: None


@specimen
def fresh_generators():
    return (lambda x: x + dt.randn(2, generator=dt.Generator().manual_seed(4))), lambda i: None


@specimen
def seeding_inside():
    def step(x):
        dt.manual_seed(11)
        return x + dt.randn(2)

    return step, lambda i: None


@specimen
def generator_state_inside():
    def step(x):
        state = dt.get_rng_state()
        a = dt.randn(2)
        dt.set_rng_state(state)
        return x + a + dt.randn(2)

    return step, lambda i: None


@specimen
def forked_generator():
    def step(x):
        with dt.fork_rng():
            a = dt.randn(2)
        return x + a + dt.randn(2)

    return step, lambda i: None


@specimen
def draws():
    return (lambda x: F.dropout(x, 0.5) + dt.randn(2) + dt.rand_like(x)), lambda i: None


@specimen
def draws_of_a_generator():
    gen = dt.Generator().manual_seed(3)
    return (lambda x: x + dt.randn(2, generator=gen)), lambda i: None


@specimen
def permutations():
    return (lambda x: x[dt.randperm(2)]), lambda i: None


@specimen
def environment():
    def change(i):
        os.environ["DISTTRAIN_TEST_SCALE"] = str(i)

    change(1)
    return (lambda x: x * float(os.environ["DISTTRAIN_TEST_SCALE"])), change


@specimen
def iterators():
    it = itertools.count()
    return (lambda x: x * next(it)), lambda i: None


@specimen
def iterators_of_lists():
    box = Box(it=iter([float(i) for i in range(20)]))
    return (lambda x: x * next(box.it)), lambda i: None


@specimen
def generators():
    def numbers():
        yield from (float(i) for i in range(20))

    it = numbers()

    def step(x):
        for v in it:
            return x * v

    return step, lambda i: None


@specimen
def data_loader():
    data = [dt.full((2,), float(i)) for i in range(40)]
    it = iter(dt.data.DataLoader(data, batch_size=2))
    return (lambda x: x * next(it)), lambda i: None


@specimen
def whole_epochs():
    data = [dt.full((2,), float(i)) for i in range(4)]
    loader = dt.data.DataLoader(data, batch_size=2, shuffle=True)

    def step(x):
        for batch in loader:
            x = x * 0.5 + batch
        return x

    return step, lambda i: None


@specimen
def counters():
    box = Box(value=0)

    def step(x):
        box.value += 1
        return x * box.value

    return step, lambda i: None


@specimen
def counters_in_containers():
    counts = {"n": [0]}

    def step(x):
        counts["n"][0] += 1
        return x * counts["n"][0]

    return step, lambda i: None


@specimen
def counters_never_read_as_tensors():
    seen = []

    def step(x):
        seen.append(1)
        return x * len(seen)

    return step, lambda i: None


@specimen
def moving_average_rebound():
    box = Box(value=dt.zeros(2))

    def step(x):
        box.value = box.value * 0.5 + x
        return box.value + 0

    return step, lambda i: None


@specimen
def moving_average_in_place():
    box = Box(value=dt.zeros(2))

    def step(x):
        box.value.mul_(0.5).add_(x)
        return box.value + 0

    return step, lambda i: None


@specimen
def results_kept():
    kept = []

    def step(x):
        kept.append(x * 2)
        return sum(kept)

    return step, lambda i: None


@specimen
def lazy_cache():
    cache = {}

    def step(x):
        if "w" not in cache:
            cache["w"] = dt.full((2,), 3.0)
        return x * cache["w"]

    return step, lambda i: None


@specimen
def memoized():
    @functools.lru_cache
    def f(n):
        return dt.full((2,), float(n))

    return (lambda x: x * f(3)), lambda i: None


@specimen
def default_dtype():
    def change(i):
        dt.set_default_dtype(dt.float64 if i % 2 else dt.float32)

    return (lambda x: dt.ones(2) * 2), change


@specimen
def grad_mode():
    w = dt.ones(2, requires_grad=True)

    def change(i):
        dt.set_grad_enabled(bool(i % 2))

    return (lambda x: x * w), change


@specimen
def grad_mode_that_is_read():
    def change(i):
        dt.set_grad_enabled(bool(i % 2))

    return (lambda x: x * (2 if dt.is_grad_enabled() else 3)), change


@specimen
def freezing():
    w = dt.ones(2, requires_grad=True)

    def step(x):
        y = x * w
        return y.detach() if y.requires_grad else y * 5

    return step, lambda i: w.requires_grad_(bool(i % 2))


@specimen
def objects_that_compare_equal():
    class Same(Box):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    box = Box(inner=Same(value=1.0))
    return (lambda x: x * box.inner.value), lambda i: setattr(box, "inner", Same(value=float(i)))


@specimen
def kinds_of_numbers():
    box = Box(value=1)
    values = [True, 1.0, 1, np.float32(1), -0.0, 0.0, 0]
    return (lambda x: x.long() * box.value), lambda i: setattr(box, "value", values[i % 7])


@specimen
def enumerations_and_texts():
    box = Box(mode="a")
    return (lambda x: x * 2 if box.mode == "a" else x * 3), lambda i: setattr(
        box, "mode", "ab"[i % 2]
    )


@specimen
def module_level_state():
    module = types.ModuleType("settings")
    module.scale = 1.0
    return (lambda x: x * module.scale), lambda i: setattr(module, "scale", float(i))


@specimen
def weak_references():
    import weakref

    box = Box(value=1.0)
    ref = weakref.ref(box)
    keep = [box]
    return (lambda x: x * (ref().value + 0 * len(keep))), lambda i: setattr(box, "value", float(i))


@pytest.fixture(autouse=True)
def put_back():
    yield
    dt.set_default_dtype(dt.float32)
    dt.set_grad_enabled(True)
    globals().pop("abs", None)


@specimen
def replaced_dicts_of_objects():
    box, m = Box(value=1.0), nn.Module()
    m.scale, m.forward = 1.0, lambda x: x * m.scale

    def change(i):
        (box if i % 2 else m).__dict__ = {**(box if i % 2 else m).__dict__, "value": i, "scale": i}

    return (lambda x: m(x) + box.value), change


@specimen
def the_order_of_an_ordered_dict():
    parts = collections.OrderedDict(a=1.0, b=2.0, c=4.0)
    return (lambda x: x - next(iter(parts.values()))), lambda i: parts.move_to_end("abc"[i % 3])


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", SPECIMENS)
def test_state(name, every, monkeypatch):
    monkeypatch.setenv("DISTTRAIN_TEST_SCALE", "1")  # put back behind the specimen that changes it

    def make():
        put_nothing_back = SPECIMENS[name]
        random.seed(1)
        np.random.seed(1)
        globals().pop("abs", None)
        globals()["GLOBAL"], TABLE["k"][0] = 1.0, 1.0
        dt.set_default_dtype(dt.float32)
        dt.set_grad_enabled(True)
        step, change = put_nothing_back()

        def between(i, step):
            if i > 1 and (i - 2) % every == 0:  # (between, calls that nothing comes before)
                change(i)
            return step(dt.full((2,), i + 0.5))

        return step, between, lambda: None

    check(make, 3 * every + 3)


@pytest.mark.parametrize("read", [time.time, time.perf_counter, datetime.datetime.now, os.getpid])
def test_values_of_the_world_do_not_freeze(read):
    def plain(x):
        now = read()
        return x * (now.microsecond if hasattr(now, "microsecond") else now)

    run = dt.compile(plain)
    with pytest.warns(UserWarning, match="runs eagerly"):
        run(dt.ones(1))
    assert not run.graphs


def calls(run, values, change):
    """Results of calls between which ``change`` is done once."""
    out = []
    for i, v in enumerate(values):
        if i == 2:
            change()
        out.append(run(dt.full((2,), float(v))).tolist())
    return out


def test_a_replaced_class_is_seen():
    class One(Box):
        def run(self, x):
            return x

    class Two(Box):
        def run(self, x):
            return x * 2

    box = One()
    run = dt.compile(lambda x: box.run(x))
    assert calls(run, [1, 1, 1], lambda: setattr(box, "__class__", Two))[2] == [2.0, 2.0]


def test_a_replaced_forward_of_a_layer_is_seen(monkeypatch):
    model = nn.ReLU()
    run = dt.compile(lambda x: model(x))
    patch = lambda: monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * 3)
    assert calls(run, [1, 1, 1], patch)[2] == [3.0, 3.0]


def test_what_a_memoized_function_reads_counts():
    factor = [1.0]

    @functools.lru_cache
    def f():
        return factor[0]

    f()

    def change():
        factor[0] = 5.0
        f.cache_clear()

    assert calls(dt.compile(lambda x: x * f()), [1, 1, 1], change)[2] == [5.0, 5.0]


def test_an_argument_that_is_also_state_is_told_apart():
    box = Box(value=dt.ones(2))
    run = dt.compile(lambda x: x * 2 if x is box.value else x)
    for _ in range(2):
        assert run(dt.ones(2)).tolist() == [1.0, 1.0]
        assert run(box.value).tolist() == [2.0, 2.0]


def test_hooks_of_all_modules_are_seen():
    model = nn.Linear(2, 2)
    run = dt.compile(lambda x: model(x))
    before = run(dt.ones(2)), run(dt.ones(2))
    handle = register_module_forward_hook(lambda m, a, out: out * 0)
    try:
        assert run(dt.ones(2)).abs().sum() == 0 != before[1].abs().sum()
    finally:
        handle.remove()
    assert dt.equal(run(dt.ones(2)), before[0])


def test_equal_code_on_other_globals_is_told_apart():
    text = "def f(x):\n    return x * K\n"
    spaces = [{"K": 2.0, "__name__": "a"}, {"K": 3.0, "__name__": "b"}]
    for space in spaces:
        exec(compile(text, "<same>", "exec"), space)
    f, g = spaces[0]["f"], spaces[1]["f"]
    run = dt.compile(lambda x: f(x) + g(x))
    assert calls(run, [1, 1, 1], lambda: spaces[1].update(K=7.0)) == [[5.0] * 2] * 2 + [[9.0] * 2]


def test_modules_looked_up_by_their_names_are_compared_alone(monkeypatch):
    """``sys.modules`` is not gone through where the names that are looked up are there to read."""
    made = types.ModuleType("odd_scales")
    made.scale = 2.0
    monkeypatch.setitem(sys.modules, "odd_scales", made)
    monkeypatch.delitem(sys.modules, "odd_late_scales", raising=False)
    monkeypatch.setattr(reach, "own_modules", set)  # those of a session of tests are hundreds

    @dt.compile(fullgraph=True)
    def step(x):
        y = x * sys.modules["odd_scales"].scale
        return y * sys.modules["odd_late_scales"].scale if "odd_late_scales" in sys.modules else y

    x = dt.ones(2)
    assert step(x)[0] == 2 and step(x)[0] == 2
    made.scale = 3.0
    assert step(x)[0] == 3
    late = types.ModuleType("odd_late_scales")
    late.scale = 5.0
    sys.modules["odd_late_scales"] = late
    try:
        assert step(x)[0] == 15
        late.scale = 7.0
        assert step(x)[0] == 21
    finally:
        del sys.modules["odd_late_scales"]
    assert step(x)[0] == 3
