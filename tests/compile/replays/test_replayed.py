"""Compiled functions of a device's tensors, on the double: the bits of eager runs, step by step."""

import copy
import gc

import pytest

import disttrain as dt
from disttrain import nn, optim

pytestmark = pytest.mark.usefixtures("double")
F = nn.functional
MODES = [None, "reduce-overhead"]


def trained(mode, compiled=True, steps=10, dropout=0.3, make=None, amp=False):
    """Losses, weights and gradients of a few steps with a schedule, clipping and dropout."""
    dt.manual_seed(0)
    layers = [nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(dropout), nn.Linear(8, 3)]
    model = nn.Sequential(*layers).cuda()
    params = list(model.parameters())
    optimizer = (make or (lambda p: optim.AdamW(p, lr=0.01)))(params)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def step(x, y):
        optimizer.zero_grad()
        with dt.autocast("cuda", dt.bfloat16, enabled=amp):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        return loss

    run = dt.compile(step, mode=mode) if compiled else step
    numbers = dt.Generator().manual_seed(3)
    losses = []
    for _ in range(steps):
        x, y = (dt.randn(4, n, generator=numbers).cuda() for n in (6, 3))
        losses.append(run(x, y))
        schedule.step()
    kept = [*losses, *params, *[p.grad for p in params]]
    return [t.detach().cpu().tolist() for t in kept], run


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_training_step_is_the_eager_one(mode, amp):
    steps = 10 if mode else 4
    got, run = trained(mode, amp=amp, steps=steps)
    assert got == trained(mode, compiled=False, amp=amp, steps=steps)[0]
    assert len(run.graphs) == 2 and not run.eager, run.explain()


@pytest.mark.parametrize("mode", MODES)
def test_other_names_of_memory(mode):
    """Averages of weights, a centre, an argument and parts of them, read and written as eagerly."""

    def trace(compiled):
        dt.manual_seed(0)
        p, q = nn.Linear(4, 3).cuda(), nn.Linear(4, 3).cuda()
        centre = dt.zeros(2, 4).cuda()

        def step(x):
            for a, b in zip(q.parameters(), p.state_dict().values(), strict=True):
                a.data.mul_(0.5).add_(b, alpha=0.5)
            centre.detach().view(8)[2:6].add_(1)
            x.detach().view(dt.int32)[0].bitwise_xor_(8)
            p.weight.data[1].mul_(p.weight.detach().sum())
            y = (p(x) * p.weight.detach().sum()).sum() + centre.data.sum()
            y.backward()
            return y.detach(), q.weight.data

        run = dt.compile(step, mode=mode) if compiled else step
        seen = []
        for i in range(6):
            x = dt.full((2, 4), float(i)).cuda()
            found = run(x)
            if i == 3:
                q.weight.data = dt.ones(3, 4).cuda()
            seen += [*found, x, centre, p.weight.grad, *p.parameters(), *q.parameters()]
            seen = [t.detach().cpu().tolist() if isinstance(t, dt.Tensor) else t for t in seen]
        assert not compiled or not run.eager, run.explain()
        return seen

    assert trace(True) == trace(False)


OPTIMIZERS = [
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: optim.AdamW([{"params": p[:2]}, {"params": p[2:], "lr": 0.1}], amsgrad=True),
    lambda p: optim.NAdam(p),
    lambda p: optim.RMSprop(p, centered=True),
    lambda p: optim.Adafactor(p),
]


@pytest.mark.parametrize("number", range(len(OPTIMIZERS)))
def test_optimizers(number):
    make = OPTIMIZERS[number]
    got, run = trained("reduce-overhead", steps=5, make=make)
    assert got == trained(None, compiled=False, steps=5, make=make)[0], run.explain()
    assert not run.eager, run.explain()


def close(step, x):
    return step(x).detach().cpu().tolist()


def players(run):
    return [entry.graph.program.player for entries in run.entries.values() for entry in entries]


def test_a_step_is_one_graph_and_the_updates(double):
    _, run = trained("reduce-overhead", steps=4, dropout=0.0)
    (player,) = [p for p in players(run) if p.parts]
    assert [part.recorded for part in player.parts] == [True, False] and not player.why
    assert {player.program.steps[i].prim.name for i in player.parts[1].steps} == {"adam_step"}
    assert player.shared.line.handle != double.default_stream(0).handle


def test_results_stay_and_memory_goes(double):
    gc.collect()
    before = double.memory_stats(0)["allocated"]
    run = dt.compile(lambda x: (x.sin() * 2, (x + 1).reshape(2, 2)[0]), mode="reduce-overhead")
    kept = [run(dt.full((4,), float(i), device="cuda")) for i in range(5)]
    for i, (a, b) in enumerate(kept):
        want = run.fn(dt.full((4,), float(i), device="cuda"))
        assert [a.tolist(), b.tolist()] == [t.tolist() for t in want]
    assert players(run)[0].recordings
    other = dt.compile(lambda x: x.cos() + x, mode="reduce-overhead")
    for i in range(4):
        other(dt.full((4,), float(i), device="cuda"))
    assert players(other)[0].shared is players(run)[0].shared
    run(dt.ones(3, 2, device="cuda").reshape(6)[:4])  # other strides are another capture, or none
    del run, other, kept, a, b, want
    gc.collect()
    assert double.memory_stats(0)["allocated"] == before


def test_other_shapes_and_other_memory():
    w = dt.ones(3, device="cuda")
    run = dt.compile(lambda x: (x * w).cumsum(0) + w.sum(), mode="reduce-overhead")
    for n in (3, 1, 3, 1, 3, 1, 3):
        x = dt.arange(3.0)[:n].cuda()
        assert close(run, x) == close(run.fn, x)
    w.data = dt.full((3,), 2.0, device="cuda")  # at another address
    for _ in range(4):
        assert close(run, x) == close(run.fn, x)
    w.add_(1)
    assert close(run, x) == close(run.fn, x)


def test_arguments_that_are_written_to():
    def step(a, b):
        a.mul_(2).add_(b)
        return a.sum()

    run = dt.compile(step, mode="reduce-overhead")
    one, two = dt.ones(3, device="cuda"), dt.ones(3, device="cuda")
    for i in range(5):
        b = dt.full((3,), float(i), device="cuda")
        assert run(one, b).item() == step(two, b).item()
    assert one.tolist() == two.tolist()
    for _ in range(3):  # one memory under two names: as the function has it
        assert run(one, one[:]).item() == step(two, two[:]).item()


def test_gradients_that_are_added_to():
    w, v = (dt.ones(3, device="cuda", requires_grad=True) for _ in range(2))
    run = dt.compile(lambda x: (w * x).sum().backward(), mode="reduce-overhead")
    for i in range(6):
        x = dt.full((3,), float(i), device="cuda")
        run(x)
        (v * x).sum().backward()
        assert w.grad.tolist() == v.grad.tolist()
        if i == 2:
            w.grad, v.grad = w.grad.clone(), v.grad.clone()  # elsewhere


def test_what_cannot_be_recorded_runs_between_graphs(double):
    def step(x):
        picked = dt.multinomial((x * x).abs(), 1)  # waits to look at the probabilities
        return picked + x.sin().sum() * 0, x.cos() * 3

    run = dt.compile(step, mode="reduce-overhead")
    x = dt.ones(4, device="cuda")
    run(x), run(x)
    with pytest.warns(UserWarning, match="multinomial cannot be part of a CUDA graph"):
        run(x)
    for seed in range(3):
        dt.manual_seed(seed)
        got = [t.tolist() for t in run(x)]
        dt.manual_seed(seed)
        assert got == [t.tolist() for t in step(x)]
    assert [p.recorded for p in players(run)[0].parts] == [True, False, True]


def test_an_error_while_recording_leaves_all_usable(double, monkeypatch):
    run = dt.compile(lambda x: (x * 2).sin() + 1, mode="reduce-overhead")
    x = dt.ones(3, device="cuda")
    run(x), run(x)
    with monkeypatch.context() as patch:
        patch.setattr(double, "graph", lambda *a: (_ for _ in ()).throw(MemoryError("none")))
        with pytest.raises(MemoryError):
            run(x)
    assert not double.capturing()
    for _ in range(3):
        assert close(run, x) == close(run.fn, x)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_module_and_its_backward(mode, around):
    dt.manual_seed(0)
    own = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.GELU(), nn.Linear(5, 2)).cuda()
    other = copy.deepcopy(own)
    run = dt.compile(own, mode=mode)
    for i in range(4):
        found = []
        for model in (run, other):
            dt.manual_seed(i)
            x = dt.ones(3, 4, device="cuda", requires_grad=True)
            with dt.autocast("cuda", dt.bfloat16, enabled=around):
                first = model(x)
                second = first if around else model(x * 2)  # two are alive at once
            (first.float().square().sum() + second.float().sum()).backward()
            found.append(
                [t.cpu().tolist() for t in (x.grad, *(p.grad for p in model.parameters()))]
            )
        assert found[0] == found[1]
    assert len(run.forward.graphs) > 0 and not run.forward.eager, run.forward.explain()


def test_names_of_modes():
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        dt.compile(len, mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        dt.compile(len, mode="default", options={})
    assert dt.compile(len, disable=True) is len
    assert dt.compile(lambda x: x, options={"triton.cudagraphs": True}).settings.recorded
    assert dt.compile(lambda x: x, backend="cudagraphs").settings.recorded


class Tiny(nn.Module):
    """A language model of one block, its embedding tied to its head."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(7, 8), nn.Embedding(5, 8)
        self.norm, self.into, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, at, wanted):
        x = self.words(at) + self.places(dt.arange(at.shape[1], device=at.device))
        parts = self.into(self.norm(x)).split(8, dim=2)
        q, k, v = (t.view(*t.shape[:2], 2, 4).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(x.shape)), 0.1)
        return F.cross_entropy(self.head(x).flatten(0, 1), wanted.flatten())


def test_a_language_models_step_in_half_precision():
    def run(mode):
        dt.manual_seed(0)
        model = Tiny().cuda()
        optimizer = optim.AdamW(model.parameters(), lr=0.01)

        def step(at, wanted):
            optimizer.zero_grad()
            with dt.autocast("cuda", dt.bfloat16):
                loss = model(at, wanted)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        call = step if mode is None else dt.compile(step, mode=mode)
        numbers, losses = dt.Generator().manual_seed(1), []
        for i in range(6):
            optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
            losses.append(call(*(dt.randint(0, 7, (2, 5), generator=numbers).cuda() for _ in "ab")))
        if mode is not None:
            used = [p for p in players(call) if p.parts]
            assert not call.eager and [[q.recorded for q in p.parts] for p in used] == [
                [True, False]
            ]
        return [t.tolist() for t in (*losses, *model.parameters())]

    assert run("reduce-overhead") == run(None)
