"""Training: gradients of leaves, modes, hooks, optimizers, and calls whose results have a graph."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import AutogradError
from support.agree import check

F = nn.functional
SPECIMENS = {}


def specimen(fn):
    """``fn()`` gives (the step, what changes between calls, what is looked at)."""
    SPECIMENS[fn.__name__] = fn
    return fn


def data(i: int, *shape: int):
    return dt.randn(*shape, generator=dt.Generator().manual_seed(i))


def small(*more):
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), *more, nn.Linear(4, 2))


def trained(model, optimizer, extra=lambda out: 0.0):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean() + extra(model)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def state_of(model):
    return lambda: [*model.state_dict().values(), *(p.grad for p in model.parameters())]


@specimen
def plain_leaves_accumulate():
    w = dt.ones(3, requires_grad=True)

    def step(x):
        (x.sum() * w).sum().backward()

    return step, lambda i: None, lambda: [w]


@specimen
def leaves_in_containers_accumulate():
    ws = {"a": [dt.ones(3, requires_grad=True)]}

    def step(x):
        (x.sum(0) * ws["a"][0]).sum().backward()
        return ws["a"][0].grad * 2

    return step, lambda i: None, lambda: [ws["a"][0]]


@specimen
def accumulated_gradients_stay_the_same_tensor():
    w = dt.ones(3, requires_grad=True)
    w.grad = dt.zeros(3)
    held = w.grad

    def step(x):
        (x.sum(0) * w).sum().backward()

    return step, lambda i: None, lambda: [w, held]


@specimen
def leaves_among_arguments():
    w = dt.ones(3, requires_grad=True)

    def step(x, leaf=w):
        (x.sum(0) * leaf).sum().backward()

    return step, lambda i: None, lambda: [w]


@specimen
def frozen_after_the_first_calls():
    model = small()
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.1)

    def change(i):
        model[0].requires_grad_(i % 3 != 2)

    return trained(model, optimizer), change, state_of(model)


@specimen
def a_plain_leaf_is_frozen():
    w, v = (dt.ones(3, requires_grad=True) for _ in range(2))

    def step(x):
        (x.sum(0) * w * v).sum().backward()

    return step, lambda i: w.requires_grad_(i % 2 == 0), lambda: [w, v]


@specimen
def gradients_set_and_unset_between():
    model = small()

    def step(x):
        model(x).sum().backward()

    def change(i):
        if i % 3 == 0:
            model.zero_grad(set_to_none=True)
        elif i % 3 == 1:
            model.zero_grad(set_to_none=False)

    return step, change, state_of(model)


@specimen
def zeroed_not_dropped():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        model(x).square().sum().backward()
        optimizer.step()

    return step, lambda i: None, state_of(model)


@specimen
def gradients_that_are_read():
    w = dt.ones(3, requires_grad=True)

    def step(x):
        fresh = w.grad is None
        (x.sum(0) * w).sum().backward()
        return w.grad * (2 if fresh else 3)

    return step, lambda i: None, lambda: [w]


@specimen
def micro_batches():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        total = 0
        for part in x.chunk(2):
            loss = model(part).square().mean() / 2
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step, lambda i: None, state_of(model)


@specimen
def accumulation_over_calls():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        model(x).square().mean().backward()

    def change(i):
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()

    return step, change, state_of(model)


@specimen
def train_and_eval():
    model = small(nn.Dropout(0.5), nn.BatchNorm1d(4))
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    return trained(model, optimizer), lambda i: model.train(i % 3 != 2), state_of(model)


@specimen
def one_part_in_eval():
    model = small(nn.Dropout(0.5))
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    return trained(model, optimizer), lambda i: model[2].train(i % 2 == 0), state_of(model)


@specimen
def dropout_of_another_rate():
    model = small(nn.Dropout(0.5))
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    return trained(model, optimizer), lambda i: setattr(model[2], "p", 0.1 * i), state_of(model)


@specimen
def replaced_modules():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    swap = [nn.Tanh(), nn.ReLU()]
    return trained(model, optimizer), lambda i: model.__setitem__(1, swap[i % 2]), state_of(model)


@specimen
def replaced_parameters():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def change(i):
        model[0].weight = nn.Parameter(data(i, 4, 3))

    return trained(model, optimizer), change, state_of(model)


@specimen
def loaded_state():
    model = small()
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.1)
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    return trained(model, optimizer), lambda i: model.load_state_dict(saved), state_of(model)


@specimen
def hooks_added_later():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def change(i):
        if i == 3:
            model[0].register_forward_hook(lambda m, a, out: out * 2)

    return trained(model, optimizer), change, state_of(model)


@specimen
def hooks_on_gradients_added_later():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def change(i):
        if i == 3:
            model[0].weight.register_hook(lambda g: g * 2)

    return trained(model, optimizer), change, state_of(model)


@specimen
def backward_hooks_added_later():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def change(i):
        if i == 3:
            model[-1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))

    return trained(model, optimizer), change, state_of(model)


@specimen
def hooks_of_an_optimizer():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def halve(o, args, kwargs):
        for p in model.parameters():
            p.grad.mul_(0.5)

    def change(i):
        if i == 3:
            optimizer.register_step_pre_hook(halve)

    return trained(model, optimizer), change, state_of(model)


@specimen
def schedules():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    schedule = dt.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    return trained(model, optimizer), lambda i: schedule.step(), state_of(model)


@specimen
def schedules_inside():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    schedule = dt.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    inner = trained(model, optimizer)

    def step(x):
        loss = inner(x)
        schedule.step()
        return loss

    return step, lambda i: None, state_of(model)


@specimen
def rates_that_are_read():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    inner = trained(model, optimizer)

    def step(x):
        return inner(x) * optimizer.param_groups[0]["lr"]

    def change(i):
        optimizer.param_groups[0]["lr"] = 0.1 / i

    return step, change, state_of(model)


@specimen
def rates_that_a_scheduler_tells():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    schedule = dt.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    inner = trained(model, optimizer)
    step = lambda x: inner(x) * schedule.get_last_lr()[0]
    return step, lambda i: schedule.step(), state_of(model)


@specimen
def rates_changed_inside():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    inner = trained(model, optimizer)

    def step(x):
        optimizer.param_groups[0]["lr"] = 0.5
        a = inner(x)
        optimizer.param_groups[0]["lr"] = 0.01
        return a + inner(x)

    return step, lambda i: None, state_of(model)


@specimen
def momentum_in_one_group():
    model = small()
    groups = [{"params": list(m.parameters())} for m in (model[0], model[2])]
    groups[0]["momentum"] = 0.9
    optimizer = dt.optim.SGD(groups, lr=0.1)

    def change(i):
        optimizer.param_groups[i % 2]["momentum"] = 0.9 if i % 3 else 0.0

    return trained(model, optimizer), change, state_of(model)


@specimen
def hyperparameters():
    model = small()
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.1)

    def change(i):
        optimizer.param_groups[0].update(weight_decay=0.1 * i, betas=(0.9 - 0.1 * i, 0.99))

    return trained(model, optimizer), change, state_of(model)


@specimen
def groups_added_later():
    model = small()
    optimizer = dt.optim.SGD(model[0].parameters(), lr=0.1)

    def change(i):
        if i == 3:
            optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.5})

    return trained(model, optimizer), change, state_of(model)


@specimen
def optimizers_of_the_user():
    model = small()

    class Own(dt.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @dt.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["n"] = state.get("n", 0) + 1
                    p.sub_(p.grad * (group["lr"] / state["n"]))

    optimizer = Own(model.parameters())

    def change(i):
        optimizer.param_groups[0]["lr"] = 0.1 / i

    return trained(model, optimizer), change, state_of(model)


@specimen
def updates_by_hand():
    w = dt.ones(3, requires_grad=True)
    rate = [0.1]

    def step(x):
        loss = (x.sum(0) * w).sum().sin()
        loss.backward()
        with dt.no_grad():
            w.sub_(w.grad * rate[0])
        w.grad = None
        return loss.detach()

    def change(i):
        rate[0] = 0.1 / i

    return step, change, lambda: [w]


@specimen
def updates_of_data():
    w = dt.ones(3, requires_grad=True)

    def step(x):
        loss = (x.sum(0) * w).sum().sin()
        loss.backward()
        w.data = w.data - 0.1 * w.grad
        w.grad.zero_()
        return loss.detach()

    return step, lambda i: None, lambda: [w]


@specimen
def weights_of_a_loss_in_a_schedule():
    model = small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    weight = {"l2": 0.0}
    extra = lambda m: weight["l2"] * sum(p.square().sum() for p in m.parameters())

    def change(i):
        weight["l2"] = 0.1 * i

    return trained(model, optimizer, extra), change, state_of(model)


@specimen
def an_average_of_weights():
    model, average = small(), small()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    inner = trained(model, optimizer)

    def step(x):
        loss = inner(x)
        with dt.no_grad():
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                a.lerp_(p, 0.1)
        return loss

    return step, lambda i: None, lambda: [*model.parameters(), *average.parameters()]


@specimen
def checkpointed_activations():
    model = small(nn.Dropout(0.5))
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        loss = dt.autograd.checkpoint(model, x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda i: None, state_of(model)


@specimen
def loss_returned_undetached():
    model = small(nn.Dropout(0.5))
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda i: None, state_of(model)


@specimen
def one_input_twice():
    def step(x, calls=[0]):  # noqa: B006
        return x

    pair = lambda a, b: a * 2 - b
    del step
    return pair, lambda i: None, lambda: None


@pytest.mark.parametrize("name", SPECIMENS)
def test_training(name):
    def make():
        step, change, look = SPECIMENS[name]()

        def between(i, step):
            if i > 1:
                change(i)
            x = data(i, 4, 3)
            if name == "one_input_twice":
                return step(x, x if i % 2 == 0 else data(i + 9, 4, 3))
            return step(x)

        return step, between, look

    check(make, 8)


WHOLE = {
    "mlp": lambda: small(),
    "dropout": lambda: small(nn.Dropout(0.5)),
    "norms": lambda: small(nn.BatchNorm1d(4), nn.LayerNorm(4)),
    "shared": lambda: nn.Sequential(*[nn.Linear(3, 3)] * 3),
    "custom": lambda: Net(),
}


class Net(nn.Module):
    """Two results, one of them without a gradient; state in Python."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
        self.rate = 1.0

    def forward(self, x):
        u = self.a(x).relu()
        return u.sum(0) * self.rate, (self.b(x) * u).sum(0), u.argmax(1)


@pytest.mark.parametrize("used", ["all", "first", "second"])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", WHOLE)
def test_a_compiled_module_trains(kind, deep, used):
    def make():
        model, before = WHOLE[kind](), nn.Linear(3, 3)
        optimizer = dt.optim.AdamW([*model.parameters(), *before.parameters()], lr=0.05)
        forward = lambda x: model(x)

        def between(i, run):
            if i == 4 and kind == "custom":
                model.rate = 2.0
            optimizer.zero_grad(set_to_none=i % 2 == 0)
            x = data(i, 5, 3)
            out = run(before(x) if deep else x)
            outs = out if isinstance(out, tuple) else (out,)
            picked = {"all": outs[:2], "first": outs[:1], "second": outs[:2][-1:]}[used]
            loss = sum(o.square().sum() for o in picked)
            loss.backward()
            optimizer.step()
            return outs, [o.requires_grad for o in outs], loss

        look = lambda: [
            *model.state_dict().values(), *(p.grad for p in model.parameters()),
            *(p.grad for p in before.parameters()),
        ]  # fmt: skip
        return forward, between, look

    step = check(make, 7, warns=False)
    assert step.graphs and len(step.reasons) <= 4, step.explain()


def test_backward_of_a_replay_twice():
    w = dt.ones(3, requires_grad=True)
    run = dt.compile(lambda x: (x * w).sum())
    for _ in range(3):
        loss = run(dt.ones(3))
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(AutogradError, match="retain_graph"):
            loss.backward()
    assert w.grad.tolist() == [6.0] * 3


def test_a_loss_whose_graph_is_gone_says_so():
    w = dt.ones(3, requires_grad=True)

    def step(x):
        loss = (x * w).sum()
        loss.backward()
        return loss

    run = dt.compile(step)
    for _ in range(3):
        loss = run(dt.ones(3))
        assert loss.requires_grad and loss.grad_fn is not None
        with pytest.raises(AutogradError, match="retain_graph"):
            loss.backward()


def test_a_weight_written_to_before_backward_is_noticed():
    w = dt.ones(3, requires_grad=True)
    run = dt.compile(lambda x: (x * w * w).sum())
    for _ in range(3):
        loss = run(dt.ones(3))
        with dt.no_grad():
            w.add_(1)
        with pytest.raises(AutogradError, match="in-place"):
            loss.backward()


def test_a_result_written_to_before_backward_is_noticed():
    w = dt.ones(3, requires_grad=True)
    run = dt.compile(lambda x: (x * w).exp())
    for _ in range(3):
        out = run(dt.ones(3))
        with dt.no_grad():
            out.detach().mul_(2)
        with pytest.raises(AutogradError, match="in-place"):
            out.sum().backward()


def test_gradients_of_inputs_and_of_some_leaves():
    w, v = (dt.ones(3, requires_grad=True) for _ in range(2))
    run = dt.compile(lambda x: (x * w + v * 2).sum())
    for i in range(3):
        x = dt.full((3,), float(i), requires_grad=True)
        gx, gv = dt.autograd.grad(run(x), [x, v])
        assert gx.tolist() == [1.0] * 3 and gv.tolist() == [2.0] * 3
        assert x.grad is None and w.grad is None


def test_what_runs_eagerly_is_said_once_with_its_line():
    run = dt.compile(lambda x: x * x.sum().item())
    with pytest.warns(UserWarning, match=r"runs eagerly.*test_joint\.py:\d+") as seen:
        for i in range(8):
            run(dt.full((2,), float(i)))
            run(dt.full((3,), float(i)))
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(dt.ones(2))


def test_methods_can_be_decorated():
    class Trainer:
        def __init__(self, scale):
            self.scale = scale

        @dt.compile
        def step(self, x):
            return x * self.scale

    one, two = Trainer(1.0), Trainer(2.0)
    for _ in range(3):
        assert one.step(dt.ones(1)).item() == 1.0 and two.step(dt.ones(1)).item() == 2.0
    one.scale = 5.0
    assert one.step(dt.ones(1)).item() == 5.0


def test_hooks_of_leaves_run_once_around_a_replay():
    w = dt.ones(3, requires_grad=True)
    w.register_hook(lambda g: g * 0.5)
    run = dt.compile(lambda x: (x * w + w).sum())
    for i in range(3):
        w.grad = None
        run(dt.full((3,), float(i))).backward()
        assert w.grad.tolist() == [(i + 1) / 2] * 3
    assert len(run.graphs) == 1


def test_second_derivatives_go_through_replays():
    w = dt.tensor([1.0, 2.0], requires_grad=True)
    run = dt.compile(lambda x, y: ((w * x).pow(3) * y).sum())
    for i in range(3):
        seen = []
        for f in (run, run.fn):
            a = dt.tensor([1.0 + i, 2.0], requires_grad=True)
            b = a * 2  # one input depends on another
            gw, ga = dt.autograd.grad(f(a, b), [w, a], create_graph=True)
            second = dt.autograd.grad((gw * ga).sum(), [w, a])
            seen.append([t.tolist() for t in (gw, ga, *second)])
        assert seen[0] == seen[1]
    assert len(run.graphs) == 1


def test_second_derivatives_of_what_draws_are_refused():
    w = dt.ones(3, requires_grad=True)
    run = dt.compile(lambda x: F.dropout(x * w, 0.5).square().sum())
    run(dt.ones(3))
    with pytest.raises(AutogradError, match="create_graph"):
        dt.autograd.grad(run(dt.ones(3)), w, create_graph=True)


@pytest.mark.parametrize(
    "views",
    [
        lambda x: x.t(),
        lambda x: x[0],
        lambda x: x.view(-1)[1:3],
        lambda x: x.chunk(2)[1],
        lambda x: x.unbind(0)[0],
        lambda x: x.t().split(1)[0].view(2),
    ],
)
def test_views_given_back_are_views(views):
    w = dt.tensor(2.0, requires_grad=True)
    run, seen = dt.compile(views), []
    for f in (views, run, run):
        x = dt.arange(4.0).view(2, 2)
        v = f(x)
        same = v._base is x or v._base is x._base
        try:
            v.mul_(w)
        except AutogradError:  # as every write to one of several views
            seen.append((same, "refused"))
            continue
        (x * dt.arange(4.0).view(2, 2)).sum().backward()
        seen.append((same, x.tolist(), w.grad.tolist()))
        w.grad = None
    assert seen[0] == seen[1] == seen[2]


def test_a_capture_does_not_keep_gradients():
    w = dt.ones(3, requires_grad=True)
    optimizer = dt.optim.SGD([w], lr=0.1)

    def step(x):
        (w * x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    run = dt.compile(step)
    for _ in range(3):
        run(dt.ones(3))
    (w * 2).sum().backward()
    grad = weakref.ref(w.grad)
    run(dt.ones(3))
    w.grad = None
    gc.collect()
    assert grad() is None
