"""What is computed again so that less is held."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.compile.passes import EVERYWHERE, ORDER, SHARE, optimize, recomputing
from disttrain.compile.passes.liveness import Liveness
from disttrain.compile.passes.recomputation import Recompute


def block(width=16):
    dt.manual_seed(0)
    most = 4 * width
    body = [nn.LayerNorm(width), nn.Linear(width, most), nn.GELU(), nn.Linear(most, width)]
    return nn.Sequential(*[m for _ in range(4) for m in body])


def training(model, x):
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def of(budget, fn, *args):
    """The graph before and after, and the most that each holds."""
    graph = optimize(capture(fn)(*args).graph, EVERYWHERE)
    lean = Recompute(budget)(graph)
    return graph, lean, Liveness(lean).peak / Liveness(graph).peak


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def test_the_cheapest_comes_first_and_more_where_more_is_asked():
    step = training(block(), dt.ones(256, 16))
    step()
    graph, lean, share = of(0.8, step)
    assert share <= 0.8 and len(names(lean)) > len(names(graph))
    again = {n for n in set(names(lean)) if names(lean).count(n) > names(graph).count(n)}
    assert again <= {"gelu", "layer_norm"}
    _, least, lower = of(0.1, step)
    assert lower < share and names(least).count("linear") > names(graph).count("linear")


def test_a_whole_budget_changes_nothing():
    step = training(block(), dt.ones(8, 16))
    step()
    graph, lean, share = of(1.0, step)
    assert names(lean) == names(graph) and share == 1


@pytest.mark.parametrize("budget", [0.7, 0.0])
def test_training_has_eagers_bits(budget):
    losses = []
    for compiled in (False, True):
        step = training(block(), dt.ones(64, 16))
        if compiled:
            step = dt.compile(step, options={"activation_memory_budget": budget})
        losses.append([step().item() for _ in range(8)])
    assert losses[0] == losses[1]
    graph = step.graphs[-1]
    assert names(graph).count("linear") >= 8 and "as captured" in step.explain()


def test_what_was_written_to_since_is_not_computed_again():
    scale = dt.ones(64, 64)

    def fn(x):
        y = x * scale
        scale.add_(1.0)
        big = (x @ x) @ (x + 1)
        return (big @ y).sum()

    x = dt.ones(64, 64)
    graph, lean, _ = of(0.0, fn, x)
    assert names(lean).count("mul") == names(graph).count("mul") == 1


def test_views_are_made_anew_too():
    def fn(x):
        y = (x * 2).relu()
        shown = y[:32].T
        big = (x @ x) @ (x @ x)
        return (big.sum() + shown.sum() + (y + 1).sum(),)

    x = dt.arange(64.0 * 64).reshape(64, 64) / 4096
    graph, lean, share = of(0.0, fn, x)
    assert share < 1 and lean.run(x)[0].item() == graph.run(x)[0].item() == fn(x)[0].item()


def test_random_numbers_are_drawn_once():
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 16))
    found = []
    for options in (None, {"activation_memory_budget": 0.0}):
        dt.manual_seed(1)
        step = dt.compile(training(model, dt.ones(64, 16)), options=options)
        found.append([step().item() for _ in range(4)])
        model.load_state_dict({k: v * 0 + 0.1 for k, v in model.state_dict().items()})
    _, lean, _ = of(0.0, step.fn)
    assert sum(ins.prim.random for ins in lean.instructions) == 1


def test_passes_with_a_budget_are_equal_by_it():
    assert recomputing(0.5, ORDER) == recomputing(0.5, ORDER) != recomputing(0.6, ORDER)
    assert recomputing(0.5, ORDER)[-2:] == ORDER[-2:]


def test_what_is_light_is_computed_again_without_being_asked():
    step = training(block(128), dt.ones(256, 128))
    step()
    graph = optimize(capture(step)()[1], EVERYWHERE)
    lean = Recompute(SHARE, light=True)(graph)
    assert Liveness(lean).peak < 0.8 * Liveness(graph).peak
    assert names(lean).count("linear") == names(graph).count("linear")
    assert names(lean).count("gelu") > names(graph).count("gelu")
    assert Recompute(SHARE, light=True) in ORDER and Recompute(SHARE) not in ORDER
    assert not any(isinstance(each, Recompute) for each in recomputing(1.0, ORDER))


def test_what_is_small_or_within_a_kernel_is_not_of_use():
    step = training(block(), dt.ones(8, 16))
    step()
    graph = optimize(capture(step)()[1], EVERYWHERE)
    assert names(Recompute(SHARE, light=True)(graph)) == names(graph)
    w = dt.randn(1 << 16, requires_grad=True)

    def chain():
        w.grad = None
        ((w * 2 + 1).abs() * w).exp().sum().backward()

    chain()
    graph = optimize(capture(chain)()[1], EVERYWHERE)
    assert names(Recompute(0.1, light=True)(graph)) == names(graph)


def test_what_is_light_is_kept_where_it_is_much_of_the_work():
    x = dt.randn(256, 512, requires_grad=True)
    norm = nn.LayerNorm(512)

    def step():
        x.grad = None
        y = nn.functional.gelu(norm(x)) + x
        (y * y).mean().backward()

    step()
    graph = optimize(capture(step)()[1], EVERYWHERE)
    assert names(Recompute(0.3, light=True)(graph)) == names(graph)
    assert len(names(Recompute(0.3)(graph))) > len(names(graph))


def test_rows_of_an_embedding_are_taken_again_at_little_cost():
    table = nn.Embedding(50, 64)
    lines = dt.arange(400) % 50
    deep = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def step():
        table.zero_grad()
        deep.zero_grad()
        x = table(lines)
        loss = (x + deep(x)).square().sum()
        loss.backward()
        return loss

    step()
    graph = optimize(capture(step)()[1], EVERYWHERE)
    lean = Recompute(SHARE, light=True)(graph)
    assert names(lean).count("take") > names(graph).count("take") == 1
    assert Liveness(lean).peak < Liveness(graph).peak
