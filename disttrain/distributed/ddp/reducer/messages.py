"""What goes wrong in data-parallel training, said to people: which parameters, where, what to do.

Knows names and groups; no buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .... import nn
from ....comm.group.group import ProcessGroup
from ....errors import AutogradError, DTypeError
from ...collectives import objects
from .buckets import ParamMeta

_SHOWN = 8


def listed(names: Sequence[str]) -> str:
    """The first few of ``names``, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def silent_modules(module: nn.Module, missing: Sequence[str], known: Sequence[str]) -> list[str]:
    """The outermost modules none of whose parameters (``known``) have got a gradient."""
    lost = set(missing)
    found: list[tuple[str, nn.Module]] = []
    for path, part in module.named_modules():
        own = [n for n in known if n.startswith(f"{path}.")] if path else list(known)
        inside = any(not other or path.startswith(f"{other}.") for other, _ in found)
        if own and not inside and lost.issuperset(own):
            found.append((path, part))
    return [f"{path or 'the module itself'} ({type(part).__name__})" for path, part in found]


class Messages:
    """The errors of one wrapper on one rank."""

    def __init__(self, module: nn.Module, metas: Sequence[ParamMeta], group: ProcessGroup) -> None:
        self.module, self.group = module, group
        self.names = [m.name for m in metas]

    @property
    def where(self) -> str:
        return f"DistributedDataParallel on rank {self._rank()}"

    def _rank(self) -> int:
        return self.group.ranks[self.group.rank]

    def misused(self) -> AutogradError:
        return AutogradError(
            f"{self.where}: backward runs under no_sync(), but its forward did not, so the "
            "gradients would be averaged all the same; put the forward inside the no_sync() block "
            "too"
        )

    def retyped(self, i: int, before: object, now: object) -> DTypeError:
        return DTypeError(
            f"{self.where}: parameter {self.names[i]!r} was {before} when the module was wrapped "
            f"and is {now} now, but its gradients are averaged as they were then; convert the "
            "module first, then wrap it"
        )

    def twice(self, i: int) -> AutogradError:
        return AutogradError(
            f"{self.where}: parameter {self.names[i]!r} received its gradient twice in one "
            "backward. Expected to mark a variable ready only once: it is used by two parts that "
            "are checkpointed with use_reentrant=True, or was taken for unused; use "
            "checkpoint(..., use_reentrant=False), or pass static_graph=True"
        )

    def deviated(self, i: int, times: int, expected: int) -> AutogradError:
        return AutogradError(
            f"{self.where}: static_graph=True, but parameter {self.names[i]!r} received its "
            f"gradient {times} times in this backward and {expected} times in the first one. Your "
            "training graph has changed in this iteration; use the same graph in each, or pass "
            "static_graph=False"
        )

    def no_future(self, hook: Callable[..., Any], given: object) -> TypeError:
        name = getattr(hook, "__name__", str(hook))
        return TypeError(
            f"{self.where}: the communication hook {name} returned a {type(given).__name__}; "
            "needed is a torch.futures.Future of the reduced tensor, as work.get_future().then(...)"
        )

    def hook_result(self, b: int) -> str:
        return f"the future that the communication hook returned for bucket {b} ({self.where})"

    def broken_off(self, done: int, of: int) -> AutogradError:
        """Going on after a backward that raised in the middle: its reductions may still run, and
        the other ranks may have had another number of them."""
        return AutogradError(
            f"{self.where}: the last backward ended in the middle (an error in a hook or in an "
            f"operation), after {done} of {of} reductions, so the ranks may no longer be in step; "
            "end the program, or wrap the module again on every rank"
        )

    def weights_mixed(self) -> AutogradError:
        return AutogradError(
            f"{self.where}: some backwards since the last synchronised one had a weight and some "
            "had none, so their sum has no mean; put all of them into weight(...) blocks, or none"
        )

    def weights_missing(self, weighted: Sequence[bool]) -> AutogradError:
        """Alike on every rank."""
        ranks = self.group.ranks
        having = ", ".join(str(r) for r, has in zip(ranks, weighted, strict=True) if has)
        lacking = ", ".join(str(r) for r, has in zip(ranks, weighted, strict=True) if not has)
        return AutogradError(
            f"DistributedDataParallel: rank {having} gave its gradients a weight and rank "
            f"{lacking} did not; use weight(...) on every rank, or on none"
        )

    def drifted(self, hashes: Sequence[int], step: int, slices: int) -> str:
        """Replicas differ, and all ranks know it: where they do. Every rank calls it."""
        everyone = objects.all_gather(self.group, list(hashes))
        apart = [i for i in range(len(self.names)) if len({row[i] for row in everyone}) > 1]
        since = f"after step {step - slices}" if step > slices else "since the replicas were made"
        if not apart:
            return f"{self.where}: replicas differed before step {step} and are equal again"
        first = apart[0]
        odd = [r for r, row in enumerate(everyone) if row[first] != everyone[0][first]]
        ranks = ", ".join(str(self.group.ranks[r]) for r in odd)
        return (
            f"{self.where}: the replicas have drifted: before the backward of step {step}, "
            f"parameter {self.names[first]!r} of rank {ranks} is not what rank "
            f"{self.group.ranks[0]} has ({len(apart)} of {len(self.names)} parameters differ). "
            f"They have come apart {since}. Every rank must start from the same values and step "
            "with the same gradients: look for a step without synchronisation, random numbers in "
            "updates, or parameters that are changed on some ranks"
        )

    # --- parameters without a gradient ----------------------------------------------------------

    def missing_here(self, missing: Sequence[int]) -> AutogradError:
        """This rank knows it alone."""
        return AutogradError(f"{self.where}: {self._told(missing)}. {self._advice()}")

    def missing_anywhere(self, missing: Sequence[int]) -> AutogradError:
        """Some rank misses gradients, and all know it: the same error on every rank."""
        everyone = objects.all_gather(self.group, self._told(missing) if missing else "")
        parts = [f"on rank {self.group.ranks[r]} {told}" for r, told in enumerate(everyone) if told]
        fine = [str(self.group.ranks[r]) for r, told in enumerate(everyone) if not told]
        rest = f"; rank{'s' * (len(fine) > 1)} {', '.join(fine)} received all" if fine else ""
        return AutogradError(f"DistributedDataParallel: {'; '.join(parts)}{rest}. {self._advice()}")

    def missing_elsewhere(self, ranks: Sequence[int]) -> AutogradError:
        """Ranks have told that they miss gradients, in a step that is over."""
        listing = ", ".join(str(self.group.ranks[r]) for r in ranks)
        return AutogradError(
            f"DistributedDataParallel: an earlier backward ended without some gradients on rank "
            f"{listing}, whose own error names them. {self._advice()}"
        )

    def _told(self, missing: Sequence[int]) -> str:
        names = [self.names[i] for i in sorted(missing)]
        modules = silent_modules(self.module, names, self.names)
        skipped = (
            f" (not called in this forward, or called for nothing: {listed(modules)})"
            if modules
            else ""
        )
        return (
            f"backward ended, but {len(names)} of {len(self.names)} parameters received no "
            f"gradient: {listed(names)}{skipped}"
        )

    def _advice(self) -> str:
        return (
            "Every rank must use the same parameters in each iteration; use them all in the loss, "
            "freeze those that are not trained (requires_grad_(False)) before wrapping, or pass "
            "find_unused_parameters=True"
        )
