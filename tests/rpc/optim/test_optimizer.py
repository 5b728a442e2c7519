"""One optimizer per owner, driven as one: the numbers of one process, and what goes wrong."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import disttrain as dt
from disttrain import context, optim, rpc
from disttrain.distributed.optim import DistributedOptimizer
from disttrain.errors import AutogradError, ConfigError, PeerFailed
from disttrain.rpc import autograd as dist_autograd
from support.ranks import fork_ranks
from support.workers import run_workers, simulate_workers

OWNERS = ("worker1", "worker2", "worker0", "worker1")


def parameter(k):
    """The k-th parameter of the model."""
    gen = dt.Generator()
    gen.manual_seed(k)
    return dt.nn.Parameter(dt.randn(3, 3, generator=gen, dtype=dt.float64))


def apply_(rref, x):
    return dt.tanh(x @ rref.local_value())


def value(rref):
    return rref.local_value().detach().clone()


def grad(rref):
    g = rref.local_value().grad
    return None if g is None else g.clone()


def inputs(step):
    gen = dt.Generator()
    gen.manual_seed(100 + step)
    return dt.randn(2, 3, generator=gen, dtype=dt.float64)


def remote_params(owners=OWNERS):
    return [rpc.remote(owner, parameter, (k,)) for k, owner in enumerate(owners)]


def remote_loss(rrefs, x):
    for rref in rrefs:
        x = rpc.rpc_sync(rref.owner(), apply_, (rref, x))
    return (x * x).sum() * 10


def local_loss(params, x):
    for p in params:
        x = dt.tanh(x @ p)
    return (x * x).sum() * 10


def values(rrefs):
    return [rpc.rpc_sync(r.owner(), value, (r,)) for r in rrefs]


def same(a, b):
    return all(dt.equal(x, y) for x, y in zip(a, b, strict=True)) and len(a) == len(b)


def on_driver(body, tmp_path, workers=3):
    """The result of ``body()`` on worker 0."""
    return run_workers(workers, lambda rank: body() if rank == 0 else None, tmp_path)[0]


def simulated(body, seed=0, workers=3):
    """The same, on simulated workers."""
    return simulate_workers(workers, lambda rank: body() if rank == 0 else None, seed)[0]


class Failing(optim.Optimizer):
    def __init__(self, params, where=()):
        if rpc.get_worker_info().name in where:
            raise ValueError("Error creating optimizer.")
        super().__init__(params, {})

    def step(self, closure=None):
        if rpc.get_worker_info().name != "worker0":
            raise ValueError("Error running optimizer.")


class Own:
    """An optimizer that derives from nothing."""

    def __init__(self, params, lr):
        self.param_groups = [{"params": list(params), "lr": lr, "fn": len}]

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.sub_(group["lr"] * p.grad)


KINDS = [
    (optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.Adam, {"lr": 0.01}),
    (optim.AdamW, {"lr": 0.01}), (optim.Adagrad, {"lr": 0.1}), (optim.RMSprop, {"lr": 0.01}),
    (optim.Adadelta, {}), (optim.Rprop, {}), (optim.Adamax, {}), (Own, {"lr": 0.1}),
]  # fmt: skip


def test_steps_are_those_of_one_process(tmp_path):
    def body():
        for kind, options in KINDS:
            rrefs, params = remote_params(), [parameter(k) for k in range(4)]
            ours, local = DistributedOptimizer(kind, rrefs, **options), kind(params, **options)
            assert len(ours.remote_optimizers) == 3
            for step in range(3):
                with dist_autograd.context() as context:
                    dist_autograd.backward(context, [remote_loss(rrefs, inputs(step))])
                    assert ours.step(context) is None
                for p in params:
                    p.grad = None
                local_loss(params, inputs(step)).backward()
                local.step()
            assert same(values(rrefs), [p.detach() for p in params]), kind
            assert [rpc.rpc_sync(r.owner(), grad, (r,)) for r in rrefs] == [None] * 4
        return True

    assert on_driver(body, tmp_path)


@pytest.mark.simulated
def test_groups_schedules_clipping_and_state():
    def groups(params):
        return [{"params": params[:3], "lr": 0.2}, {"params": params[3:], "weight_decay": 0.1}]

    def train(ours, make_loss, before_step):
        schedule = optim.lr_scheduler.StepLR(ours, 2, 0.5)
        norms = []
        for step in range(5):
            norms.append(
                before_step(make_loss(inputs(step)), (1.0, 2.0, 3.5, float("inf"))[step % 4])
            )
            schedule.step()
        return norms

    def body():
        rrefs, params = remote_params(), [parameter(k) for k in range(4)]
        ours = DistributedOptimizer(optim.Adam, groups(rrefs), lr=0.05)
        local = optim.Adam(groups(params), lr=0.05)

        def remote_step(x, norm_type):
            with dist_autograd.context() as context:
                dist_autograd.backward(context, [remote_loss(rrefs, x)])
                norm = ours.clip_grad_norm_(context, 0.5, norm_type)
                ours.step(context)
                return norm

        def local_step(x, norm_type):
            local.zero_grad()
            local_loss(params, x).backward()
            norm = dt.nn.utils.clip_grad_norm_(params, 0.5, norm_type)
            local.step()
            return norm

        assert same(train(ours, lambda x: x, remote_step), train(local, lambda x: x, local_step))
        assert same(values(rrefs), [p.detach() for p in params])
        saved, wanted = ours.state_dict(), local.state_dict()
        assert saved["param_groups"] == wanted["param_groups"]
        for k, state in wanted["state"].items():
            assert list(saved["state"][k]) == list(state)
            assert same(list(saved["state"][k].values()), list(state.values()))
        # and on from there, over other owners, with the state of the optimizer of one process
        owners = ("worker2", "worker0", "worker0", "worker2")
        pairs = zip(owners, params, strict=True)
        moved = [rpc.remote(o, dt.nn.Parameter, (p.detach(),)) for o, p in pairs]
        other = DistributedOptimizer(optim.Adam, groups(moved), lr=9.0)
        other.load_state_dict(wanted)
        assert [g["lr"] for g in other.param_groups] == [g["lr"] for g in local.param_groups]
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [remote_loss(moved, inputs(7))])
            other.step(context)
        local.zero_grad()
        local_loss(params, inputs(7)).backward()
        local.step()
        return same(values(moved), [p.detach() for p in params])

    assert simulated(body)


@pytest.mark.simulated
def test_groups_are_added_and_gradients_of_programs_dropped():
    def body():
        rrefs = remote_params(("worker1", "worker1", "worker2"))
        ours = DistributedOptimizer(optim.SGD, rrefs[:1], lr=0.5)
        ours.add_param_group({"params": rrefs[1:], "lr": 0.25})
        assert [r.owner_name() for r in ours.remote_optimizers] == ["worker1", "worker2"]
        assert [g["lr"] for g in ours.param_groups] == [0.5, 0.25]
        assert ours.param_groups[1]["momentum"] == 0
        before = values(rrefs)
        with dist_autograd.context() as context:
            loss = sum(
                rpc.rpc_sync(r.owner(), apply_, (r, dt.zeros(1, 3).double())).sum() for r in rrefs
            )
            dist_autograd.backward(context, [loss])
            ours.step(context)
            for r in rrefs:
                rpc.rpc_sync(r.owner(), backward_here, (r,))
            ours.zero_grad()
        assert [rpc.rpc_sync(r.owner(), grad, (r,)) for r in rrefs] == [None] * 3
        with pytest.raises(ConfigError, match="more than one parameter group"):
            ours.add_param_group({"params": rrefs[:1]})
        assert len(ours.param_groups) == 2
        return same(before, values(rrefs))  # of zeros

    assert simulated(body)


def backward_here(rref):
    rref.local_value().sum().backward()


def plus(rref, x):
    return (rref.local_value() * x).sum()


def test_contexts_of_several_threads_step_in_turn(tmp_path):
    def body():
        rrefs = remote_params(("worker1", "worker2"))
        before = values(rrefs)
        optimizers = [DistributedOptimizer(optim.SGD, rrefs, lr=0.25) for _ in range(4)]
        errors = []

        def train(ours):
            try:
                for _ in range(5):
                    with dist_autograd.context() as context:
                        x = dt.ones(3, 3, dtype=dt.float64)
                        loss = sum(rpc.rpc_sync(r.owner(), plus, (r, x)) for r in rrefs)
                        dist_autograd.backward(context, [loss])
                        ours.step(context)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=train, args=(o,)) for o in optimizers]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors, errors
        return all(dt.allclose(a - 5.0, b) for a, b in zip(before, values(rrefs), strict=True))

    assert on_driver(body, tmp_path)


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_two_trainers_in_any_order_of_messages(seed):
    def body():
        rrefs = remote_params(("worker1", "worker2", "worker0"))
        before, left, errors = values(rrefs), [2], []
        x = dt.ones(3, 3, dtype=dt.float64)

        def train():
            try:
                ours = DistributedOptimizer(optim.SGD, rrefs, lr=0.5)
                for _ in range(2):
                    with dist_autograd.context() as number:
                        loss = sum(rpc.rpc_sync(r.owner(), plus, (r, x)) for r in rrefs)
                        dist_autograd.backward(number, [loss])
                        assert ours.clip_grad_norm_(number, 100.0).item() == 27.0**0.5
                        ours.step(number)
            except BaseException as error:
                errors.append(error)
            left[0] -= 1

        for k in range(2):
            context.start_thread(train, f"trainer {k}")
        context.wait_until(lambda: not left[0], lambda: "both trainers")
        assert not errors, errors
        return all(dt.allclose(a - 2.0, b) for a, b in zip(before, values(rrefs), strict=True))

    assert simulated(body, seed)


@pytest.mark.simulated
def test_parameters_without_gradients_and_gradients_that_are_not_finite():
    def body():
        rrefs = remote_params(("worker1", "worker2"))
        ours = DistributedOptimizer(optim.SGD, rrefs, lr=1.0)
        rpc.rpc_sync("worker2", backward_here, (rrefs[1],))  # not a gradient of the context
        before = values(rrefs)
        with dist_autograd.context() as context:
            assert ours.clip_grad_norm_(context, 1.0).item() == 0.0
            x = dt.ones(3, 3, dtype=dt.float64)
            dist_autograd.backward(context, [rpc.rpc_sync("worker1", plus, (rrefs[0], x))])
            assert ours.clip_grad_norm_(context, 100.0).item() == 3.0
            ours.step(context)
            assert ours.clip_grad_norm_(context, 1.0, 0).item() == 1.0
        after = values(rrefs)
        assert dt.equal(after[0], before[0] - 1.0) and dt.equal(after[1], before[1])
        with dist_autograd.context() as context:
            x = dt.full((3, 3), float("inf"), dtype=dt.float64)
            dist_autograd.backward(context, [rpc.rpc_sync("worker1", plus, (rrefs[0], x))])
            with pytest.raises(
                AutogradError, match=r"total norm of order 2\.0 for gradients is inf"
            ):
                ours.clip_grad_norm_(context, 1.0, error_if_nonfinite=True)
            assert ours.clip_grad_norm_(context, 1.0).item() == float("inf")
        return rpc.rpc_sync("worker2", grad, (rrefs[1],)).tolist() == [[1.0] * 3] * 3

    assert simulated(body)


class OfThread(optim.SGD):
    """Steps on one thread alone: an optimizer that another thread drives has failed."""

    def __init__(self, params, thread):
        super().__init__(params, lr=0.1)
        self.thread = thread

    def step(self):
        if threading.get_ident() != self.thread:
            raise ValueError("another thread")
        super().step()
        if self.param_groups[0]["lr"] > 1:
            raise ValueError("too fast")


@pytest.mark.simulated
def test_the_own_step_is_made_by_the_thread_that_asks_for_it():
    def body():
        p = dt.nn.Parameter(dt.ones(2))
        ours = DistributedOptimizer(OfThread, [rpc.RRef(p)], thread=threading.get_ident())
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [p.sum()])
            ours.step(context)
            assert p.tolist() == pytest.approx([0.9, 0.9])
            ours.param_groups[0]["lr"] = 2.0
            told = (
                r"(?s)failed at 1 of 1 owners. worker0: ValueError: On WorkerInfo\(id=0, .*too fast"
            )
            with pytest.raises(ValueError, match=told):
                ours.step(context)
        return True

    assert simulated(body)


@pytest.mark.simulated
def test_errors_of_owners_are_told_together():
    def body():
        rrefs = remote_params()
        with pytest.raises(
            ValueError, match=r"(?s)worker2: ValueError: .*Error creating optimizer"
        ) as e:
            DistributedOptimizer(Failing, rrefs, where=("worker2",))
        assert e.value.done == ["worker1", "worker0"]
        ours = DistributedOptimizer(Failing, rrefs)
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [remote_loss(rrefs, inputs(0))])
            with pytest.raises(ValueError, match=r"failed at 2 of 3 owners; done at worker0") as e:
                ours.step(context)
            assert isinstance(e.value, ExceptionGroup) and list(e.value.failed) == [
                "worker1",
                "worker2",
            ]
            with pytest.raises(
                TypeError, match="a function was given; needed is the id of a context"
            ):
                ours.step(lambda: 0)
        with pytest.raises(RuntimeError, match="Could not find autograd context with id"):
            ours.step(context)
        with pytest.raises(TypeError, match="needed are RRefs"):
            DistributedOptimizer(optim.SGD, [dt.nn.Parameter(dt.ones(1))], lr=0.1)
        with pytest.raises(TypeError, match="one RRef was given"):
            DistributedOptimizer(optim.SGD, rrefs[0], lr=0.1)
        with pytest.raises(ConfigError, match="needed is a class"):
            DistributedOptimizer("SGD", rrefs, lr=0.1)
        with pytest.raises(ValueError, match="Invalid learning rate"):
            DistributedOptimizer(optim.SGD, rrefs, lr=-1.0)
        assert DistributedOptimizer(optim.SGD, [], lr=0.1).remote_optimizers == []
        return True

    assert simulated(body)


def test_an_owner_that_dies_is_told_with_what_the_others_did(tmp_path):
    def body(rank):
        if rank:
            return None
        rrefs = remote_params(("worker1", "worker2"))
        ours = DistributedOptimizer(optim.SGD, rrefs, lr=1.0)
        with dist_autograd.context() as context:
            x = dt.ones(3, 3, dtype=dt.float64)
            before = value_of(rrefs[0])
            dist_autograd.backward(context, [rpc.rpc_sync(r.owner(), plus, (r, x)) for r in rrefs])
            os.kill(rpc.rpc_sync("worker2", os.getpid), signal.SIGKILL)
            with pytest.raises(
                PeerFailed, match=r"failed at 1 of 2 owners; done at worker1\. worker2: "
            ) as e:
                ours.step(context)
        assert e.value.rank == 2 and dt.equal(value_of(rrefs[0]), before - 1.0)
        return True

    def value_of(rref):
        return rpc.rpc_sync(rref.owner(), value, (rref,))

    def start(rank):
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/meet")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3, rpc_backend_options=options)
        done = body(rank)
        if rank == 0:
            os.kill(rpc.rpc_sync("worker1", os.getpid), signal.SIGTERM)
        else:
            signal.pause()
        return done

    outcomes = fork_ranks(3, start)
    assert outcomes[0].value is True, outcomes[0].traceback
    assert outcomes[2].signal == signal.SIGKILL


def table(rref, rows):
    return rref.local_value()(rows)


def table_weight(rref):
    return rpc.RRef(rref.local_value().weight)


def table_grad_is_sparse(rref, context):
    g = dist_autograd.get_gradients(context)[rref.local_value().weight]
    return g.is_sparse, g._nnz()


def test_sparse_gradients_stay_sparse(tmp_path):
    def body():
        rref = rpc.remote("worker1", dt.nn.Embedding, (1000, 2), {"sparse": True})
        weight = rpc.rpc_sync("worker1", table_weight, (rref,))
        ours = DistributedOptimizer(optim.SGD, [weight], lr=1.0)
        before = rpc.rpc_sync("worker1", value, (weight,))
        with dist_autograd.context() as context:
            out = rpc.rpc_sync("worker1", table, (rref, dt.tensor([3, 7, 3])))
            dist_autograd.backward(context, [out.sum()])
            norm = ours.clip_grad_norm_(context, 1.0).item()
            sparse, few = rpc.rpc_sync("worker1", table_grad_is_sparse, (rref, context))
            ours.step(context)
        moved = (rpc.rpc_sync("worker1", value, (weight,)) - before).abs().sum(1)
        assert norm == pytest.approx(10.0**0.5) and sparse and few <= 3
        return moved.nonzero().reshape(-1).tolist()

    assert on_driver(body, tmp_path, 2) == [3, 7]
