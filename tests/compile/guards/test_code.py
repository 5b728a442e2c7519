"""Legal but unusual programs: imports inside functions, metaclasses, computed names, what tensors
went through, errors that the program catches. Compiled they are what they are eagerly."""

from __future__ import annotations

import operator
import sys
import types

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from support.agree import check

SPECIMENS = {}


def specimen(fn):
    """``fn()`` gives the step and a function that changes state for call i; the step gets x."""
    SPECIMENS[fn.__name__] = fn
    return fn


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """A package ``odd_settings`` with a module ``inner``, which functions import when called."""
    package, inner = types.ModuleType("odd_settings"), types.ModuleType("odd_settings.inner")
    package.__path__ = []
    package.inner = inner
    package.scale = inner.scale = 1.0
    monkeypatch.setitem(sys.modules, "odd_settings", package)
    monkeypatch.setitem(sys.modules, "odd_settings.inner", inner)
    return package


def imported(body):
    space = {"__name__": "odd_settings.user", "__package__": "odd_settings"}
    exec(compile(f"def step(x):\n    {body}", "odd_user.py", "exec"), space)  # noqa: S102

    def change(i):
        package = sys.modules["odd_settings"]
        package.scale = float(i)
        package.inner.scale = float(10 * i)

    return space["step"], change


IMPORTS = {
    "import": "import odd_settings; return x * odd_settings.scale",
    "import as": "import odd_settings.inner as s; return x * s.scale",
    "import dotted": "import odd_settings.inner; return x * odd_settings.inner.scale",
    "from": "from odd_settings import scale; return x * scale",
    "from module": "from odd_settings.inner import scale as s; return x * s",
    "from package": "from odd_settings import inner; return x * inner.scale",
    "relative": "from . import inner; return x * inner.scale",
    "relative module": "from .inner import scale; return x * scale",
    "in a nested function": "def f():\n        import odd_settings as s; return s.scale\n"
    "    return x * f()",
}
for _name, _body in IMPORTS.items():
    SPECIMENS[_name] = lambda body=_body: imported(body)


@specimen
def replaced_modules():
    def change(i):
        new = types.ModuleType("odd_settings")
        new.scale = float(i)
        sys.modules["odd_settings"] = new

    return imported(IMPORTS["import"])[0], change


@specimen
def attributes_of_metaclasses():
    class Meta(type):
        scale = 1.0

    class Used(metaclass=Meta):
        pass

    return (lambda x: x * Used.scale), lambda i: setattr(Meta, "scale", float(i))


@specimen
def getters_made_inside():
    box, name = types.SimpleNamespace(value=1.0), "".join(["val", "ue"])
    return (lambda x: x * operator.attrgetter(name)(box)), lambda i: setattr(box, "value", float(i))


@specimen
def versions_of_tensors():
    kept = dt.ones(2)
    return (lambda x: x * kept._version), lambda i: kept.add_(0)


@specimen
def rates_that_are_arrays():
    w, rate = dt.ones(2, requires_grad=True), np.array(0.5)
    opt = dt.optim.SGD([w], lr=0.1)
    opt.param_groups[0]["lr"] = rate

    def step(x):
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        return w.detach().clone()

    return step, lambda i: rate.__imul__(0.5)


@specimen
def errors_that_are_caught():
    rows = dt.arange(5.0)

    def step(x):
        try:
            return rows[x.long() * 2]
        except IndexError:
            return x * 0 - 1

    return step, lambda i: None


@specimen
def views_and_their_bases():
    base = dt.arange(4.0)
    box = types.SimpleNamespace(value=base[:2])

    def change(i):
        box.value = base[:2] if i % 2 else dt.ones(2)

    return (lambda x: x * (2 if box.value._base is None else 3)), change


@specimen
def globals_by_computed_names():
    space, name = {"odd_value": 1.0}, "_".join(["odd", "value"])
    exec("def step(x, name):\n    return x * globals()[name]", space)  # noqa: S102
    return (lambda x: space["step"](x, name)), lambda i: space.update(odd_value=float(i))


@specimen
def globals_of_frames():
    space = {"sys": sys, "odd_value": 1.0}
    exec("def step(x):\n    return x * sys._getframe().f_globals['odd_value']", space)  # noqa: S102
    return (lambda x: space["step"](x)), lambda i: space.update(odd_value=float(i))


@specimen
def attributes_that_a_module_computes():
    module, scale = types.ModuleType("computing"), [1.0]
    module.__getattr__ = lambda name: scale[0]
    return (lambda x: x * module.scale), lambda i: scale.__setitem__(0, float(i))


@specimen
def replaced_base_classes():
    class Two:
        def scaled(self, x):
            return x * 2

    class Three:
        def scaled(self, x):
            return x * 3

    class Used(Two):
        pass

    used = Used()
    return used.scaled, lambda i: setattr(Used, "__bases__", ((Two, Three)[i % 2],))


@specimen
def base_classes_replaced_under_an_object():
    class Two:
        def scaled(self, x):
            return x * 2

    class Three:
        def scaled(self, x):
            return x * 3

    class Used(Two):
        pass

    used = Used()
    return (lambda x: used.scaled(x)), lambda i: setattr(Used, "__bases__", ((Two, Three)[i % 2],))


@specimen
def attributes_of_numpy_subclasses():
    class Marked(np.ndarray):
        pass

    kept = np.ones(2).view(Marked)
    kept.scale = 1.0
    return (lambda x: x * kept.scale), lambda i: setattr(kept, "scale", float(i))


@pytest.mark.parametrize("name", SPECIMENS)
def test_state(name, settings):
    def make():
        sys.modules["odd_settings"] = settings
        settings.scale = settings.inner.scale = 1.0
        step, change = SPECIMENS[name]()

        def between(i, step):
            if i > 1:
                change(i)
            return step(dt.full((2,), i + 0.5))

        return step, between, lambda: None

    check(make, 6)


def test_arguments_are_told_apart_by_what_they_went_through():
    leaf = dt.ones(2, requires_grad=True)
    run = dt.compile(lambda x: x.detach() * (2 if "ul" in x.grad_fn.name() else 3))
    with pytest.warns(UserWarning, match="grad_fn, the history of a tensor"):
        found = [run(x).tolist() for x in (leaf * 1, leaf + 1, leaf * 1, leaf + 1)]
    assert found == [[2.0, 2.0], [6.0, 6.0]] * 2


def test_an_error_of_a_replay_leaves_gradients_as_eagerly():
    def make():
        dt.manual_seed(0)
        model = nn.Linear(2, 1)
        opt = dt.optim.SGD(model.parameters(), lr=0.1)
        rows = dt.arange(5.0)

        def step(x, at):
            opt.zero_grad()
            loss = model(x).sum()
            loss.backward()
            loss = loss.detach() + rows[at].sum()
            opt.step()
            return loss

        def between(i, step):
            x, at = dt.full((3, 2), float(i)), dt.tensor([9 if i in (3, 4) else 1])
            try:
                return step(x, at)
            except IndexError as why:
                return str(why)

        return step, between, lambda: [(p, p.grad) for p in model.parameters()]

    check(make, 6)


def test_attributes_of_arguments_are_not_frozen():
    def make():
        def between(i, step):
            x = dt.ones(2)
            x.scale = float(i)
            return step(x)

        return (lambda x: x * x.scale), between, lambda: None

    check(make, 6, warns=True)
