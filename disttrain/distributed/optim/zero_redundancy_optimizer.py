"""An optimizer whose state is spread over the ranks (ZeRO, stage 1; Rajbhandari et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from ...core import Tensor
from ...errors import ConfigError, StateDictError
from ...optim import Optimizer
from ...optim.state import LOAD_POST, LOAD_PRE
from ...trace import warn
from ..collectives import objects
from ..groups.process_group import ProcessGroup
from ..groups.state import group_or_default
from ..join import Join, Joinable, JoinHook
from .functional import FunctionalOptimizer, step_some
from .join_steps import Shadow, exchange
from .partition import partition_by_size
from .sharing import Sharing


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Each rank keeps the state of, and updates, about an equal part of the parameters (whole
    ones), and sends the new values to the others.

    ``params``: all parameters, alike on every rank, with equal gradients there (as after a
    backward of ``DistributedDataParallel``). ``optimizer_class`` with ``**defaults`` makes the
    local optimizer, ``optim``. ``parameters_as_bucket_view``: let the parameters lie in memory
    that the group sends from, which saves a copy of each. ``overlap_with_ddp``: a communication
    hook of ``ddp_zero_hook`` makes the steps while gradients are reduced; ``step`` does nothing.

    ``param_groups`` holds all parameters, ``optim.param_groups`` this rank's. Hyperparameters may
    be changed in ``param_groups`` (schedulers do) before a step, and are seen there after it.
    Raises ``ConfigError`` where the parameters are not of one element type.
    """

    def __init__(
        self,
        params: Iterable,
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if isinstance(optimizer_class, type) and issubclass(optimizer_class, FunctionalOptimizer):
            raise ConfigError(
                "ZeroRedundancyOptimizer: a functional optimizer was passed in; needed is a class "
                "such as optim.Adam (overlap_with_ddp=True makes its steps functional)"
            )
        self.optim: Any = None  # while the groups are taken in
        Joinable.__init__(self)
        Optimizer.__init__(self, _checked(params), defaults)
        self.process_group = group = group_or_default(process_group)
        self.world_size, self.rank = group.size, group.rank
        self.global_rank = group.ranks[group.rank]
        self.parameters_as_bucket_view = parameters_as_bucket_view and not overlap_with_ddp
        self.overlap_with_ddp = overlap_with_ddp
        if parameters_as_bucket_view and overlap_with_ddp:
            warn(
                "ZeroRedundancyOptimizer: `parameters_as_bucket_view=True` will be ignored since "
                "`overlap_with_ddp=True`",
            )
        self.optim = optimizer_class(self._local_groups(), **defaults)
        _copy_settings(self.optim.param_groups, self.param_groups)
        self._consolidated: dict[Any, Any] | None = None
        self._share()

    # -- who owns what ---------------------------------------------------------------------------

    def _partition(self) -> list[list[list[int]]]:
        sizes = [[p.numel() for p in group["params"]] for group in self.param_groups]
        return partition_by_size(sizes, self.world_size)

    def owned_by(self, rank: int) -> list[list[Tensor]]:
        """The parameters that ``rank`` (of the process group) updates, group by group."""
        places = self._partition()[rank]
        pairs = zip(self.param_groups, places, strict=True)
        return [[group["params"][i] for i in chosen] for group, chosen in pairs]

    def _local_groups(self) -> list[dict[str, Any]]:
        """This rank's part of every group."""
        places = self._partition()[self.rank]
        pairs = zip(self.param_groups, places, strict=True)
        return [_part_of(group, chosen) for group, chosen in pairs]

    def _share(self) -> None:
        """Plan how trainable parameters travel."""
        self._trainable = self._mask()
        self._owned = [
            [p for params in self.owned_by(r) for p in params] for r in range(self.world_size)
        ]
        self._by_bucket: dict[tuple, Sharing] = {}
        trained = [[p for p in params if p.requires_grad] for params in self._owned]
        self.sharing = Sharing(self.process_group, trained, self.parameters_as_bucket_view)

    def _mask(self) -> list[bool]:
        return [p.requires_grad for group in self.param_groups for p in group["params"]]

    def _share_again(self) -> None:
        self.sharing.release()
        self._share()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, alike on every rank. No parameter changes its owner."""
        super().add_param_group(param_group)
        _one_type(self.param_groups)
        if self.optim is None:
            return
        self.optim.add_param_group(self._local_groups()[-1])
        _copy_settings(self.optim.param_groups[-1:], self.param_groups[-1:])
        self._share_again()

    # -- steps -----------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """One step: this rank's parameters by the local optimizer, then everyone's to everyone.

        ``closure`` and further arguments go to the local optimizer, whose result is returned."""
        if self.overlap_with_ddp:
            warn(
                "ZeroRedundancyOptimizer: `step()` should not be included in the training loop "
                "when `overlap_with_ddp=True`: the communication hook makes the steps",
            )
            return None
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
        if self._join_config.enable:
            exchange(self.process_group, True, self._owned, self.param_groups)
        loss = self._locally(closure, kwargs)
        self.sharing.sync()
        return loss

    def _locally(self, closure: Callable[[], Any] | None, kwargs: dict[str, Any]) -> Any:
        if self._mask() != self._trainable:
            self._share_again()
        _copy_settings(self.param_groups, self.optim.param_groups)
        given = {} if closure is None else {"closure": closure}
        loss = self.optim.step(**given, **kwargs)
        _copy_settings(self.optim.param_groups, self.param_groups)
        return loss

    # -- uneven inputs ---------------------------------------------------------------------------

    def join_hook(self, **kwargs: object) -> JoinHook:
        """A rank without input goes on stepping the parameters that it owns, by the gradients and
        the settings of a rank that has some."""
        return Shadow(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def shadow_step(self) -> None:
        """The step of a rank that has no more input, while others make theirs."""
        if self.overlap_with_ddp:
            return  # the communication hook makes the steps here, too
        if self._mask() != self._trainable:
            self._share_again()
        borrowed = exchange(self.process_group, False, self._owned, self.param_groups)
        _copy_settings(self.param_groups, self.optim.param_groups)
        step_some(self.optim, borrowed or {})
        self.sharing.sync()

    # -- steps inside communication hooks --------------------------------------------------------

    def step_some(self, gradients: Mapping[Tensor, Tensor]) -> None:
        """Step the parameters in ``gradients`` that this rank owns by these, and give every rank
        the new values of all of them. Every rank calls it with the same parameters, in one
        order."""
        self.stepped = True
        key = tuple(map(id, gradients))
        sharing = self._by_bucket.get(key)
        if sharing is None:
            chosen = [[p for p in params if p in gradients] for params in self._owned]
            old = self._by_bucket.items()  # of buckets that were made anew meanwhile
            self._by_bucket = {k: s for k, s in old if not set(k) & set(key)}
            sharing = self._by_bucket[key] = Sharing(self.process_group, chosen)
        _copy_settings(self.param_groups, self.optim.param_groups)
        step_some(self.optim, {p: gradients[p] for p in sharing.owned[self.rank]})
        _copy_settings(self.optim.param_groups, self.param_groups)
        sharing.sync()

    # -- state -----------------------------------------------------------------------------------

    def _numbers(self) -> dict[int, int]:
        """The number of each parameter in a state dict, by identity."""
        numbers: dict[int, int] = {}
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
        return numbers

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all ranks to rank ``to`` of the process group, where ``state_dict``
        then gives it. Every rank calls it."""
        _copy_settings(self.param_groups, self.optim.param_groups)
        numbers = self._numbers()
        local = self.optim.state.items()
        mine = {(numbers[id(p)] if isinstance(p, Tensor) else p): s for p, s in local}
        parts = objects.gather(self.process_group, mine, to)
        if parts is not None:
            merged = {k: v for part in parts for k, v in part.items()}
            self._consolidated = dict(sorted(merged.items(), key=lambda kv: str(kv[0]).zfill(20)))

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters as of the last ``consolidate_state_dict`` to this rank, in
        the layout of one optimizer over all of them."""
        if self._consolidated is None:
            raise StateDictError(
                "ZeroRedundancyOptimizer: Optimizer state has not been consolidated on this rank. "
                f"Please call `consolidate_state_dict(to={self.rank})` on all ranks beforehand if "
                "you meant to save the global state."
            )
        out = super().state_dict()
        out["state"] = deepcopy(self._consolidated)
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's part of the state, and the hyperparameters, of a state dict of all
        parameters (of this class on any number of ranks, or of the local class on one)."""
        state_dict = state_dict.copy()
        for hook in self._own_hooks(LOAD_PRE):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = state_dict["param_groups"]
        self._check_fit(saved)
        groups, state, number = [], {}, 0
        for k, chosen in enumerate(self._partition()[self.rank]):
            settings = {a: deepcopy(v) for a, v in saved[k].items() if a != "params"}
            self.param_groups[k].update(settings)
            part = _part_of({**settings, "params": saved[k]["params"]}, chosen)
            for i in part["params"]:
                if state_dict["state"].get(i) is not None:
                    state[number] = state_dict["state"][i]
                number += 1
            part["params"] = list(range(number - len(chosen), number))
            groups.append(part)
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        _copy_settings(self.param_groups, self.optim.param_groups)
        for hook in self._own_hooks(LOAD_POST):
            hook(self)


def _part_of(group: dict[str, Any], chosen: list[int]) -> dict[str, Any]:
    """A group with some of its parameters (and their names, where it has any)."""
    names = ("params", "param_names")
    return {k: [v[i] for i in chosen] if k in names else v for k, v in group.items()}


def _copy_settings(source: list[dict[str, Any]], into: list[dict[str, Any]]) -> None:
    """What groups hold beside parameters."""
    for a, b in zip(source, into, strict=True):
        b.update((k, v) for k, v in a.items() if k not in ("params", "param_names"))


def _checked(params: object) -> list:
    name = "ZeroRedundancyOptimizer"
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise TypeError(
            f"{name}: `params` argument should be an iterable of Tensors or dicts, but got "
            f"{type(params).__name__}"
        )
    given = list(params)
    if not given:
        raise ConfigError(f"{name} got an empty parameter list; at least one tensor is needed")
    dicts = [isinstance(p, dict) for p in given]
    if not all(isinstance(p, (dict, Tensor, tuple)) for p in given) or any(dicts) != all(dicts):
        raise TypeError(f"{name}: `params` argument should be an iterable of Tensors or dicts")
    if all(dicts) and not all("params" in g for g in given):
        raise ConfigError(
            f"{name}: Each parameter group passed-in via `params` must have a 'params' key mapping "
            "to the parameters in the group"
        )
    return [dict(g) for g in given] if all(dicts) else given


def _one_type(groups: list[dict[str, Any]]) -> None:
    params = [p for group in groups for p in group["params"]]
    found = [("sparse " if p.is_sparse else "") + str(p.dtype) for p in params]
    wrong = next((f for f in found if f != found[0] or f.startswith("sparse")), None)
    if wrong is not None:
        raise ConfigError(
            "ZeroRedundancyOptimizer only supports using the same dense type for all parameters "
            f"but got {found[0]} and {wrong}; make one optimizer per type"
        )


__all__ = ["ZeroRedundancyOptimizer"]
