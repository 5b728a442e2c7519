"""Functions that look at what they compute: each way that a call takes is a capture of its own."""

from __future__ import annotations

import functools
import math
import warnings

import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain import nn
from disttrain.compile import capture
from disttrain.errors import CaptureError
from disttrain_launcher import launch
from support.agree import check, difference
from support.cases import steps

PARTS, EACH, CALLS = 8, 40, 10


def parts(source: str) -> str | None:
    """Where the compiled step of a program and the eager one part, if they do."""
    return difference(steps.maker(source), CALLS)


@pytest.mark.parametrize("part", range(PARTS))
def test_steps_with_branches_are_eager_steps(part):
    for seed in range(part * EACH, (part + 1) * EACH):
        pieces, end = steps.draw(seed, steps.PATHS)
        if parts(steps.program(pieces, end)) is not None:
            small = steps.shrunk(pieces, end, lambda s: parts(s) is not None)
            pytest.fail(f"seed {seed}\n{small}\n{parts(small)}")


def test_a_way_is_captured_once_and_taken_again():
    run = dt.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    found = [run(dt.full((2,), float(v))).tolist()[0] for v in (1, -1, 2, -3, 4)]
    assert found == [2.0, -2.0, 4.0, -4.0, 8.0]
    assert len(run.graphs) == 2 and "question(%2, seen=True at" in str(run.graphs[0])


def test_each_number_of_turns_is_a_path():
    def root(x):
        y = x.clone()
        while (y * y - x).abs().max() > 1e-3:
            y = (y + x / y) * 0.5
        return y

    run = dt.compile(root)
    for v in (2.0, 9.0, 100.0, 3.0, 100.0, 2.0):
        assert run(dt.full((2,), v)).tolist() == root(dt.full((2,), v)).tolist()
    assert len(run.graphs) == len({len(g.instructions) for g in run.graphs}) > 1


def test_what_came_before_the_question_is_undone():
    def make():
        seen, gen = dt.zeros(3), dt.Generator().manual_seed(3)
        norm = nn.BatchNorm1d(3)
        counts = dt.zeros(2, dtype=dt.int64)

        def step(x):
            counts[1:].add_(1)
            h = norm(x) + dt.rand(3, generator=gen)
            seen.add_(h.detach().sum(0))
            if seen.sum() > 14:
                seen.zero_()
                return h * dt.rand(3)
            return h

        def between(i, run):
            return run(dt.randn(4, 3, generator=dt.Generator().manual_seed(i % 7)))

        return step, between, lambda: [seen, gen.get_state(), counts, *norm.buffers()]

    assert len(check(make, 20, warns=False).graphs) == 2


def test_an_error_on_another_path_comes_as_eagerly():
    w, seen = dt.ones(3), dt.zeros(1)

    def step(x, at):
        seen.add_(1)
        h = w[at] * x
        if h.sum() > 2:
            raise ValueError(f"after {seen.item()} calls")
        return h

    run = dt.compile(step)
    for _ in range(3):
        run(dt.ones(1), dt.tensor([0]))
    for count in (4, 5):
        with pytest.raises(ValueError, match=f"after {count}.0 calls"):
            run(dt.full((1,), 3.0), dt.tensor([0]))
    with pytest.raises(Exception, match="out of range"):
        run(dt.ones(1), dt.tensor([7]))
    assert seen.item() == 6.0 and run(dt.ones(1), dt.tensor([0])).item() == 1.0


def test_a_training_step_that_reads_its_loss():
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
        optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            if not dt.isfinite(loss):
                return {"loss": loss.item(), "skipped": True}
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if norm.item() > 50:
                return {"loss": loss.item(), "skipped": True}
            optimizer.step()
            if math.isnan(float(loss)):
                raise ValueError("nan")
            return {"loss": loss.item(), "norm": float(norm), "skipped": False}

        def between(i, run):
            gen = dt.Generator().manual_seed(i)
            x = dt.randn(4, 3, generator=gen)
            scale = {5: float("inf"), 7: 1e4, 9: float("nan")}.get(i, 1.0)
            return run(x, dt.randn(4, 1, generator=gen) * scale)

        state = [*model.parameters(), *model.buffers()]
        return step, between, lambda: [*state, optimizer.state_dict()]

    run = check(make, 14, warns=False)
    assert "0 eager" in run.explain()
    texts = [str(g) for g in run.graphs]
    # all is asked before anything of the update is done
    assert all(t.index("seen=isnan") < t.index("adam_step") for t in texts if "adam_step" in t)


def test_grad_scaler_steps_are_replayed():
    def make():
        model = nn.Linear(3, 1)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
        scaler = dt.amp.GradScaler("cpu", init_scale=4.0)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.break_off()
            return loss.item()

        def between(i, run):
            x = dt.randn(4, 3, generator=dt.Generator().manual_seed(i))
            return run(x * float("inf") if i == 6 else x)

        return step, between, lambda: [*model.parameters()]

    assert "0 eager" in check(make, 10, warns=False).explain()


def test_a_path_that_cannot_be_replayed_leaves_the_others(capsys):
    def step(x):
        if x.sum() > 3:
            print("large", end="")
        return x * 2

    run = dt.compile(step)
    run(dt.ones(2)), run(dt.ones(2))
    with pytest.warns(UserWarning, match="one of its paths: it calls print"):
        for _ in range(5):
            run(dt.full((2,), 5.0))
    run(dt.ones(2))
    assert capsys.readouterr().out == "large" * 5
    assert len(run.graphs) == 1 and "that path runs eagerly" in run.explain()


def test_numbers_that_never_repeat_are_given_up_with_their_line():
    run = dt.compile(lambda x: x * x.sum().item())
    with pytest.warns(UserWarning, match=r"test_questions\.py:\d+.* was another one in 5 calls"):
        for i in range(9):
            assert run(dt.full((2,), float(i))).tolist() == [2.0 * i * i] * 2
    assert not run.graphs


def test_large_writes_before_a_question_are_named():
    big = dt.zeros(5_000_000)

    def step(x):
        big.add_(1)
        return x * 2 if big.sum() > 3 else x

    run = dt.compile(step)
    with pytest.warns(UserWarning, match="19 MB were written to"):
        for _ in range(9):
            run(dt.ones(1))
    assert big[0].item() == 9.0


def test_gradients_lead_back_through_the_path_that_was_taken():
    def make():
        w = dt.full((3,), 0.5, requires_grad=True)

        def between(i, run):
            x = dt.full((3,), float(i - 3), requires_grad=True)
            out = run(x)
            out.sum().backward()
            first = dt.autograd.grad(run(x).sum(), x, create_graph=True)[0]
            return out, x.grad, first

        return lambda x: (x * w).square() if x.sum() > 0 else x * w * 3, between, lambda: [w]

    assert len(check(make, 8, warns=False).graphs) >= 2


def test_fullgraph_and_backends_of_ones_own_ask_nothing():
    def fn(x):
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match="is read at"):
        capture(fn)(dt.ones(2))
    with pytest.raises(CaptureError, match="fullgraph=True would run eagerly"):
        dt.compile(fn, fullgraph=True)(dt.ones(2))
    run = dt.compile(fn, backend=lambda graph, inputs: graph.run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [run(dt.full((1,), v)).item() for v in (1.0, -1.0, 2.0)] == [2.0, -1.0, 4.0]


def test_a_graph_of_a_path_says_that_a_call_takes_another():
    run = dt.compile(lambda x: x * 2 if x.sum() > 0 else x)
    run(dt.ones(2))
    assert run.graphs[0].run(dt.ones(2))[0].tolist() == [2.0, 2.0]
    with pytest.raises(CaptureError, match="another path"):
        run.graphs[0].run(-dt.ones(2))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return {"sum": self.linear(x).sum().item(), "x": x * 2}

    def plain(self, x):
        return [x.sum().item()]


def wrapped(fn):
    @functools.wraps(fn)
    def inner(x):
        return 1 if fn(x) > 3 else 2

    return inner


def table(x):
    out = {"of": 2}
    steps = []
    out["sum"] = x.sum().item()
    for v in x:
        steps.append(v.item())
    out["of"] = 3
    return out, steps


def looked_at(x):
    steps = []
    for v in x:
        steps.append(v.item())
    return x * max(steps)


READER = Reader()
QUIET = dt.no_grad()(lambda x: x.sum().item())
TOTAL = dt.compile(lambda t: t.sum().item())
FUNCTIONS = {
    "a module": Reader(),
    "a method": Reader().plain,
    "a partial method": functools.partial(Reader().plain),
    "in a mode": QUIET,
    "a module's forward inside": lambda x: x * 2 if READER(x)["sum"] > 0.1 else x,
    "compiled inside": lambda x: x * 2 if TOTAL(x) > 3 else x,
    "in a mode inside": lambda x: x * (QUIET(x) > 3),
    "wrapped": wrapped(lambda x: x.sum().item()),
    "reduced": lambda x: functools.reduce(lambda a, b: (b * a).sum().item(), [x, x, x]),
    "a reduction": functools.partial(functools.reduce, lambda a, b: (b * a).sum().item()),
    "sorted": lambda x: x * sorted([x, -x], key=dt.sum)[0].sum().item(),
    "sorted by numbers": lambda x: sorted([x, 3 - x], key=lambda t: t.sum().item())[0] * 2,
    "an own list": lambda x: [v.item() for v in x],
    "a float of an integer": lambda x: float((x * 1000).long().sum()),
    "an integer": lambda x: ((x * 1000).long().sum().item(), 2000),
    "a small integer": lambda x: ((x.long().sum().item(), 2), 4),
    "a table": table,
    "a table that is looked at": lambda x: looked_at(x),
    "a number kept": lambda x, kept=[0]: (kept.append(x.sum().item()), kept.pop())[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_come_back_to_the_program_are_no_results(name):
    def between(i, run):
        x = dt.full((2,), (1.0, 2.0, 5.0)[i % 3] + i // 6)
        return run([x, dt.ones(2), dt.ones(2)] if name == "a reduction" else x)

    run = check(lambda: (FUNCTIONS[name], between, lambda: None), 12)
    captured = ("a module", "a method", "a partial method", "in a mode", "an integer", "a table")
    run = getattr(run, "forward", run)
    assert name not in captured or ("0 eager" in run.explain() and len(run.graphs) == 1)


def _read_under_ddp() -> tuple:
    """What a step under DDP gives that reads its loss, and what it says."""
    dist.init_process_group()
    found = []
    for compiled in (False, True):
        dt.manual_seed(0)
        model = dist.DistributedDataParallel(nn.Linear(4, 1))
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            if loss.item() < 9:
                optimizer.step()
            return loss.item()

        run = dt.compile(step) if compiled else step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append([run(dt.full((2, 4), float(i % 4 + dist.get_rank()))) for i in range(9)])
    return *found, run.explain()


def test_what_other_ranks_have_seen_is_not_undone():
    for eager, compiled, said in launch(_read_under_ddp, 2):
        assert eager == compiled and "after work with other ranks" in said
