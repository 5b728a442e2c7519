"""Random changes of everything that a program can change between two calls: each is noticed."""

from __future__ import annotations

import collections
import gc
import random
import types
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.backends.llvm import pointers
from disttrain.backends.llvm.native import Unavailable
from disttrain.compile.guards import record
from disttrain.compile.guards.holders import Guard, Holder
from disttrain.compile.guards.record import Record, take_attributes, take_holders

SCALE = 1.0  # a global that the program reads
MOVED = {}


class Slots:
    __slots__ = ("value",)


class Plain:
    """An object of the program's, with a value of its class, too."""

    value = 0.5


def shifted(x, by=0.0, *, times=1.0):
    return (x + by) * times


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.0)
        self.free = nn.Parameter(dt.ones(3))
        self.register_buffer("offset", dt.zeros(3))
        self.rate, self.names = 1.0, ["a", "b"]

    def forward(self, x):
        x = self.drop(self.norm(self.layers(x))) * self.free + self.offset
        return x * self.rate if "a" in self.names else x


class World:
    """A program, with changes of its state: the methods that begin with ``c_``."""

    def __init__(self, seed):
        dt.manual_seed(seed)
        self.random = random.Random(seed)
        self.net, self.plain, self.slots = Net().eval(), Plain(), Slots()
        self.slots.value = 0.0
        self.table, self.default = {"k": 1.0}, collections.defaultdict(float, z=1.0)
        self.ordered = collections.OrderedDict(a=1.0, b=2.0, c=3.0)
        self.items, self.queue = [1.0, 2.0], collections.deque([1.0, 2.0, 3.0])
        self.chosen, self.array = {"x"}, np.ones(3, np.float32)
        self.tensor, self.shift = dt.ones(3), types.FunctionType(
            shifted.__code__, globals(), "shift", (0.0,)
        )  # fmt: skip
        self.shift.__kwdefaults__ = {"times": 1.0}
        self.run = self._program()

    def _program(self):
        net, plain, slots, table, default = (
            self.net, self.plain, self.slots, self.table, self.default,
        )  # fmt: skip
        ordered, items, queue, chosen = self.ordered, self.items, self.queue, self.chosen
        array, shift, inside = self.array, self.shift, 1.0
        world = self

        def run(x):
            y = net(x) * SCALE + plain.value + slots.value + table["k"] + default["z"] + inside
            y = y * next(iter(ordered.values())) + items[0] + queue[0] + len(items) + len(table)
            y = shift(y) + (1.0 if "x" in chosen else 2.0) + float(array.sum())
            return y + world.tensor + (1.0 if "new" in ordered else 0.0)

        def set_inside(value):
            nonlocal inside
            inside = value

        self.set_inside = set_inside
        return run

    def number(self):
        return self.random.random()

    def c_nothing(self):
        pass

    def c_data(self):
        self.net.free.data = dt.full((3,), self.number())

    def c_data_of_a_weight(self):
        self.net.layers[0].weight.data = dt.full((3, 3), self.number())

    def c_numbers_in_place(self):
        with dt.no_grad():
            self.net.free.add_(1.0)

    def c_requires_grad(self):
        self.net.free.requires_grad_(not self.net.free.requires_grad)

    def c_parameter(self):
        self.net.free = nn.Parameter(dt.full((3,), self.number()))

    def c_submodule(self):
        self.net.layers[1] = self.random.choice([nn.Tanh(), nn.ReLU(), nn.Identity()])

    def c_class_of_a_module(self):
        self.net.layers[1].__class__ = self.random.choice([nn.Tanh, nn.Sigmoid])

    def c_class_of_an_object(self):
        self.plain.__class__ = type("Plain", (Plain,), {"value": self.number()})

    def c_attribute(self):
        self.net.rate = self.number()

    def c_attribute_through_the_dict(self):
        self.net.__dict__["rate"] = self.number()

    def c_dict_of_a_module(self):
        self.net.__dict__ = {**self.net.__dict__, "rate": self.number()}

    def c_dict_of_an_object(self):
        self.plain.__dict__ = {"value": self.number()}

    def c_dict_updated(self):
        vars(self.plain).update(value=self.number())

    def c_attribute_or_that_of_the_class(self):
        if "value" in vars(self.plain):
            del self.plain.value
        else:
            self.plain.value = self.number()

    def c_slot(self):
        self.slots.value = self.number()

    def c_buffer(self):
        self.net.offset = dt.full((3,), self.number())

    def c_buffer_of_another_size(self):
        self.net.offset = dt.full((self.random.choice([1, 3]),), self.number())

    def c_buffer_through_the_store(self):
        self.net._buffers["offset"] = dt.full((3,), self.number())

    def c_mode(self):
        self.net.train(not self.net.training)

    def c_mode_of_a_part(self):
        self.net.drop.train(not self.net.drop.training)

    def c_hook(self):
        by = self.number()
        handle = self.net.layers.register_forward_hook(lambda m, a, out: out * by)
        if self.random.random() < 0.5:
            handle.remove()

    def c_forward(self):
        by = self.number()
        self.net.layers[1].forward = lambda x: x * by

    def c_names(self):
        self.net.names[0] = "b" if self.net.names[0] == "a" else "a"

    def c_table(self):
        self.table["k"] = self.number()

    def c_entry_that_comes_or_goes(self):
        if self.table.pop("more", None) is None:
            self.table["more"] = 1.0

    def c_default(self):
        self.default.clear()

    def c_order(self):
        self.ordered.move_to_end(next(iter(self.ordered)))

    def c_list(self):
        self.items.append(1.0)

    def c_item(self):
        self.items[0] = self.number()

    def c_list_reversed(self):
        self.items[:] = [self.number(), *self.items[1:]]
        self.items.reverse()

    def c_queue(self):
        self.queue.rotate()

    def c_set(self):
        self.chosen ^= {"x"}

    def c_array(self):
        self.array += 1.0

    def c_tensor(self):
        self.tensor = dt.full((3,), self.number())

    def c_memory_of_a_tensor(self):
        self.tensor.data = dt.full((3,), self.number())

    def c_defaults(self):
        self.shift.__defaults__ = (self.number(),)

    def c_keyword_defaults(self):
        self.shift.__kwdefaults__["times"] = self.number()

    def c_code(self):
        self.shift.__code__ = (lambda x, by=0.0, *, times=1.0: x * 2.0 + by).__code__

    def c_closure(self):
        self.set_inside(self.number())

    def c_global(self):
        globals()["SCALE"] = self.number()

    def c_modes_around(self):
        dt.set_grad_enabled(not dt.is_grad_enabled())

    def c_gradient(self):
        self.net.free.grad = None if self.net.free.grad is not None else dt.ones(3)

    def c_what_was_there_is_collected(self):
        self.net.rate, self.tensor = self.number(), dt.full((3,), self.number())
        gc.collect()


CHANGES = sorted(name for name in vars(World) if name.startswith("c_"))


@pytest.fixture(params=["native", "python"])
def way(request, monkeypatch):
    """With native records, and where there are none."""
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    if request.param == "python":

        def refused(self):
            raise Unavailable("not here")

        monkeypatch.setattr(pointers.Pointers, "sealed", refused)
    grad = dt.is_grad_enabled()
    yield
    dt.set_grad_enabled(grad)


def seen(world, run, x):
    """The numbers of a call, and what it leaves of the state."""
    out = run(x)
    state = {k: v.tolist() for k, v in world.net.state_dict().items()}
    return out.tolist(), out.requires_grad, state


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_are_noticed(seed, way):
    x = dt.full((4, 3), 0.5) + dt.arange(4.0).view(4, 1)
    plain, compiled, order = World(seed), World(seed), random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # once there are too many captures
        run = dt.compile(compiled.run)
        for k in range(24):
            name, scale = order.choice(CHANGES), SCALE
            getattr(plain, name)()
            after, globals()["SCALE"] = SCALE, scale
            getattr(compiled, name)()
            globals()["SCALE"] = after
            if name == "c_modes_around":  # (both changed it)
                dt.set_grad_enabled(k % 2 == 0)
            for _ in range(order.choice([1, 2, 4])):
                assert seen(compiled, run, x) == seen(plain, plain.run, x), (name, run.explain())


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_noticed_by_a_record(name, way):
    x = dt.ones(4, 3)
    plain, compiled = World(1), World(1)
    run = dt.compile(compiled.run)
    for _ in range(4):
        assert seen(compiled, run, x) == seen(plain, plain.run, x)
    scale, grad = SCALE, dt.is_grad_enabled()
    getattr(plain, name)()
    after, globals()["SCALE"] = SCALE, scale
    dt.set_grad_enabled(grad)
    getattr(compiled, name)()
    globals()["SCALE"] = after
    for _ in range(4):
        assert seen(compiled, run, x) == seen(plain, plain.run, x), (name, run.explain())


def test_what_is_not_compared_may_change():
    run = dt.compile(World(0).run)
    for _ in range(5):
        run(dt.ones(2, 3))
        globals()["UNREAD"] = object()
    assert run.explain().startswith("World._program.<locals>.run") and len(run.graphs) == 1


def test_a_record_of_what_goes_on_changing_is_not_made_for_ever():
    space = {"a": 1.5}
    holders = [Holder(0, space, "d")]
    guard, kept = Guard(holders), Record()
    for _ in range(3 * record._TIMES):
        assert guard.stale() is None
        kept.take(lambda p: take_holders(holders, p))
        space["a"] = float(f"1.{5:0{1}d}")  # an equal one, which is another object
        assert not kept.holds()
    assert guard.stale() is None and not kept.holds()


def test_attributes_that_native_code_cannot_see_are_asked_for():
    class Odd:
        @property
        def value(self):
            return found[0]

    found, kept = [1], Record()
    kept.take(lambda p: take_attributes([Odd()], ("value",), p))
    if not kept._left:
        pytest.skip("no native code here")
    assert kept.holds()
    found[0] = []
    assert not kept.holds()
