"""Gradients: zeroed in time, there when a step wants them, and of parameters that are stepped."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F
from support.sanitized import Net, batch, findings, kinds, train


def loop(order: str, steps: int = 6, set_to_none: bool = True, lr: float = 0.01):
    """A loop of these calls: z(ero), b(ackward), s(tep)."""
    model = Net()
    optimizer = dt.optim.SGD(model.parameters(), lr=lr)

    def backward() -> None:
        x, y = batch()
        F.cross_entropy(model(x), y).backward()

    calls = {"z": lambda: optimizer.zero_grad(set_to_none), "b": backward, "s": optimizer.step}
    for _ in range(steps):
        for letter in order:
            calls[letter]()


@pytest.mark.parametrize(
    "order, found",
    [
        ("bs", {"gradients-never-zeroed"}),
        ("bbs", {"gradients-never-zeroed"}),
        ("bzs", {"gradients-cleared-before-step"}),
        ("zsb", {"step-before-backward"}),
        ("zbs", set()),
        ("bsz", set()),
        ("zbbbs", set()),
        ("bbsz", set()),
        ("szb", set()),  # a step late, and right
    ],
)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_the_order_of_calls(order, found, set_to_none):
    assert kinds(lambda: loop(order, set_to_none=set_to_none)) == found


def test_one_step_that_is_wrong_is_no_habit():
    def body():
        loop("zb", 1)
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        optimizer.zero_grad()
        optimizer.step()  # to have a state
        train(model, optimizer)

    assert kinds(body) == set()


@pytest.mark.parametrize("how", ["none", "zero", "data", "module"])
def test_gradients_are_cleared_by_hand(how):
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            if how == "module":
                model.zero_grad()
            for p in model.parameters():
                if p.grad is None or how == "module":
                    continue
                if how == "none":
                    p.grad = None
                elif how == "zero":
                    p.grad.zero_()
                else:
                    p.grad.data.zero_()
            x, y = batch()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert kinds(body) == set()


def test_two_optimizers_of_a_gan():
    def body():
        g, d = nn.Linear(2, 4), nn.Linear(4, 1)
        steps = [dt.optim.Adam(m.parameters(), lr=1e-3) for m in (g, d)]
        for _ in range(8):
            d.zero_grad()
            d(dt.randn(8, 4)).relu().mean().backward()
            fake = g(dt.randn(8, 2))
            d(fake.detach()).pow(2).mean().backward()
            steps[1].step()
            g.zero_grad()
            d(fake).mean().backward()  # adds to the gradients of d, which are cleared above
            steps[0].step()

    assert kinds(body) == set()


def test_momentum_by_hand():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            x, y = batch()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            for p in model.parameters():
                p.grad *= 0.9

    assert kinds(body) == set()


def test_a_layer_in_a_plain_list():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.others = nn.Linear(4, 4), [nn.Linear(4, 3)]

        def forward(self, x):
            return self.others[0](self.first(x))

    def body():
        model = Hidden()
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))

    (found,) = findings(body)
    assert found.kind == "parameter-not-in-optimizer" and "plain list" in found.message


def test_a_layer_made_after_the_optimizer():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        model.last = nn.Linear(16, 3)
        train(model, optimizer)

    (found,) = findings(body)
    assert found.kind == "parameter-not-in-optimizer"
    assert "Net.last.weight" in found.message and "after the optimizer" in found.message


def test_a_part_that_is_left_out_on_purpose_is_advice():
    def body():
        model = Net()
        train(model, dt.optim.SGD(model.last.parameters(), lr=0.01))

    assert kinds(body) == set()
    assert kinds(body, advice=True) == {"gradients-unused"}


def test_updates_by_hand_beside_an_optimizer():
    def body():
        model = Net(norm=False)
        optimizer = dt.optim.SGD(model.last.parameters(), lr=0.01)
        for _ in range(12):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            for p in model.first.parameters():
                p.data -= 0.01 * p.grad
                p.grad = None

    assert kinds(body, advice=True) == set()


def test_an_optimizer_that_was_made_before_and_not_used_yet():
    g, d = nn.Linear(2, 4), nn.Linear(4, 1)
    both = nn.Sequential(g, d)
    first, _second = (dt.optim.SGD(m.parameters(), lr=0.01) for m in (g, d))

    def body():
        for _ in range(12):
            both.zero_grad()
            both(dt.randn(8, 2)).mean().backward()
            first.step()

    assert kinds(body, advice=True) == set()


class Cut(nn.Module):
    """Its middle is cut off from the loss."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.first, self.middle, self.last = (nn.Linear(4, 4) for _ in range(3))
        self.cut = cut

    def forward(self, x):
        found = self.middle(x)
        return (self.last(self.first(x) + (found.detach() if self.cut else found)))[:, :3]


@pytest.mark.parametrize("cut", [True, False])
def test_a_parameter_that_never_gets_a_gradient(cut):
    def body():
        model = Cut(cut)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))

    found = findings(body)
    assert [f.kind for f in found] == ["parameter-without-gradient"] * cut
    assert all("Cut.middle.weight" in f.message for f in found)


def test_modules_that_never_run_are_advice():
    def body():
        model = Net()
        model.unused = nn.Linear(2, 2)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01), 50)

    assert kinds(body) == set()
    assert kinds(body, advice=True) == {"parameter-never-used"}


def test_a_frozen_part_and_a_part_that_runs_without_gradients():
    class Encoded(Net):
        def forward(self, x):
            with dt.no_grad():
                found = self.first(x)
            return self.last(found)

    def body():
        model = Net()
        for p in model.first.parameters():
            p.requires_grad_(False)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))
        model = Encoded(norm=False)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))

    assert kinds(body) == set()


@pytest.mark.parametrize("how", ["item", "detach", "right"])
def test_a_loss_that_does_not_depend_on_the_model(how):
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            x, y = batch()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if how == "item":
                loss = dt.tensor(loss.item(), requires_grad=True)
            elif how == "detach":
                out = model(x).detach().requires_grad_()
                loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()

    assert kinds(body) == (set() if how == "right" else {"loss-without-model"})


def test_an_optimizer_of_a_task_that_is_not_in_turn():
    def body():
        base, heads = nn.Linear(4, 4), [nn.Linear(4, 1) for _ in range(2)]
        steps = [dt.optim.SGD([*base.parameters(), *h.parameters()], lr=0.01) for h in heads]
        for i in range(20):
            [o.zero_grad() for o in steps]
            heads[i // 10](base(dt.randn(4, 4))).mean().backward()
            [o.step() for o in steps]

    assert kinds(body) == set()
