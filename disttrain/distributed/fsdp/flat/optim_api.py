"""The optimizer state methods of ``FullyShardedDataParallel``, under PyTorch's names.

``optim_state_dict`` and ``optim_state_dict_to_load`` follow ``state_dict_type``; the others say
what they give. See ``optim_save`` and ``optim_load``.
"""

from __future__ import annotations

from typing import Any

from ....comm.group.group import ProcessGroup
from ....nn.module import Module
from ....trace import warn
from ..settings import OptimStateKeyType, StateDictType
from . import optim_load, optim_save
from .state import get_type


def _deprecated(optim_input: object) -> None:
    if optim_input is not None:
        warn("The `optim_input` argument is deprecated; pass the optimizer itself", FutureWarning)


class OptimizerStates:
    """Static methods that take a model with wrappers anywhere in it, and its optimizer."""

    @staticmethod
    def optim_state_dict(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any] | None = None,
        group: ProcessGroup | None = None,
    ) -> dict[str, Any]:
        """The optimizer's state by parameter names, whole or sharded as ``state_dict_type`` of the
        model says. ``optim_state_dict``: take this instead of ``optim.state_dict()``."""
        settings = get_type(model)
        kind = settings.state_dict_type
        if kind is StateDictType.LOCAL_STATE_DICT:
            return optim.state_dict() if optim_state_dict is None else optim_state_dict
        return optim_save.save(
            model, optim, group=group, state_dict=optim_state_dict,
            rank0_only=getattr(settings.optim_state_dict_config, "rank0_only", False),
            sharded=kind is StateDictType.SHARDED_STATE_DICT,
        )  # fmt: skip

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: ProcessGroup | None = None,
    ) -> dict[str, Any]:
        """What ``optim.load_state_dict`` takes, of a dict that ``optim_state_dict`` gave on any
        number of ranks. ``load_directly``: load it, too."""
        settings = get_type(model)
        out = optim_state_dict
        if settings.state_dict_type is not StateDictType.LOCAL_STATE_DICT:
            only = getattr(settings.optim_state_dict_config, "rank0_only", False)
            out = optim_load.to_load(model, optim_state_dict, optim, group=group, from_rank0=only)
        if load_directly:
            optim.load_state_dict(out)
        return out

    @staticmethod
    def full_optim_state_dict(
        model: Module,
        optim: object,
        optim_input: object = None,
        rank0_only: bool = True,
        group: ProcessGroup | None = None,
    ) -> dict[str, Any]:
        """Whole values by parameter names; with ``rank0_only`` an empty dict on other ranks."""
        _deprecated(optim_input)
        return optim_save.save(model, optim, optim_input, group=group, rank0_only=rank0_only)

    @staticmethod
    def sharded_optim_state_dict(
        model: Module, optim: object, group: ProcessGroup | None = None
    ) -> dict[str, Any]:
        """Sharded tensors by parameter names."""
        return optim_save.save(model, optim, group=group, sharded=True)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any],
        model: Module,
        optim_input: object = None,
        optim: object = None,
    ) -> dict[str, Any]:
        """This rank's part of a dict that ``full_optim_state_dict`` gave, which every rank has."""
        _deprecated(optim_input)
        return optim_load.to_load(model, full_optim_state_dict, optim, optim_input)

    @staticmethod
    def flatten_sharded_optim_state_dict(
        sharded_optim_state_dict: dict[str, Any], model: Module, optim: object = None
    ) -> dict[str, Any]:
        """This rank's part of a dict that ``sharded_optim_state_dict`` gave."""
        return optim_load.to_load(model, sharded_optim_state_dict, optim)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None,
        model: Module,
        optim_input: object = None,
        optim: object = None,
        group: ProcessGroup | None = None,
    ) -> dict[str, Any]:
        """This rank's part of a dict that rank 0 alone has."""
        _deprecated(optim_input)
        return optim_load.to_load(
            model, full_optim_state_dict, optim, optim_input, group=group, from_rank0=True
        )

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: object = None,
        optim: object = None,
    ) -> dict[str, Any]:
        """Names for numbers or numbers for names, of a model without wrappers."""
        _deprecated(optim_input)
        return optim_load.rekey(optim_state_dict, optim_state_key_type, model, optim_input, optim)
