"""Runs one rank's part of a plan: computations of its stages, messages to the others.

One loop over the actions. An exception in a stage does not leave it: the messages that this rank
still owes are sent as "nothing", those which it would get are taken and dropped, and so do all who
get "nothing". At the end all ranks tell each other; the error goes up on every rank, and the group
can be used again. Knows no particular schedule.
"""

from __future__ import annotations

import traceback as tracebacks
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ... import ops
from ...comm.group.group import ProcessGroup
from ...core.tensor import Tensor
from ...errors import CommError, ConfigError, PeerFailed
from .actions import Action, Kind, Plan
from .stage import PipelineStage, handed_on, passed
from .weighing import Count, Counts, apart, beside
from .wire import Lost, Receiver, Sender, highest, tag_of, told_by

_WORDS = {Kind.F: "forward", Kind.B: "backward", Kind.I: "backward to the inputs",
          Kind.W: "backward to the weights"}  # fmt: skip


class Lines:
    """The ends of all messages of one rank, made when first used and kept."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self._ends: dict[tuple[type, int], Any] = {}

    def end(self, kind: type, peer: int, tag: int) -> Any:
        found = self._ends.get((kind, tag))
        if found is None:
            found = self._ends[kind, tag] = kind(self.group, peer, tag)
        return found


@dataclass
class Batch:
    """What a step was given: per micro-batch the arguments and targets, and the loss.

    ``scale``: factor of the gradients; ``train``: backwards will run; ``counts``: how much
    micro-batches count, and by whom it was said, where it was."""

    args: Sequence[tuple]
    kwargs: Sequence[dict]
    targets: Sequence[Any] | None
    loss_fn: Callable[..., Tensor] | None
    loss_kwargs: dict
    scale: float
    train: bool
    keep_outputs: bool
    counts: tuple[Counts, Sequence[Count]] | None = None

    def count(self, micro: int) -> Count | None:
        """How much ``micro`` counts, where that was said here."""
        return None if self.counts is None else self.counts[1][micro]

    def counted(self, micro: int) -> bool:
        """Whether it counts at all."""
        return self.counts is None or bool(self.counts[1][micro].samples)

    def seed(self, micro: int) -> float:
        """What the gradient of its loss starts with."""
        return self.scale if self.counts is None else self.counts[0].seed(self.counts[1][micro])


class Run:
    """One step."""

    batch: Batch

    def __init__(
        self, plan: Plan, group: ProcessGroup, stages: Sequence[PipelineStage], lines: Lines
    ) -> None:
        self.plan, self.group, self.lines = plan, group, lines
        self.stages = {s.stage_index: s for s in stages}
        self.results: dict[tuple[int, bool, int], Any] = {}  # between stages of this rank
        self.outputs: dict[int, Any] = {}
        self.losses: dict[int, Any] = {}
        self.counted: dict[tuple[int, int], Count] = {}  # micro-batches, in backward
        self.works: list = []
        self.started: list[Receiver] = []  # asked for and not taken
        self.left = Counter(a.stage for a in plan.orders[group.rank]
                            if a.kind in (Kind.B, Kind.W))  # fmt: skip
        self.error: Exception | None = None
        self.talks = False  # in a message of the pipeline's own

    def run(self, prepare: Callable[[], Batch], finish: Callable[[Run], Any]) -> Any:
        """``prepare`` the batch, run it, and give what ``finish`` makes of the run. Raises the
        error of this rank's part, or ``PeerFailed`` for another's."""
        order = self.plan.orders[self.group.rank]
        left, result = order, None
        what: Action | str = "the batch"
        try:
            self.batch = prepare()
            for i, what in enumerate(order):
                left = order[i:]
                self._do(what)
            left, what = (), "the results"
            result = finish(self)
        except Lost:
            self._break_off(left)
        except Exception as error:
            if self.talks and isinstance(error, CommError):
                raise
            self._blame(error, what)
            self._break_off(left)
        for work in self.works:
            work.wait()
        self._tell()
        return result

    # --- what can be done -----------------------------------------------------------------------

    def _do(self, a: Action) -> None:
        if a.kind is Kind.F:
            self._forward(a)
        elif a.kind is Kind.B:
            self.left[a.stage] -= 1
            stage = self.stages[a.stage]
            grads, count = self._grads(a)
            self._gives_back(a, stage.backward(a.micro, grads, not self.left[a.stage], count))
        elif a.kind is Kind.I:
            grads, count = self._grads(a)
            self._gives_back(a, self.stages[a.stage].backward_input(a.micro, grads, count))
        elif a.kind is Kind.W:
            self.left[a.stage] -= 1
            count = self.counted.pop((a.stage, a.micro), None)
            self.stages[a.stage].backward_weight(a.micro, not self.left[a.stage], count)
        elif a.kind in (Kind.SEND_F, Kind.SEND_B):
            self._send(a)
        else:
            self.started.append(self._receiver(a))
            self._talk(self.started[-1].start)

    def _forward(self, a: Action) -> None:
        stage, batch = self.stages[a.stage], self.batch
        first = stage.is_first
        args = batch.args[a.micro] if first else self._take(a.stage - 1, False, a)
        out = stage.forward(a.micro, args, batch.kwargs[a.micro], not first, batch.train)
        if not stage.is_last:
            self.results[a.stage, False, a.micro] = handed_on(out)
            return
        if batch.keep_outputs:
            self.outputs[a.micro] = out
        if batch.loss_fn is not None and (batch.train or batch.targets is not None):
            given = (out,) if batch.targets is None else (out, batch.targets[a.micro])
            loss = self.losses[a.micro] = batch.loss_fn(*given, **batch.loss_kwargs)
            if batch.train and batch.counted(a.micro):
                stage.set_loss(a.micro, loss)

    def _grads(self, a: Action) -> tuple[tuple, Count | None]:
        """The gradients of what the stage gave for this micro-batch, and how much they count."""
        if not self.stages[a.stage].is_last:
            grads, count = apart(self._take(a.stage + 1, True, a))
        else:
            grads, count = self._first_grads(a), self.batch.count(a.micro)
        if count is not None:
            self.counted[a.stage, a.micro] = count
        return grads, count

    def _first_grads(self, a: Action) -> tuple:
        """Those of the loss; zeros of what it would be made of, where it does not count."""
        if not self.batch.counted(a.micro):
            return self.stages[a.stage].no_grads(a.micro)
        loss = self.losses[a.micro]
        kind = type(loss)
        if not issubclass(kind, Tensor):
            raise ConfigError(
                f"pipeline: loss_fn gave a {kind.__name__}; needed is a Tensor with one "
                "number: return the loss alone"
            )
        if loss.numel() != 1 or not loss.requires_grad:
            loss.backward()  # says what is wrong with it
        return (ops.full_like(loss, self.batch.seed(a.micro), requires_grad=False),)

    def _gives_back(self, a: Action, grads: tuple) -> None:
        if not self.stages[a.stage].is_first:
            count = self.counted.get((a.stage, a.micro))
            self.results[a.stage, True, a.micro] = beside(grads, count)

    def _take(self, source: int, backward: bool, a: Action) -> Any:
        """What ``source``, the stage before or behind, gave for the micro-batch of ``a``."""
        if self.plan.rank_of[source] == self.group.rank:
            value = self.results.pop((source, backward, a.micro))
            return value if backward else passed(value)
        kind = Kind.RECV_B if backward else Kind.RECV_F
        receiver = self._receiver(Action(a.stage, kind, a.micro))
        self.started.remove(receiver)
        return self._talk(receiver.take)

    # --- messages -------------------------------------------------------------------------------

    def _talk(self, message: Callable[..., Any], *args: object) -> Any:
        """What ``message`` gives. If it fails, so has the pipeline's group; an error of other
        groups, inside a stage, is one of that stage."""
        self.talks = True
        found = message(*args)
        self.talks = False
        return found

    def _send(self, a: Action) -> None:
        value = self.results.pop(self._sent(a))
        # A work holds what it sends.
        self.works = [w for w in self.works if not w.is_completed() or w.exception()]
        self.works += self._talk(self._sender(a).send, value)

    def _sent(self, a: Action) -> tuple[int, bool, int]:
        return (a.stage, a.kind is Kind.SEND_B, a.micro)

    def _sender(self, a: Action) -> Sender:
        backward = a.kind is Kind.SEND_B
        peer = self.plan.rank_of[a.stage - 1 if backward else a.stage + 1]
        return self.lines.end(Sender, peer, tag_of(a.stage, backward, a.micro))

    def _receiver(self, a: Action) -> Receiver:
        backward = a.kind is Kind.RECV_B
        source = a.stage + 1 if backward else a.stage - 1
        return self.lines.end(
            Receiver, self.plan.rank_of[source], tag_of(source, backward, a.micro)
        )

    # --- failure --------------------------------------------------------------------------------

    def _break_off(self, order: Sequence[Action]) -> None:
        """Leave ``order`` so that nobody waits for this rank, nor finds its messages later: first
        say to all who wait that there will be nothing, then take what others have sent."""
        for a in order:
            if a.kind in (Kind.SEND_F, Kind.SEND_B):
                self.works += self._sender(a).send_nothing()
        self.started += [self._receiver(a) for a in order if a.kind in (Kind.RECV_F, Kind.RECV_B)]
        for receiver in self.started:
            with suppress(Lost):
                receiver.take()

    def _blame(self, error: Exception, what: Action | str) -> None:
        self.error = error
        if isinstance(what, Action):
            kind = _WORDS.get(what.kind, what.kind.value)
            what = f"{kind} of micro-batch {what.micro} on stage {what.stage}"
        error.add_note(f"pipeline: {what} (rank {self.group.ranks[self.group.rank]})")

    def _tell(self) -> None:
        """All ranks learn whether a stage failed, and what it says."""
        group = self.group
        code = highest(group, 0 if self.error is None else group.rank + 1)
        if not code:
            return
        for stage in self.stages.values():
            stage.clear_runtime_states()
        root = code - 1
        told = None
        if group.rank == root:
            error = self.error
            assert error is not None
            text = "".join(tracebacks.format_exception(error))
            notes = "".join(f" ({n})" for n in getattr(error, "__notes__", []))
            told = [f"{type(error).__name__}: {error}{notes}", text]
        cause, text = told_by(group, told, root)
        if self.error is not None:
            raise self.error
        raise PeerFailed(group.ranks[root], f"{cause}\n{text}", text, "pipeline")
