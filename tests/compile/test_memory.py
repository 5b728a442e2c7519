"""Memory under several names in compiled functions: what is read and written, what results are
views of, what guards hold; and what else must not be taken for something it is not."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.errors import AutogradError, CaptureError
from disttrain_launcher import launch
from support.agree import check


def calls(run, *args, n=3):
    return [run(*args) for _ in range(n)]


ALIASES = {
    "detach": lambda w: w.detach(),
    "data": lambda w: w.data,
    "a view": lambda w: w[:],
    "a view of data": lambda w: w.data.view(2, 3).t().t(),
    "a slice of detach": lambda w: w.detach()[1:],
    "another type": lambda w: w.detach().view(dt.int32).view(dt.float32),
    "strides": lambda w: w.data.as_strided((2, 2), (3, 1), 1),
    "a row": lambda w: w.data.unbind(0)[1],
}


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize("given", ["outside", "argument"])
def test_writes_through_another_name_arrive_in_every_call(name, given):
    alias = ALIASES[name]

    def make():
        w = nn.Parameter(dt.arange(6.0).view(2, 3))
        pool = [w]

        def step(*args):
            with dt.no_grad():
                alias(args[0] if args else w).mul_(0.5).add_(1)
            return (args[0] if args else w).data.sum()

        def between(i, step):
            if given == "argument":
                pool.append(dt.ones(2, 3) * i)
                return step(pool[-1])
            if i == 2:
                w.data = dt.ones(2, 3)
            return step()

        return step, between, lambda: pool

    step = check(make)
    assert not step.eager or (name, given) == ("strides", "argument"), step.explain()


def test_averages_of_weights_momentum_encoders_centres_and_codebooks():
    def make():
        p, q, code = nn.Linear(3, 3), nn.Linear(3, 3), dt.randn(4, 3)
        q.register_buffer("centre", dt.zeros(3))

        def step(x):
            for a, b in zip(q.parameters(), p.parameters(), strict=True):
                a.data.mul_(0.99).add_(b.data, alpha=0.01)
            for a, b in zip(q.state_dict().values(), p.state_dict().values(), strict=False):
                a.lerp_(b, 0.1)
            q.centre.data.mul_(0.9).add_(x.mean(0) * 0.1)
            near = (x.unsqueeze(1) - code).square().sum(2).argmin(1)
            code.data.index_add_(0, near, (x - code[near]).detach() * 0.1)
            p.bias.data.copy_(x[0])
            code.div_(code.detach().abs().sum() + 1)
            return q(x), q.weight.data, code.detach()

        x = dt.randn(5, 3)
        return (
            step, lambda i, step: step(x * (i + 1)),
            lambda: [*p.parameters(), *q.state_dict().values(), code],
        )  # fmt: skip

    assert not check(make, warns=False).eager


def test_results_are_what_they_are_eagerly():
    """The same memory as today's, and one count of writes with it or a count of their own."""
    w = nn.Parameter(dt.ones(2, 3))
    run = dt.compile(lambda: (w.data, w.detach(), w.data[0], w.detach().view(dt.int32)))
    for _ in range(3):
        data, detached, row, other = run()
    version = w._version
    data.add_(1), row.add_(1)
    assert w._version == version and w.tolist() == [[3.0] * 3, [2.0] * 3]
    detached.zero_(), other.add_(1)
    assert w._version == version + 2
    w.data = dt.zeros(2, 3)
    assert run()[0].tolist() == [[0.0] * 3] * 2 and run()[0].data_ptr() == w.data_ptr()


def test_versions_rise_as_they_do_eagerly():
    w, v = nn.Parameter(dt.ones(3)), nn.Parameter(dt.ones(3))

    def step():
        w.data.add_(1)
        with dt.no_grad():
            v.detach().add_(1)

    run = dt.compile(step)
    run()
    for _ in range(2):
        before = w._version, v._version
        run()
        assert w._version == before[0] and v._version == before[1] + 1


def test_an_argument_that_becomes_another_name_of_memory_in_reach():
    w, x = dt.ones(3), dt.full((3,), 5.0)

    def fn(a):
        w.add_(1)
        a.mul_(2)
        return w + a

    run = dt.compile(fn)
    for a in (x, x, w.data, x, w[:], w, x, w.detach()):
        then = w.clone()
        known = a.clone() if a is x else None
        found = run(a)
        assert found.tolist() == (
            (then + 1 + known * 2) if a is x else (then + 1) * 4
        ).tolist()  # fmt: skip
    assert not run.eager


def test_arguments_that_overlap_are_another_kind_of_call():
    def fn(a, b):
        a.add_(1)
        return b * 2

    run, base = dt.compile(fn), dt.zeros(6)
    pairs = [(0, 3), (0, 3), (0, 2), (0, 2), (1, 2), (0, 3), (0, 0)]
    for i, j in pairs:
        base.zero_()
        found = run(base[i : i + 3], base[j : j + 3])
        wanted = base[j : j + 3] * 2
        assert found.tolist() == wanted.tolist()


def test_two_parameters_over_one_memory_have_gradients_of_their_own():
    a = nn.Parameter(dt.ones(3))
    b = nn.Parameter(a.data)

    def step():
        (a * 3 + b * 2).sum().backward()

    run = dt.compile(step)
    for _ in range(3):
        a.grad = b.grad = None
        run()
        assert a.grad.tolist() == [3.0] * 3 and b.grad.tolist() == [2.0] * 3


def test_one_gradient_of_two_leaves():
    def make():
        a, b = nn.Parameter(dt.ones(3)), nn.Parameter(dt.ones(3))

        def step():
            (a * 3 + b * 2).sum().backward()
            return a.grad.detach().data

        def between(i, step):
            if i == 1:
                a.grad = b.grad
            if i == 3:
                b.grad = dt.zeros(3)
            return step()

        return step, between, lambda: [a, b, a.grad, b.grad]

    check(make, calls=6)


def test_results_of_functions_that_keep_them():
    @functools.lru_cache
    def buffer():
        return dt.zeros(3)

    def fn(x):
        buffer().add_(x)
        return buffer().sum()

    run = dt.compile(fn)
    assert [r.item() for r in calls(run, dt.ones(3), n=4)] == [3, 6, 9, 12]
    buffer.cache_clear()
    assert [r.item() for r in calls(run, dt.ones(3))] == [3, 6, 9]


def test_memory_of_numpy_arrays_is_not_written_to_by_replays():
    n = np.ones(3, np.float32)

    def fn():
        dt.from_numpy(n).add_(1)
        return dt.from_numpy(n)

    with pytest.warns(UserWarning, match="runs eagerly"):
        run = dt.compile(fn)
        found = [run().tolist() for _ in range(4)]
    assert found == [[i + 2.0] * 3 for i in range(4)] and n.tolist() == [5.0] * 3


def test_second_derivatives_know_what_was_detached():
    w, x = dt.ones(3, requires_grad=True), dt.full((3,), 2.0)

    def fn():
        with dt.no_grad():
            scale = w.sum()
        return (w * w.detach() * x + w * w * scale).sum()

    run = dt.compile(fn)
    for _ in range(3):
        (g,) = dt.autograd.grad(run(), [w], create_graph=True)
        (h,) = dt.autograd.grad(g.sum(), [w])
        assert g.tolist() == [8.0] * 3 and h.tolist() == [6.0] * 3


def test_a_value_that_is_overwritten_before_backward_is_refused_as_eagerly():
    def fn(x, w):
        y = (x * w).sum()
        with dt.no_grad():
            x.detach().add_(1)
        return y

    with pytest.warns(UserWarning, match="overwrites a value"):
        run = dt.compile(fn)
        for _ in range(3):
            y = run(dt.ones(3), dt.ones(3, requires_grad=True))
            with pytest.raises(AutogradError, match="changed in-place"):
                y.backward()


# --- not memory ------------------------------------------------------------------------------
def test_hooks_that_come_later_run_where_the_function_differentiates():
    w, x = dt.full((3,), 2.0, requires_grad=True), dt.ones(3)

    def fn(x):
        (g,) = dt.autograd.grad((w**2 * x).sum(), [w], create_graph=True)
        return g

    run = dt.compile(fn)
    assert [r.tolist() for r in calls(run, x)] == [[4.0] * 3] * 3
    hook = w.register_hook(lambda g: g * 10)
    assert [r.tolist() for r in calls(run, x)] == [[40.0] * 3] * 3
    hook.remove()
    assert [r.tolist() for r in calls(run, x)] == [[4.0] * 3] * 3


def test_hooks_on_arguments_are_another_kind_of_call():
    def fn(x):
        (x * 2).sum().backward()

    run, seen = dt.compile(fn), []
    plain, hooked = (dt.ones(3, requires_grad=True) for _ in range(2))
    hooked.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.sum().item()))
    calls(run, plain)
    with pytest.warns(UserWarning, match="runs eagerly"):
        calls(run, hooked, n=5)
    assert seen == [6.0, 12.0, 18.0, 24.0, 30.0]


def test_a_tensor_that_stops_requiring_grad_raises_as_eagerly():
    w, u = (dt.ones(3, requires_grad=True) for _ in range(2))
    run = dt.compile(lambda: dt.autograd.grad((w * w).sum(), [w, u], allow_unused=True)[1])
    assert calls(run) == [None] * 3
    u.requires_grad_(False)
    with pytest.raises(AutogradError, match="does not require grad"):
        run()


def test_expanded_memory_is_filled_as_eagerly():
    for write in (lambda y: y.fill_(3), lambda y: y.zero_(), lambda y: y.t().fill_(2)):
        twins = [dt.ones(1, 3).expand(4, 3) for _ in range(2)]
        run = dt.compile(write)
        for _ in range(3):
            write(twins[0]), run(twins[1])
            assert twins[0].tolist() == twins[1].tolist()


def test_fullgraph_raises_where_it_would_run_eagerly():
    def fn(x):
        return x * 2 if bool(x.sum() > 0) else x

    run = dt.compile(fn, fullgraph=True)
    for _ in range(3):
        with pytest.raises(CaptureError, match=r"fullgraph=True would run eagerly.*is read at"):
            run(dt.ones(3))
    assert dt.compile(lambda x: x * 2, fullgraph=True)(dt.ones(1)).item() == 2
    with pytest.raises(CaptureError, match="numpy array of"):
        dt.compile(lambda n: n.sum(), fullgraph=True)(np.zeros(10_000))


def test_backends_are_known_by_name():
    with pytest.raises(CaptureError, match="Invalid backend: 'bogus'"):
        dt.compile(lambda x: x, backend="bogus")
    for name in ("inductor", "eager", "aot_eager"):
        assert dt.compile(lambda x: x + 1, backend=name)(dt.ones(1)).item() == 2


def test_a_module_is_compiled_beside_itself():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    quick, slow = dt.compile(model), dt.compile(model, mode="default", fullgraph=True)
    assert quick is not model and "forward" not in model.__dict__
    assert quick.forward is not slow.forward and slow.forward.settings.fullgraph
    assert dt.compile(quick)._orig_mod is model
    quick.eval()
    assert not model.training and not slow.training and not model[1].training
    model.extra = nn.Linear(3, 3)
    assert quick.extra is model.extra and [*quick.state_dict()] == [*model.state_dict()]
    x = dt.randn(2, 3)
    assert calls(quick, x)[2].tolist() == model(x).tolist() and not model.__dict__.get("forward")
    for twin in (copy.deepcopy(quick), pickle.loads(pickle.dumps(quick))):
        with dt.no_grad():
            twin[0].weight.zero_()
        assert twin(x).tolist() != model(x).tolist() and twin._orig_mod[0] is twin[0]


def test_a_lazy_module_becomes_what_it_is_under_both_names():
    lazy = nn.LazyLinear(4)
    run = dt.compile(lazy)
    assert calls(run, dt.ones(2, 3))[2].shape == (2, 4)
    assert type(lazy) is nn.Linear and isinstance(run, nn.Linear) and run._orig_mod is lazy


def _steps_under_ddp() -> tuple:
    """What a compiled step under DDP says, one with what is not captured, and the module compiled
    inside of it."""
    dist.init_process_group()
    model = dist.DistributedDataParallel(nn.Linear(8, 1))

    def step(x):
        model(x).sum().backward()

    def weighted(x):
        with model.weight(2):
            step(x)

    run, other = dt.compile(step), dt.compile(weighted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls(run, dt.ones(2, 8))
        calls(other, dt.ones(2, 8))
    plain = nn.Linear(8, 1)
    inside = dist.DistributedDataParallel(dt.compile(plain))
    for _ in range(3):
        inside(dt.ones(2, 8)).sum().backward()
    said = run.explain(), other.explain(), inside.module.forward.explain()
    return *said, plain.weight.grad.tolist()


def test_a_step_under_ddp_says_so_and_its_module_can_be_compiled():
    step, said, inside, grad = launch(_steps_under_ddp, 2)[0]
    assert "0 eager" in step
    assert "DistributedDataParallel (DDP)" in said and "is read at" not in said
    assert "0 eager" in inside and grad == [[6.0] * 8]
