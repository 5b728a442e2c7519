"""What a rank is known to have done: steps, walks, calls of models."""

from __future__ import annotations

import disttrain as dt
from disttrain import nn
from disttrain.sanitize.report import Findings
from disttrain.sanitize.session import SLOT, Held, Session, active, tensors
from support.sanitized import Net, batch, train


class Heard:
    """A check that notes what it is told."""

    def __init__(self, session: Session) -> None:
        self.session, self.events = session, []
        session.heard = self

    def __getattr__(self, name: str):
        if name not in ("before_walk", "after_walk", "before_step", "after_step", "cleared",
                        "enter", "leave"):  # fmt: skip
            raise AttributeError(name)
        return lambda *args: self.events.append(name)


def heard(body) -> list[str]:
    """The events of ``body``, in order."""
    with dt.sanitize(quiet=True) as watch:
        check = Heard(watch._session)
        for name in ("before_walk", "after_walk", "before_step", "after_step", "cleared", "enter",
                     "leave"):  # fmt: skip
            watch._session.on[name].append(getattr(check, name))
        body()
    return check.events


def test_events_of_a_step():
    model = Net()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    once = ["cleared", "enter", "leave", "before_walk", "after_walk", "before_step", "after_step"]
    events = heard(lambda: train(model, optimizer, 2))
    assert [e for e in events if e in once] == once * 2


def test_gradients_of_inputs_are_no_walk():
    def body():
        x = dt.ones(3, requires_grad=True)
        dt.autograd.grad((x * x).sum(), x)

    assert heard(body) == []


def test_what_transforms_and_captures_do_is_not_told():
    layer = nn.Linear(3, 3)

    def body():
        dt.func.vmap(layer)(dt.ones(2, 3))

    assert heard(body) == []


def test_optimizers_are_known_as_long_as_they_live():
    session = Session(Findings((), (), dt.context.Rank()), [])
    layer = nn.Linear(2, 2)
    optimizer = dt.optim.SGD([layer.weight], lr=0.1)
    held = session.optimizer(optimizer)
    assert held is session.optimizer(optimizer) and held.ids == {id(layer.weight)}
    optimizer.add_param_group({"params": [layer.bias]})
    assert session.optimizer(optimizer).ids == {id(layer.weight), id(layer.bias)}
    del optimizer
    assert session.holders() == []


def test_an_optimizer_of_what_lies_elsewhere():
    class Remote:
        param_groups = [{"params": [object()]}]

    held = Held(own := Remote())
    assert held.ref() is own and held.params == [] and held.ids == set()


def test_modules_are_found_by_their_nodes():
    model = Net(norm=False)
    with dt.sanitize(quiet=True) as watch:
        out = model(batch()[0])
        session = watch._session
        assert session.module_of(out.graph_node()) is model.last
        assert session.names.module(model.last) == "Net.last"
        assert session.names.tensors([model.last.bias, dt.ones(2)]) == [
            "Net.last.bias", "a tensor of shape [2]",
        ]  # fmt: skip
    assert active() is None and SLOT not in dt.context.current().slots


def test_tensors_in_a_nest():
    a, b = dt.ones(1), dt.zeros(1)
    found = tensors({"x": [a, 3], "y": (b,)})
    assert found[0] is a and found[1] is b and len(found) == 2
