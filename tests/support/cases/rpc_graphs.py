"""Random graphs of tensors whose parts are computed by several workers, and their gradients.

    prepare(plan)          # on every worker, before it joins
    max(drive(plan))       # on every worker: its largest error

An expression is data: it refers to the tensors of its environment, to the parameters of the worker
that computes it, and to calls, whose arguments are the environment of their body. So the same
expression runs in one process, where it is differentiated by ``backward()``: ``expected``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import disttrain as dt
from disttrain import context, rpc
from disttrain.rpc import autograd as dist_autograd
from support.cases.rpc_programs import name, until

Expr = tuple
PARAMS = 2  # of each worker
SIDE = 3
BUDGET = (4, 8, 14, 24)
OPS: dict[str, Callable] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - 0.5 * b,
    "mul": lambda a, b: a * b,
    "matmul": lambda a, b: a @ b,
    "tanh": lambda a, b: dt.tanh(a) + dt.sin(b),
    "rows": lambda a, b: a.sum(0, keepdim=True) * b.t(),
}


@dataclass(frozen=True)
class Job:
    """One context: what is differentiated, and how often. ``beside``: in a thread of its own."""

    root: Expr
    backwards: int = 1
    beside: bool = False


@dataclass(frozen=True)
class Plan:
    """``jobs``: those of each of ``size`` workers."""

    seed: int
    size: int
    jobs: tuple[tuple[Job, ...], ...]


def draw(seed: int, sizes=(2, 2, 3, 4)) -> Plan:
    """A plan, the same for the same ``seed``."""
    rng = random.Random(seed)
    size = rng.choice(sizes)
    drivers = {0} if rng.random() < 0.5 else set(range(size))
    jobs = []
    for worker in range(size):
        count = rng.choice((1, 1, 2)) if worker in drivers else 0
        jobs.append(tuple(_job(rng, size) for _ in range(count)))
    return Plan(seed, size, tuple(jobs))


def _job(rng: random.Random, size: int) -> Job:
    root = _expr(rng, size, 1, [rng.choice(BUDGET)])
    return Job(root, rng.choice((1, 1, 2)), rng.random() < 0.3)


def _expr(rng: random.Random, size: int, known: int, budget: list[int]) -> Expr:
    """An expression over ``known`` tensors of its environment."""
    budget[0] -= 1
    if budget[0] <= 0 or rng.random() < 0.1:
        if rng.random() < 0.6:
            return "param", rng.randrange(PARAMS)
        return "var", rng.randrange(known)

    def part(more: int = 0) -> Expr:
        return _expr(rng, size, known + more, budget)

    kind = rng.choice(("op", "op", "let", "call", "call", "call", "unused", "ref", "apart"))
    if kind == "op":
        return "op", rng.choice(tuple(OPS)), part(), part()
    if kind == "let":
        return "let", part(), part(1)
    if kind == "apart":
        return "apart", part(), part()
    args = tuple(part() for _ in range(rng.choice((1, 1, 2))))
    if rng.random() < 0.3:
        args += args[:1]  # the same tensor twice, or the same expression
    bodies = tuple(_expr(rng, size, len(args), budget) for _ in range(rng.choice((1, 1, 2))))
    to = rng.randrange(size)
    if kind == "ref":
        return "ref", to, rng.randrange(size), args, bodies
    how = rng.choice(("sync", "async", "remote", "later"))
    call = "call", how, to, args, bodies, rng.randrange(len(bodies))
    return ("unused", call, part()) if kind == "unused" else call


# --- computing -----------------------------------------------------------------------------------


def weights(seed: int, worker: int) -> list[dt.Tensor]:
    """The parameters of a worker."""
    rng = random.Random(seed * 1000 + worker)
    made = []
    for _ in range(PARAMS):
        rows = [[rng.uniform(-1.0, 1.0) for _ in range(SIDE)] for _ in range(SIDE)]
        made.append(dt.tensor(rows, dtype=dt.float64, requires_grad=True))
    return made


class Here:
    """Computes an expression in one process, where calls are functions."""

    def __init__(self, all_weights: list[list[dt.Tensor]], worker: int) -> None:
        self.all, self.worker = all_weights, worker

    def params(self) -> list[dt.Tensor]:
        return self.all[self.worker]

    def call(self, how: str, to: int, args: list, bodies: tuple) -> list[dt.Tensor]:
        return compute_all(bodies, args, Here(self.all, to))

    def ref(self, to: int, via: int, args: list, bodies: tuple) -> dt.Tensor:
        return self.call("", to, args, bodies)[0] * 1.5


class There:
    """Computes an expression on the worker that it runs on, and others."""

    def params(self) -> list[dt.Tensor]:
        return context.current().slots["test.weights"]

    def call(self, how: str, to: int, args: list, bodies: tuple) -> list[dt.Tensor]:
        asked = name(to), serve_later if how == "later" else serve, (bodies, args)
        if how in ("sync", "later"):
            return rpc.rpc_sync(*asked)
        if how == "async":
            return rpc.rpc_async(*asked).wait()
        return rpc.remote(*asked).to_here()

    def ref(self, to: int, via: int, args: list, bodies: tuple) -> dt.Tensor:
        rref = rpc.remote(name(to), serve, (bodies, args))
        return rpc.rpc_sync(name(via), take, (rref,))


def serve(bodies: tuple, args: list) -> list[dt.Tensor]:
    return compute_all(bodies, args, There())


@rpc.functions.async_execution
def serve_later(bodies: tuple, args: list) -> Any:
    """The answer comes from a callback, by way of another worker."""
    me = rpc.get_worker_info()
    return rpc.rpc_async(me.id, serve, (bodies, args)).then(lambda f: f.value())


def take(rref: Any) -> dt.Tensor:
    results = rref.local_value() if rref.is_owner() else rref.to_here()
    return results[0] * 1.5


def compute_all(bodies: tuple, args: list, how: Any) -> list[dt.Tensor]:
    return [compute(body, list(args), how) for body in bodies]


def compute(e: Expr, env: list[dt.Tensor], how: Any) -> dt.Tensor:
    """The value of an expression; ``how``: a ``Here`` or a ``There``."""
    kind = e[0]
    if kind == "var":
        return env[e[1]]
    if kind == "param":
        return how.params()[e[1]]
    if kind == "op":
        return OPS[e[1]](compute(e[2], env, how), compute(e[3], env, how))
    if kind == "let":
        return compute(e[2], [*env, compute(e[1], env, how)], how)
    if kind == "apart":
        return compute(e[1], env, how).detach() + compute(e[2], env, how)
    if kind == "unused":
        compute(e[1], env, how)
        return compute(e[2], env, how)
    if kind == "ref":
        return how.ref(e[1], e[2], [compute(a, env, how) for a in e[3]], e[4])
    return how.call(e[1], e[2], [compute(a, env, how) for a in e[3]], e[4])[e[5]]


def loss_of(job: Job, how: Any) -> dt.Tensor:
    first = how.params()[0]
    return (compute(job.root, [first * 0.5], how) + first).sum()


def expected(plan: Plan, worker: int, job: Job) -> list[list[dt.Tensor | None]]:
    """The gradients of all workers' parameters, computed in one process."""
    all_weights = [weights(plan.seed, w) for w in range(plan.size)]
    loss = loss_of(job, Here(all_weights, worker))
    for _ in range(job.backwards):
        loss.backward(retain_graph=True)
    return [[p.grad for p in mine] for mine in all_weights]


# --- the workers ---------------------------------------------------------------------------------


def gradients(context_id: int) -> list[dt.Tensor | None]:
    """Those of this worker's parameters in a context."""
    found = dist_autograd.get_gradients(context_id)
    return [found.get(p) for p in context.current().slots["test.weights"]]


def differentiate(plan: Plan, worker: int, job: Job) -> float:
    """Run a job; the largest error of a gradient, relative to the largest gradient."""
    with dist_autograd.context() as context_id:
        loss = loss_of(job, There())
        for _ in range(job.backwards):
            dist_autograd.backward(context_id, [loss], retain_graph=True)
        asked = [rpc.rpc_async(name(w), gradients, (context_id,)) for w in range(plan.size)]
        found = [future.wait() for future in asked]
    wrong, scale = 0.0, 1.0
    both = zip(chain(*found), chain(*expected(plan, worker, job)), strict=True)
    for got, true in both:
        if got is None or true is None:
            given = got if true is None else true
            wrong = max(wrong, 0.0 if given is None else float(given.abs().max()))
        else:
            wrong = max(wrong, float((got - true).abs().max()))
            scale = max(scale, float(true.abs().max()))
    return wrong / scale


def drive(plan: Plan) -> list[float]:
    """This worker's jobs; their errors."""
    me = context.current().rank
    results: list[Any] = []

    def run(job: Job) -> None:
        try:
            results.append(differentiate(plan, me, job))
        except BaseException as error:
            results.append(error)

    for job in plan.jobs[me]:
        if job.beside:
            context.start_thread(lambda job=job: run(job), "job")
        else:
            run(job)
    until(lambda: len(results) == len(plan.jobs[me]), "the jobs beside")
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def prepare(plan: Plan) -> None:
    """What a worker has before it joins the others."""
    me = context.current()
    me.slots["test.weights"] = weights(plan.seed, me.rank)


def contexts() -> list[str]:
    """The contexts that this worker still keeps."""
    counts = dist_autograd._get_debug_info()
    return [f"{count} {what}" for what, count in counts.items() if int(count)]
