"""What is looked for: a row for each kind of finding. docs/sanitizer.md shows this table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import ConfigError

ERROR, WARNING, ADVICE = "error", "warning", "advice"
SEVERITIES = (ERROR, WARNING, ADVICE)


class Kind(NamedTuple):
    """One kind of finding."""

    name: str
    severity: str
    what: str  # it means
    fix: str


_ROWS = (
    # gradients
    Kind("gradients-never-zeroed", ERROR,
         "steps are taken with gradients to which those of earlier steps were added",
         "call optimizer.zero_grad() once per step, before backward"),
    Kind("gradients-cleared-before-step", ERROR,
         "gradients are cleared between backward and optimizer.step(), which then changes nothing",
         "call in this order: zero_grad, backward, step"),
    Kind("step-before-backward", ERROR,
         "optimizer.step() comes before backward and finds no gradients, in every iteration",
         "call loss.backward() first, then optimizer.step()"),
    Kind("parameter-not-in-optimizer", WARNING,
         "parameters of a module that is trained get gradients, and no optimizer holds them",
         "give them to the optimizer (make it after all layers), or freeze them by "
         "requires_grad_(False)"),
    Kind("parameter-without-gradient", WARNING,
         "a module runs in training, and parameters of it that the optimizer holds never get a "
         "gradient",
         "look for detach(), .data, no_grad() or an index between it and the loss"),
    Kind("loss-without-model", ERROR,
         "backward runs, and the loss does not depend on the parameters that are stepped",
         "do not make a new tensor of the loss or the outputs: no .item(), .data, detach() or "
         "tensor() between model and loss"),
    # modes
    Kind("eval-mode-in-training", WARNING,
         "the model is trained in evaluation mode: dropout is off, batch norms do not learn",
         "call model.train() after each evaluation"),
    Kind("train-mode-in-evaluation", WARNING,
         "the model that is trained is evaluated in training mode: dropout is on, batch norms "
         "learn from test data",
         "call model.eval() before evaluation and model.train() after it"),
    Kind("dropout-in-evaluation", WARNING,
         "dropout is active under no_grad inside a module in evaluation mode",
         "pass training=self.training to the function, or use nn.Dropout"),
    # numbers
    Kind("non-finite-forward", ERROR,
         "the loss is nan or inf, and the step uses its gradients",
         "guard the operation that is named: eps, clamp, a smaller rate, a wider type"),
    Kind("non-finite-backward", ERROR,
         "the loss is finite, and an operation's backward gives nan or inf that reaches parameters",
         "guard the input of that operation (where() does not: its other branch still has a "
         "gradient), or clip"),
    Kind("dead-activations", WARNING,
         "units behind a ReLU were zero for every sample seen, so that nothing before them learns",
         "smaller rate, another initialisation, or LeakyReLU; a bias that has run away"),
    Kind("learning-rate-zero", WARNING,
         "all learning rates are zero, or fallen to nothing, and steps go on",
         "look at the scheduler's length, and how often it is stepped"),
    # order of calls
    Kind("scheduler-before-optimizer", WARNING,
         "the scheduler is stepped before the optimizer: the first rate is passed over",
         "call optimizer.step() first, scheduler.step() after it"),
    Kind("scheduler-too-often", WARNING,
         "the scheduler is stepped several times between two steps of its optimizer",
         "step it once per optimizer step (or once per epoch), not once per micro-batch"),
    Kind("scheduler-too-seldom", WARNING,
         "a schedule made for every step was stepped far fewer times than the optimizer",
         "call scheduler.step() after each optimizer.step()"),
    Kind("clip-before-unscale", ERROR,
         "gradients are clipped while they are still multiplied by the loss scale",
         "call scaler.unscale_(optimizer) before clipping"),
    # data and ranks
    Kind("missing-set-epoch", WARNING,
         "a shuffling DistributedSampler is trained from again without set_epoch: the same order",
         "call sampler.set_epoch(epoch) before each epoch"),
    Kind("ranks-read-same-data", ERROR,
         "ranks of one data-parallel group train on the same batches",
         "give the DataLoader a DistributedSampler, or seed each rank's data by its rank"),
    Kind("weights-differ", ERROR,
         "ranks that average their gradients have different weights",
         "wrap the model in DistributedDataParallel, or broadcast its parameters from rank 0"),
    Kind("buffers-differ", WARNING,
         "buffers (running statistics) differ over the ranks of a data-parallel group, and nothing "
         "brings them together",
         "use broadcast_buffers=True or SyncBatchNorm, or average them before evaluation"),
    Kind("label-leakage", ERROR,
         "the target of a loss was written to in place after the model was given the same memory",
         "clone() the target before the model or the program writes into it"),
    # graphs
    Kind("growing-graph", ERROR,
         "each backward walks a larger graph, which reaches back over earlier steps",
         "detach() what is carried from step to step (hidden states, running losses)"),
    Kind("graph-kept-alive", WARNING,
         "results of many past steps are kept with their graphs (a list of losses)",
         "keep loss.item() or loss.detach(), and evaluate under no_grad()"),
    Kind("retrace-storm", WARNING,
         "a compiled function is captured again and again instead of replayed",
         "keep shapes and Python values that it reads the same, or pass them as tensors"),
    # advice
    Kind("tensor-moved-in-loop", ADVICE,
         "the same unchanged tensor is moved to a device in step after step",
         "move it once, before the loop"),
    Kind("weight-decay-on-norms", ADVICE,
         "weight decay pulls weights and biases of normalisation layers towards zero",
         "put them into a group of their own with weight_decay=0"),
    Kind("gradients-unused", ADVICE,
         "parameters that were there before the optimizer get gradients that no optimizer uses",
         "freeze them by requires_grad_(False), which saves their backward; or give them to the "
         "optimizer"),
    Kind("parameter-never-used", ADVICE,
         "the optimizer holds parameters that do nothing: their modules never ran, or the loss "
         "does not use what they gave",
         "take them away, or use them"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _ROWS}


def chosen(where: str, names: str | Iterable[str]) -> frozenset[str]:
    """The kinds of these names; a severity stands for all of its kinds."""
    given = names.split(",") if isinstance(names, str) else list(names)
    out: set[str] = set()
    for name in given:
        word = str(name).strip()
        of_severity = {k.name for k in _ROWS if k.severity == word}
        if not of_severity and word not in KINDS:
            raise ConfigError(
                f"{where}: {word!r} given; one of {', '.join(SEVERITIES)} or of "
                f"{', '.join(KINDS)} is needed"
            )
        out |= of_severity or {word}
    return frozenset(out)


__all__ = ["ADVICE", "ERROR", "KINDS", "SEVERITIES", "WARNING", "Kind", "chosen"]
