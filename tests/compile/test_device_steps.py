"""Training steps on the device stand-in with generated kernels: eager's bits, in fewer launches and
less memory; and steps that look at what they compute."""

from __future__ import annotations

import warnings

import pytest
from benchmarks.models import make_gpt

import disttrain as dt
from disttrain import nn, optim
from disttrain.compile.passes import device_region, overwriting, region
from support.agree import difference
from support.cases import steps

pytestmark = pytest.mark.usefixtures("double")
F = nn.functional
STEPS, DRAWN = 5, 20


def mlp():
    layers = [nn.Linear(12, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(16, 5)), lambda n: dt.randn(6, 12, generator=n)


def cnn():
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.MaxPool2d(2)]
    last = [nn.Flatten(), nn.Hardtanh(), nn.Linear(64, 5)]
    return nn.Sequential(*layers, *last), lambda n: dt.randn(6, 2, 8, 8, generator=n)


def gpt():
    model = make_gpt(dt, vocab=5, width=16, heads=2, layers=2, context=8)
    return model, lambda n: dt.randint(0, 5, (3, 8), generator=n)


def trained(make, kind, wrap=lambda step: step):
    """What steps leave: losses, weights, gradients, buffers, as bytes; and the step."""
    dt.manual_seed(0)
    model, draw = make()
    model = model.cuda().to(dt.bfloat16 if kind == "bfloat16" else dt.float32)
    params = list(model.parameters())
    optimizer = optim.AdamW(params, lr=0.01)
    numbers = dt.Generator().manual_seed(3)

    def step(x, y):
        optimizer.zero_grad()
        with dt.autocast("cuda", dt.bfloat16, enabled=kind == "autocast"):
            scores = model(x)
            loss = F.cross_entropy(scores.flatten(0, -2), y) + 0.01 * scores.square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        return loss

    run, losses = wrap(step), []
    for i in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
        x = draw(numbers)
        y = dt.randint(0, 5, (x.numel() if make is gpt else 6,), generator=numbers)
        x = x if make is gpt or kind != "bfloat16" else x.bfloat16()
        losses.append(run(x.cuda(), y.cuda()))
    kept = [*losses, *params, *[p.grad for p in params], *model.buffers()]
    return [numbers_of(t) for t in kept], run


def numbers_of(t):
    """The numbers of a tensor, bit for bit."""
    return t.item() if not t.ndim else t.detach().cpu().view(dt.uint8).numpy().tobytes()


def kernels(run):
    """Of all graphs: how often a kernel stands for operations, and writes over operands."""
    prims = [ins.prim for graph in run.graphs for ins in graph.instructions]
    return [p.region for p in prims if isinstance(p, region.Fused) and p.region.kernels]


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("make", [mlp, cnn, gpt])
def test_a_training_step_has_eagers_bits(make, kind):
    wanted, _ = trained(make, kind)
    for options in ({}, {"activation_memory_budget": 0.4}, {"triton.cudagraphs": True}):
        got, run = trained(make, kind, lambda step, o=options: dt.compile(step, options=o))
        assert got == wanted, options
        assert not run.eager and kernels(run), run.explain()


@pytest.fixture
def on_the_device():
    """Whatever a program makes lies there; kernels are made at once."""
    dt.set_default_device("cuda")
    yield
    dt.set_default_device(None)


@pytest.mark.parametrize("weights", [steps.KINDS, steps.PATHS])
def test_drawn_steps_are_eager_steps(on_the_device, monkeypatch, weights):
    monkeypatch.setattr(device_region, "_RUNS", 0)
    monkeypatch.setattr(overwriting, "_WORTH", 0)
    for seed in range(DRAWN):
        source = steps.program(*steps.draw(seed, weights))
        why = difference(steps.maker(source.replace("Generator()", "Generator('cuda')")), 8)
        assert why is None, f"seed {seed}\n{source}\n{why}"


def work_of(double, run, *args):
    """What one more call does on the device: operations but for taking memory, and the peak."""
    names, begin = [], double.begin
    double.reset_peak(0)
    before = double.memory_stats(0)["allocated"]
    double.begin = lambda name, *a, **k: (names.append(name), begin(name, *a, **k))[1]
    run(*args)
    del double.begin
    return len([n for n in names if n != "empty"]), double.memory_stats(0)[
        "peak_allocated"
    ] - before


def test_a_step_does_less_and_holds_less(double):
    def made():
        dt.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64), nn.GELU()).cuda()
        optimizer = optim.AdamW(model.parameters())

        def step(x):
            optimizer.zero_grad()
            y = model(x)
            loss = ((y * 2.0 + x).tanh() - y.sigmoid()).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    x = dt.randn(512, 64).cuda()
    found = []
    for run in (made(), dt.compile(made())):
        for _ in range(4):
            run(x)
        found.append(work_of(double, run, x))
    (eager, peak), (compiled, held) = found
    assert compiled < 0.7 * eager and held < 0.8 * peak, found


# -- questions ---------------------------------------------------------------------------------
def agrees(make, calls):
    """That a compiled step gives what the eager one gives, call by call; the compiled one."""
    found = []
    for wrap in (lambda step: step, dt.compile):
        dt.manual_seed(1)
        step, draw, state = make()
        run = wrap(step)
        numbers = dt.Generator().manual_seed(2)
        results = [run(draw(numbers)) for _ in range(calls)]
        found.append([numbers_of(r) if isinstance(r, dt.Tensor) else r for r in results])
        found[-1] += [numbers_of(t) for t in state()]
    assert found[0] == found[1]
    return run


def test_a_way_is_captured_once_and_taken_again():
    run = dt.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    found = [run(dt.full((2,), float(v), device="cuda")).tolist()[0] for v in (1, -1, 2, -3, 4)]
    assert found == [2.0, -2.0, 4.0, -4.0, 8.0]
    assert len(run.graphs) == 2 and "question(%2, seen=True at" in str(run.graphs[0])


def test_a_loss_is_looked_at_before_the_step_and_given_back_as_a_number():
    def make():
        model = nn.Linear(3, 3).cuda()
        optimizer = optim.AdamW(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            if not dt.isfinite(loss):
                return None
            return loss.item()

        return step, lambda g: dt.randn(4, 3, generator=g).cuda(), lambda: list(model.parameters())

    run = agrees(make, 6)
    assert not run.eager
    names = [ins.prim.name for ins in run.graphs[0].instructions]
    assert names.index("question") < names.index("adam_step")


def test_what_came_before_the_question_is_undone():
    def make():
        seen, gen = dt.zeros(3, device="cuda"), dt.Generator("cuda").manual_seed(3)
        norm = nn.BatchNorm1d(3).cuda()

        def step(x):
            h = norm(x) + dt.rand(3, generator=gen, device="cuda")
            seen.add_(h.detach().sum(0))
            if seen.sum() > 14:
                seen.zero_()
                return h * dt.rand(3, generator=gen, device="cuda")
            return h + int(seen.argmax())

        state = lambda: [seen, gen.get_state(), *norm.buffers()]
        return step, lambda g: dt.randn(4, 3, generator=g).cuda(), state

    run = agrees(make, 20)
    assert len(run.graphs) > 1 and not run.eager, run.explain()


def test_what_leaves_as_memory_runs_eagerly():
    run = dt.compile(lambda x: x.cpu().numpy().sum() * x)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert run(dt.ones(3, device="cuda")).tolist() == [3.0] * 3
        assert run(dt.full((3,), 2.0, device="cuda")).tolist() == [12.0] * 3
    assert len(told) == 1 and run.eager


@pytest.mark.parametrize("fn", [
    lambda x: x[x > 0].sum(), lambda x: x.masked_select(x > 0).sum(), lambda x: (x > 0).nonzero(),
    lambda x: dt.where(x > 0)[0], lambda x: x.round().unique(),
    lambda x: (x[0] > 0).long().bincount(), lambda x: nn.utils.get_total_norm([x], 3.0) * x,
])  # fmt: skip
def test_sizes_that_depend_on_numbers_are_noticed(fn):
    """What a mask holds is not taken for what it always holds."""
    run = dt.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(5):
            x = dt.randn(4, 3, generator=dt.Generator().manual_seed(i)).cuda()
            assert run(x).tolist() == fn(x).tolist()
