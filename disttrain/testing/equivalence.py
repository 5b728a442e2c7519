"""``assert_equivalent``: does a model train on several ranks as it does in one process?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import context
from ..autograd import no_grad
from ..comm.transports.sim import simulate
from ..core.random import manual_seed
from ..core.tensor import Tensor
from ..distributed import destroy_process_group, get_rank, init_process_group
from ..errors import ConfigError
from ..nn import Module
from ..optim import SGD
from .differences import Call, Difference, compare, differ, first_call
from .plans import Plan, single

_SHOWN = 3  # names of other differences of a kind that are told
Launch = Callable[[Callable[[], Any], int], list[Any]]


class NotEquivalent(AssertionError):
    """``plan`` trains otherwise than one process does. ``first`` is the difference that is told
    first, ``differences`` are all of the first step that has any; ``module`` is the name of the
    module in which they begin, if that could be found."""

    def __init__(
        self, plan: Plan, step: int, differences: Sequence[Difference], module: str, text: str
    ) -> None:
        super().__init__(text)
        self.plan, self.step, self.module = plan, step, module
        self.differences = list(differences)
        self.first = self.differences[0]


def assert_equivalent(
    model: Module | Callable[[], Module],
    batch: object,
    plans: Sequence[Plan],
    *,
    loss: Callable[[Any, Any], Tensor] | None = None,
    optimizer: Callable[[Any], Any] = lambda parameters: SGD(parameters, lr=0.1),
    steps: int = 1,
    rtol: float | None = None,
    atol: float = 1e-7,
    seed: int = 0,
    launch: Launch | None = None,
) -> None:
    """Train ``model`` by each of ``plans``, and in one process; ``NotEquivalent`` unless losses,
    gradients, buffers and, after each step, parameters are the same.

    ``model``: copied for every rank; or a function that makes it, after ``manual_seed(seed)``.
    ``batch``: tensors in tuples, lists and dicts, whose first dimension is the batch. Ranks take
    equal parts of it, one after the other. ``loss(model, batch)``: a mean over the rows; by default
    the mean of the squares of what the model returns for the batch (called with the elements of a
    tuple or a dict), or that itself if it is a scalar. ``rtol`` is of the largest element; None
    means by type, 1e-4 for float32. ``launch(fn, n)`` calls ``fn`` on n ranks: by default simulated
    ones, ``disttrain.launch`` for processes.

    Raises ``ConfigError`` where the batch cannot be divided, and what a rank raises.
    """
    if context.current().world_size > 1:
        raise ConfigError(
            "assert_equivalent: called on one of several ranks; it starts ranks by itself, so call "
            "it in a test without @pytest.mark.ranks"
        )
    rows = _rows(batch)
    for plan in plans:
        if plan.splits_batch and rows % plan.num_ranks:
            raise ConfigError(
                f"assert_equivalent: a batch of {rows} rows given; {plan} needs a multiple of "
                f"{plan.num_ranks}, so that the mean over ranks is the mean over rows"
            )
    run = launch or _simulated
    job = _Training(model, batch, loss or mean_square, optimizer, steps, seed)
    reference = run(lambda: job.run(single), 1)[0]
    for plan in plans:
        ranks = run(lambda plan=plan: job.run(plan), plan.num_ranks)  # type: ignore[misc]
        for step in range(steps):
            _check(plan, step, [rank[step] for rank in ranks], reference[step], rtol, atol, steps)


def mean_square(model: Any, batch: Tensor) -> Tensor:
    """The loss where none is given."""
    if isinstance(batch, (tuple, list)):
        output = model(*batch)
    else:
        output = model(**batch) if isinstance(batch, dict) else model(batch)
    tensors = [t for t in _tensors(output) if t.is_floating_point()]
    if not tensors:
        raise ConfigError("assert_equivalent: the model returns no tensor of a floating type; "
                          "loss(model, batch) is needed")  # fmt: skip
    if len(tensors) == 1 and tensors[0].ndim == 0:
        return tensors[0]
    total = tensors[0].square().mean()
    for tensor in tensors[1:]:
        total = total + tensor.square().mean()
    return total


class _Training:
    """What every rank of every plan does."""

    def __init__(
        self, model: Any, batch: Any, loss: Callable, optimizer: Callable, steps: int, seed: int
    ) -> None:
        self.model, self.batch, self.loss, self.optimizer = model, batch, loss, optimizer
        self.steps, self.seed = steps, seed

    def run(self, plan: Plan) -> list[dict[str, Any]]:
        """What each step gave on the calling rank, as arrays."""
        init_process_group("gloo")
        manual_seed(self.seed)
        made = isinstance(self.model, Module)
        model = copy.deepcopy(self.model) if made else self.model()
        names = {id(module): name for name, module in model.named_modules()}
        trained = plan.wrap(model)
        mine = _part(self.batch, get_rank(), plan.num_ranks) if plan.splits_batch else self.batch
        optimizer = self.optimizer(model.parameters())
        calls: list[Call] = []
        for module in model.modules():
            if not list(module.children()) and id(module) in names:
                module.register_forward_hook(_recorder(names[id(module)], calls))
        told = []
        for _ in range(self.steps):
            calls.clear()
            optimizer.zero_grad()
            loss = self.loss(trained, mine)
            loss.backward()
            gradients = {n: _array(p.grad) for n, p in model.named_parameters()}
            optimizer.step()
            told.append({
                "loss": _array(loss), "gradient": gradients, "calls": list(calls),
                "buffer": {n: _array(b) for n, b in model.named_buffers()},
                "parameter": {n: _array(p) for n, p in model.named_parameters()},
            })  # fmt: skip
        destroy_process_group()
        return told


def _recorder(name: str, calls: list[Call]) -> Callable:
    def record(module: Module, args: tuple, output: Tensor) -> None:
        given = args[0] if args else None
        both = (_array(t) if isinstance(t, Tensor) else None for t in (given, output))
        calls.append(Call(name, type(module).__name__, *both))

    return record


def _check(
    plan: Plan, step: int, ranks: list[dict], wanted: dict, rtol: float | None, atol: float,
    steps: int,
) -> None:  # fmt: skip
    found: list[Difference] = []
    for rank, told in enumerate(ranks):
        for what in ("gradient", "buffer", "parameter"):
            found += compare(what, rank, told[what], wanted[what], rtol, atol)
    mean = np.mean([told["loss"] for told in ranks], axis=0, dtype=np.float64)
    loss = differ("loss", "", 0, np.asarray(mean, wanted["loss"].dtype), wanted["loss"], rtol, atol)
    found += [loss] if loss is not None else []
    if not found:
        return
    calls = [told["calls"] for told in ranks]
    begin = first_call(calls, wanted["calls"], plan.splits_batch, rtol, atol)
    module = begin[0].name if begin is not None and begin[1].what == "output" else ""
    found = _in_order(found, module, begin is not None and not module)
    lines = [f"{plan} does not train as one process does, in step {step + 1} of {steps}:"]
    for what in dict.fromkeys(each.what for each in found):
        same = [each for each in found if each.what == what]
        if what != "parameter" or len(lines) == 1:
            lines.append(f"  {same[0]}{_others(same)}")
    if begin is not None:
        lines.append(f"  {_where(*begin)}")
    raise NotEquivalent(plan, step + 1, found, module, "\n".join(lines))


def _where(call: Call, begin: Difference) -> str:
    by = f"on rank {begin.rank} by up to {begin.size:.3g}"
    named = f"module {call.name!r} ({call.kind})"
    if begin.what == "output":
        return f"it begins in {named}, the first whose output differs: {by}"
    return f"it begins before {named}, whose input differs: {by}"


def _in_order(found: list[Difference], module: str, between: bool) -> list[Difference]:
    """Gradients first, then buffers; of each kind those of the module in which it begins. Where it
    begins ``between`` modules, buffers are what may have made the difference."""
    kinds = ["gradient", "buffer", "loss", "parameter"]
    if between:
        kinds[:2] = ["buffer", "gradient"]
    inside = f"{module}." if module else ""
    return sorted(
        found, key=lambda d: (kinds.index(d.what), not (inside and d.name.startswith(inside)))
    )


def _others(same: Sequence[Difference]) -> str:
    names = list(dict.fromkeys(d.name for d in same[1:] if d.name != same[0].name))
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" (also {', '.join(map(repr, names[:_SHOWN]))}{more})"


def _simulated(fn: Callable[[], Any], num_ranks: int) -> list[Any]:
    return simulate(fn, num_ranks).results


def _array(tensor: Any) -> np.ndarray | None:
    """The values of a tensor, put together where ranks have parts of it."""
    if tensor is None:
        return None
    with no_grad():
        tensor = tensor.detach()
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        return np.array(whole.cpu().numpy(), copy=True)


def _tensors(tree: object) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [t for each in tree for t in _tensors(each)] if isinstance(tree, (tuple, list)) else []


def _rows(batch: object) -> int:
    sizes = {int(t.shape[0]) for t in _tensors(batch) if t.ndim}
    if len(sizes) != 1:
        raise ConfigError(
            f"assert_equivalent: a batch with tensors of {sorted(sizes)} rows given; tensors with "
            "one number of rows are needed"
        )
    return sizes.pop()


def _part(batch: object, rank: int, num_ranks: int) -> Any:
    if isinstance(batch, Tensor):
        n = batch.shape[0] // num_ranks if batch.ndim else 0
        return batch[rank * n : (rank + 1) * n] if batch.ndim else batch
    if isinstance(batch, dict):
        return {key: _part(each, rank, num_ranks) for key, each in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(_part(each, rank, num_ranks) for each in batch)
    return batch
