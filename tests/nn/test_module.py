"""Module: registration, lookup, conversion, text, copies."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.errors import (
    AutogradError,
    ConfigError,
    ModuleError,
    ModuleNameError,
)


def tensor(*shape, value=1.0):
    return core.wrap(np.full(shape, value, np.float32))


class Scale(nn.Module):
    """One parameter, one buffer, one buffer that is not saved."""

    def __init__(self, value=2.0):
        super().__init__()
        self.weight = nn.Parameter(tensor(3, value=value))
        self.register_buffer("seen", tensor(1, value=0.0))
        self.register_buffer("scratch", tensor(2), persistent=False)

    def forward(self, x, shift=0.0):
        return x * self.weight + shift


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.second = Scale(3.0)
        self.register_module("absent", None)

    def forward(self, x):
        return self.second(self.first(x))


def names(pairs):
    return [name for name, _ in pairs]


def test_assignment_registers():
    net = Pair()
    assert names(net.named_parameters()) == ["first.weight", "second.weight"]
    assert names(net.named_buffers()) == [
        "first.seen", "first.scratch", "second.seen", "second.scratch"
    ]  # fmt: skip
    assert names(net.named_modules()) == ["", "first", "second"]
    assert names(net.named_children()) == ["first", "second"]
    assert len(list(net.parameters(recurse=False))) == 0
    assert net.absent is None
    assert {"first", "second"} <= set(dir(net))
    assert "weight" in dir(net.first)


def test_forward_uses_what_was_registered():
    out = Pair()(tensor(3))
    assert out.tolist() == [6.0, 6.0, 6.0]
    assert Scale()(tensor(3), shift=1.0).tolist() == [3.0, 3.0, 3.0]


def test_parameter_replaced_deleted_and_set_to_none():
    m = Scale()
    m.weight = nn.Parameter(tensor(3, value=5.0))
    assert m(tensor(3)).tolist() == [5.0] * 3
    with pytest.raises(TypeError, match="cannot assign 'Tensor' object to parameter 'weight'"):
        m.weight = tensor(3)
    m.weight = None
    assert m.weight is None and list(m.parameters()) == []
    m.weight = nn.Parameter(tensor(3))
    del m.weight
    with pytest.raises(AttributeError, match="'Scale' object has no attribute 'weight'"):
        m.weight


def test_a_name_moves_between_the_stores():
    m = Scale()
    m.thing = 3
    m.thing = nn.Parameter(tensor(1))
    assert "thing" in m._parameters and "thing" not in m.__dict__
    m.thing = Scale()
    assert "thing" in m._modules and "thing" not in m._parameters
    with pytest.raises(TypeError, match="child module"):
        m.thing = 4
    m.scratch = tensor(7)
    assert m.scratch.shape == (7,) and "scratch" in m._buffers
    with pytest.raises(TypeError, match="buffer"):
        m.scratch = "text"
    m.scratch = None
    assert m.scratch is None


def test_buffer_class_registers_itself():
    m = Scale()
    m.extra = nn.Buffer(tensor(2))
    m.hidden = nn.Buffer(tensor(2), persistent=False)
    assert "extra" in m.state_dict() and "hidden" not in m.state_dict()
    assert {"extra", "hidden"} <= set(names(m.named_buffers()))


def test_forgotten_super_init_is_explained():
    class Forgetful(nn.Module):
        def __init__(self):
            self.layer = Scale()

    class AlsoForgetful(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(tensor(1))

    class Late(nn.Module):
        def __init__(self):
            self.register_buffer("b", tensor(1))

    for kind, what in ((Forgetful, "layer"), (AlsoForgetful, "weight"), (Late, "b")):
        with pytest.raises(ModuleError, match=rf"{kind.__name__}: super\(\).__init__\(\) was not"):
            kind()
        with pytest.raises(ModuleError, match=what):
            kind()

    class Plain(nn.Module):
        def __init__(self):
            self.size = 3

    with pytest.raises(ModuleError, match="super"):
        list(Plain().parameters())


@pytest.mark.parametrize("name", ["", "a.b"])
def test_names_are_checked(name):
    m = Scale()
    for register in (m.add_module, m.register_parameter, m.register_buffer):
        with pytest.raises(ModuleNameError):
            register(name, None)
        with pytest.raises(KeyError):
            register(name, None)


def test_names_that_are_taken():
    m = Scale()
    m.size = 3
    with pytest.raises(ModuleNameError, match="'size' already exists"):
        m.register_parameter("size", nn.Parameter(tensor(1)))
    with pytest.raises(ModuleNameError, match="'forward' already exists"):
        m.add_module("forward", Scale())
    with pytest.raises(TypeError, match="name should be a string"):
        m.add_module(3, Scale())
    with pytest.raises(TypeError, match=r"nn\.Module or None required"):
        m.add_module("x", 3)
    with pytest.raises(TypeError, match="cannot assign"):
        m.register_parameter("x", tensor(1))
    with pytest.raises(ModuleError, match="must be a leaf"):
        made = nn.Parameter(tensor(1)) * 2
        made.__class__ = nn.Parameter
        m.register_parameter("x", made)


def test_text_has_pytorchs_layout():
    assert repr(Pair()) == ("Pair(\n  (first): Scale()\n  (second): Scale()\n  (absent): None\n)")
    net = nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU(), nn.Flatten()))
    assert repr(net) == (
        "Sequential(\n  (0): Identity()\n  (1): Sequential(\n    (0): ReLU()\n"
        "    (1): Flatten(start_dim=1, end_dim=-1)\n  )\n)"
    )


def test_deepcopy_is_independent_and_keeps_ties():
    m = Pair()
    m.second.weight = m.first.weight
    m.first.weight.requires_grad_(False)
    twin = copy.deepcopy(m)
    assert twin.first.weight is twin.second.weight
    assert twin.first.weight is not m.first.weight
    assert isinstance(twin.first.weight, nn.Parameter) and not twin.first.weight.requires_grad
    twin.first.weight.fill_(9.0)
    assert m.first.weight.tolist() == [2.0] * 3
    with pytest.raises(AutogradError):
        m.loose = nn.Parameter(tensor(1))
        m.result = m.loose * 2
        copy.deepcopy(m)


def test_copies_and_pickles_keep_hooks_and_values():
    m, seen = Scale(), []
    m.register_forward_hook(lambda *a: seen.append(1))
    copy.deepcopy(m)(tensor(3))
    assert seen == [1]
    back = pickle.loads(pickle.dumps(Pair()))
    assert back.second.weight.tolist() == [3.0] * 3 and back.second.weight.requires_grad
    assert isinstance(back.second.weight, nn.Parameter)


def test_modules_are_freed_without_the_collector():
    gc.disable()
    try:
        m = Pair()
        m(tensor(3)).sum().backward()
        ref = weakref.ref(m.first)
        del m
        assert ref() is None
    finally:
        gc.enable()


def test_missing_forward_is_named():
    with pytest.raises(NotImplementedError, match=r"Module \[Module\] is missing the required"):
        nn.Module()(1)


def test_a_property_that_fails_is_named():
    class Odd(nn.Module):
        @property
        def width(self):
            return self.no_such_thing

    with pytest.raises(AttributeError, match="Odd: its property 'width'"):
        Odd().width


def test_config_errors_of_layers():
    for make in (
        lambda: nn.Linear(-1, 2),
        lambda: nn.Linear(2.5, 2),
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(3, 4, 3, padding="around"),
        lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"),
        lambda: nn.Dropout(1.5),
        lambda: nn.GroupNorm(3, 4),
        lambda: nn.GELU("erf"),
        lambda: nn.MultiheadAttention(5, 2),
        lambda: nn.Embedding(3, 2, padding_idx=3),
        lambda: nn.LSTM(3, 0),
        lambda: nn.RNN(3, 4, nonlinearity="sin"),
    ):
        with pytest.raises(ConfigError):
            make()


def test_constructors_hand_arguments_on_where_they_are_asked_to():
    class Beside:
        def __init__(self, size, name=None):
            self.told = size, name

    class Both(nn.Module, Beside):
        call_super_init = True

    assert Both(3, name="a").told == (3, "a")
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.Module(size=3)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        nn.Module(3)


def test_a_load_hook_that_returns_something_is_an_error():
    model = nn.Linear(2, 2)
    model.register_load_state_dict_post_hook(lambda module, keys: keys)
    with pytest.raises(AssertionError, match="not expected to return"):
        model.load_state_dict(model.state_dict())
