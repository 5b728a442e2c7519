"""Schedules under PyTorch's names: a plan, and ``step`` that runs it on a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ... import context
from ...core.tensor import Tensor
from ...errors import AutogradError, CollectiveMismatch, ConfigError
from . import plans
from .actions import Action, Kind, Plan, plan_from_csv, plan_of
from .chart import draw
from .check import run_on_paper
from .executor import Batch, Lines, Run
from .microbatch import merge_chunks, split_args_kwargs_into_chunks, split_target
from .stage import PipelineStage
from .weighing import Counts
from .wire import everyones


class _PipelineSchedule:
    """``n_microbatches`` of each batch through the stages of all ranks.

    ``loss_fn(output, target)`` on the last stage; without it, or in ``eval``, there is no backward.
    ``args_chunk_spec``, ``kwargs_chunk_spec``, ``output_merge_spec``: how to cut and to merge what
    is not cut along dimension 0. ``scale_grads``: gradients are the mean over micro-batches (as of
    a loss that is a mean), not the sum.
    """

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if n_microbatches < 1 or not stages:
            raise ConfigError(
                f"{type(self).__name__}: n_microbatches={n_microbatches} and {len(stages)} stages "
                "were given; at least one of each is needed"
            )
        self._stages = sorted(stages, key=lambda s: s.stage_index)
        self._num_stages, self._group = stages[0].num_stages, stages[0].group
        self._n_microbatches, self._loss_fn = n_microbatches, loss_fn
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec, self.scale_grads = output_merge_spec, scale_grads
        self._lines, self._agreed = Lines(self._group), False
        self._counts: Counts | None = None
        self._plan: Plan | None = None
        self._plan_forward: Plan | None = None  # made when first needed
        made = self._make_plan(self._group.size, self._num_stages, n_microbatches)
        if made is not None:
            self.use_plan(made)

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan | None:
        """The plan (None: the user will give one)."""
        return None

    def use_plan(self, plan: Plan) -> None:
        """Run by ``plan`` from now on. Raises ``ConfigError`` where it does not fit the stages, is
        not complete or comes to no end."""
        name, group = type(self).__name__, self._group
        if (plan.num_ranks, plan.num_stages, plan.num_micro) != (
            group.size, self._num_stages, self._n_microbatches,
        ):  # fmt: skip
            raise ConfigError(
                f"{name}: the plan is for {plan.num_stages} stages on {plan.num_ranks} ranks and "
                f"{plan.num_micro} micro-batches; given were {self._num_stages} stages, a group of "
                f"{group.size} ranks and n_microbatches={self._n_microbatches}"
            )
        mine, planned = [s.stage_index for s in self._stages], plan.stages_of(group.rank)
        if mine != planned:
            raise ConfigError(
                f"{name}: stages {mine} were given on rank {group.rank} of the pipeline; the plan "
                f"needs stages {planned} there"
            )
        run_on_paper(plan)
        self._plan, self._plan_forward, self._agreed = plan, None, False

    @property
    def plan(self) -> Plan:
        """What all ranks do, as data."""
        if self._plan is None:
            raise ConfigError(
                f"{type(self).__name__}: it has no plan; give one (plan=, pipeline_order, "
                "_load_csv), or use a schedule that makes its own, such as ScheduleInterleaved1F1B"
            )
        return self._plan

    @property
    def pipeline_order(self) -> dict[int, list[Action]]:
        """Per rank the computations in order."""
        return {r: [a for a in order if a.computes] for r, order in enumerate(self.plan.orders)}

    @pipeline_order.setter
    def pipeline_order(self, orders: Mapping[int, Iterable[Any]]) -> None:
        self.use_plan(plan_of([orders[r] for r in sorted(orders)], type(self).__name__))

    def show(self) -> str:
        """Print the timeline, as papers draw it; also returns it."""
        text = draw(run_on_paper(self.plan))
        print(text)
        return text

    # --- a batch --------------------------------------------------------------------------------

    @contextmanager
    def weight(self, counts: Any = None, loss: str = "mean") -> Iterator[None]:
        """Steps in the block take each micro-batch for as many samples (or tokens) as ``counts``
        says: a number for each, or a function of its target. Gradients become the mean over all
        samples of the batch, and of all replicas and shards of the stages.

        ``loss``: whether ``loss_fn`` gives a "mean" or a "sum" over them. The rank of the last
        stage decides; the others may give None. 0 stands for nothing, and ``scale_grads`` for
        nothing here.
        """
        before, self._counts = self._counts, Counts(counts, loss)
        try:
            yield
        finally:
            self._counts = before

    weighted = weight  # as it is called where modules have parameters of that name

    def step(
        self,
        *args: Tensor,
        target: Tensor | None = None,
        losses: list | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """One batch, forward and backward: ``args`` on the rank of the first stage, ``target`` on
        that of the last, nothing needed elsewhere.

        Gradients are added to ``.grad``. On the last stage's rank the outputs of all micro-batches
        are returned, put together, and ``losses`` becomes the list of their losses. An error in any
        stage goes up on all ranks.
        """
        train = self._loss_fn is not None
        return self._run(train, args, kwargs, target, losses, return_outputs, loss_kwargs)

    def eval(
        self,
        *args: Tensor,
        target: Tensor | None = None,
        losses: list | None = None,
        **kwargs: object,
    ) -> Any:
        """One batch, forward only; ``losses`` as for ``step`` where there is a ``target``."""
        return self._run(False, args, kwargs, target, losses, True, None)

    def _run(
        self, train: bool, args: tuple, kwargs: dict, target: Any, losses: list | None,
        return_outputs: bool, loss_kwargs: dict[str, Any] | None,
    ) -> Any:  # fmt: skip
        self._agree()
        for stage in self._stages:
            stage.begin()
        if not train and self._plan_forward is None:
            self._plan_forward = self.plan.forward_only()
        plan = self.plan if train else self._plan_forward
        assert plan is not None

        def prepare() -> Batch:
            if losses is not None and not isinstance(losses, list):
                raise TypeError(f"losses must be a list but got a {type(losses)}")
            if train and not context.thread.grad_enabled:
                raise AutogradError(
                    "step() requires gradients to be enabled for backward computation; it should "
                    "not be used under no_grad(). Please call eval() instead"
                )
            return self._batch(train, args, kwargs, target, return_outputs, loss_kwargs or {})

        def finish(run: Run) -> Any:
            if losses is not None and self._stages[-1].is_last:
                losses[:] = [run.losses[m] for m in sorted(run.losses)]
            if not run.outputs:
                return None
            outputs = [run.outputs[m] for m in range(self._n_microbatches)]
            return merge_chunks(outputs, self._output_merge_spec)

        return Run(plan, self._group, self._stages, self._lines).run(prepare, finish)

    def _batch(
        self, train: bool, args: tuple, kwargs: dict, target: Tensor | None, keep_outputs: bool,
        loss_kwargs: dict[str, Any],
    ) -> Batch:  # fmt: skip
        """The micro-batches of a step."""
        n = self._n_microbatches
        args_by_micro, kwargs_by_micro = split_args_kwargs_into_chunks(
            args, kwargs, n, self._args_chunk_spec if args else None,
            self._kwargs_chunk_spec if kwargs else None,
        )  # fmt: skip
        targets = None if target is None else split_target(target, n)
        scale = 1.0 / n if self.scale_grads else 1.0
        counts = None
        if train and self._counts is not None and self._stages[-1].is_last:
            counts = self._counts, self._counts.of(targets, n)
        return Batch(args_by_micro, kwargs_by_micro, targets, self._loss_fn, loss_kwargs, scale,
                     train, keep_outputs, counts)  # fmt: skip

    def _agree(self) -> None:
        """Before the first step: all ranks follow the same plan, or the same error goes up."""
        if self._agreed:
            return
        plan = self.plan
        text = f"{plan.name}: {plan.num_stages} stages, {plan.num_micro} micro-batches"
        trains = self._loss_fn is not None
        text += f", loss_fn {'given' if trains else 'not given'}"
        mine = [text, trains, plan.num_micro, hashlib.sha256(plan.to_csv().encode()).hexdigest()]
        everyone = everyones(self._group, mine)
        for rank, theirs in enumerate(everyone):
            if theirs[1:] != everyone[0][1:]:
                raise CollectiveMismatch(
                    f"pipeline: ranks follow different plans: rank 0 has {everyone[0][0]!r}, rank "
                    f"{rank} has {theirs[0]!r}; build the same schedule on every rank (with a "
                    "loss_fn on all of them, though only the last stage calls it)"
                )
        self._agreed = True

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """Run by the plan in a file: one line per rank, one action per field."""
        self.use_plan(plan_from_csv(Path(filename).read_text(), Path(filename).name))

    def _dump_csv(self, filename: str, format: str = "compute_only") -> None:
        """Write the plan to a file; ``compute_only`` without messages."""
        if format == "compute_only":
            rows = [[str(a) for a in order] for order in self.pipeline_order.values()]
            Path(filename).write_text("\n".join(map(",".join, rows)) + "\n")
        else:
            Path(filename).write_text(self.plan.to_csv())


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule with one stage per rank."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: object = None,
        kwargs_chunk_spec: object = None,
        output_merge_spec: object = None,
        scale_grads: bool = True,
    ) -> None:
        if stage.num_stages != stage.group_size:
            raise ConfigError(
                f"{type(self).__name__}: {stage.num_stages} stages for a group of "
                f"{stage.group_size} ranks; this schedule needs one stage per rank: use "
                "ScheduleInterleaved1F1B for several"
            )
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec,
                         output_merge_spec, scale_grads)  # fmt: skip
        self._stage = stage


class ScheduleGPipe(PipelineScheduleSingle):
    """All forwards, then all backwards."""

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        return plans.gpipe(num_ranks, num_micro)


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward in turn."""

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        return plans.one_f_one_b(num_ranks, num_micro)


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule with any number of stages per rank; ``stages``: this rank's. ``plan``: a plan of
    one's own: a ``Plan``, its CSV text, or per rank a list of actions ("2F0")."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: object = None,
        output_merge_spec: object = None,
        use_full_backward: bool | None = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
        plan: Any = None,
    ) -> None:
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec,
                         output_merge_spec, scale_grads)  # fmt: skip
        if isinstance(plan, str):
            plan = plan_from_csv(plan)
        if plan is not None:
            self.use_plan(plan if isinstance(plan, Plan) else plan_of(plan))


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """Runs plans that are loaded (``_load_csv``)."""


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B over several stages per rank; any number of micro-batches."""

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        return plans.interleaved(num_ranks, num_stages, num_micro)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All micro-batches through a stage before the rank's next one."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        output_merge_spec: object = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(stages, n_microbatches, loss_fn, output_merge_spec=output_merge_spec,
                         scale_grads=scale_grads)  # fmt: skip

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        return plans.looped_bfs(num_ranks, num_stages, num_micro)


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """Gradients of weights fill the waits."""

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        return plans.interleaved_zero_bubble(num_ranks, num_stages, num_micro)


class _Vee(PipelineScheduleMulti):
    """Two stages per rank, r and the r-th last one."""

    def _two(self, num_ranks: int, num_stages: int) -> None:
        if num_stages != 2 * num_ranks:
            raise ConfigError(
                f"{type(self).__name__}: {num_stages} stages on {num_ranks} ranks; this schedule "
                "needs exactly 2 stages per rank: stage r and the r-th last on rank r"
            )


class ScheduleZBVZeroBubble(_Vee):
    """Zero bubble with the stages laid out as a V."""

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        self._two(num_ranks, num_stages)
        return plans.zbv(num_ranks, num_micro)


class ScheduleDualPipeV(_Vee):
    """Forwards of one leg of the V beside backwards of the other."""

    def _make_plan(self, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
        self._two(num_ranks, num_stages)
        return plans.dual_pipe_v(num_ranks, num_micro)


_NAMES: Mapping[str, type] = {
    "1f1b": Schedule1F1B,
    "gpipe": ScheduleGPipe,
    "interleaved1f1b": ScheduleInterleaved1F1B,
    "loopedbfs": ScheduleLoopedBFS,
    "interleavedzerobubble": ScheduleInterleavedZeroBubble,
    "pipelineschedulesingle": PipelineScheduleSingle,
    "pipelineschedulemulti": PipelineScheduleMulti,
    "zbvzerobubble": ScheduleZBVZeroBubble,
    "dualpipev": ScheduleDualPipeV,
}


# For programs that write plans of their own.
_Action, _ComputationType = Action, Kind


def get_schedule_class(schedule_name: str) -> type:
    """The schedule of that name (case does not matter)."""
    found = _NAMES.get(schedule_name.lower())
    if found is None:
        raise ConfigError(
            f"Unknown schedule name '{schedule_name}'. The valid options are "
            f"{[k.__name__.removeprefix('Schedule') for k in _NAMES.values()]}"
        )
    return found
