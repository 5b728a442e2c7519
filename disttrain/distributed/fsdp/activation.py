"""Modules whose activations are recomputed in backward, or kept on the CPU until then.

The wrappers keep the names of what they wrap: ``named_parameters`` and state dicts are those of the
module itself, so that a checkpoint fits the model with and without them. How recomputation works is
in ``core.backward.checkpoint``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from ... import nn
from ...autograd.graph import save_on_cpu
from ...core.backward.checkpoint import checkpoint
from ...errors import ConfigError
from ...nn.module import Module
from .names import ACTIVATION, clean_tensor_name, replace_prefix
from .wrap import _Policy, _recursive_wrap, lambda_auto_wrap_policy, wrap_chosen

_PREFIX = f"{ACTIVATION}."
__outward__ = ()


class CheckpointImpl(Enum):
    """The way of recomputing; see ``core.backward.checkpoint``."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(nn.Module):
    """A module in a wrapper that its names do not show. Attributes that the wrapper lacks, and
    items, are the module's."""

    _checkpoint_wrapped_module: Any

    def __init__(self, mod: nn.Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_shorten)
        self.register_load_state_dict_pre_hook(_lengthen)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"{type(self).__name__}: subclasses of ActivationWrapper define forward")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == ACTIVATION:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Parameters under the names of the module that is wrapped."""
        for name, param in super().named_parameters(*args, **kwargs):
            yield clean_tensor_name(name), param


def _shorten(module: Module, state: dict, prefix: str, metadata: dict) -> None:
    replace_prefix(state, prefix + _PREFIX, prefix)


def _lengthen(module: Module, state: dict, prefix: str, *rest: bool | dict | list) -> None:
    replace_prefix(state, prefix, prefix + _PREFIX)


class OffloadWrapper(ActivationWrapper):
    """Keeps what the module saves for backward on the CPU."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Saves the module's arguments alone and runs it again in backward."""

    def __init__(
        self,
        mod: nn.Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = checkpoint
            reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
            checkpoint_fn_kwargs = {"use_reentrant": reentrant, **checkpoint_fn_kwargs}
        self.checkpoint_fn: Any = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self._checkpoint_wrapped_module
        if not kwargs or self.checkpoint_impl is not CheckpointImpl.REENTRANT:
            return self.checkpoint_fn(module, *args, **kwargs)
        names, n = list(kwargs), len(args)

        def by_position(*values: object) -> Any:
            return module(*values[:n], **dict(zip(names, values[n:], strict=True)))

        return self.checkpoint_fn(by_position, *args, *kwargs.values())


def checkpoint_wrapper(
    module: nn.Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable | None = None,
    **checkpoint_fn_kwargs: object,
) -> nn.Module:
    """``module``, recomputed in backward by ``checkpoint_fn(module, *args, **kwargs)`` (None: the
    project's own, in the way that ``checkpoint_impl`` says)."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: nn.Module) -> nn.Module:
    """``module``, with what it saves for backward on the CPU."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: nn.Module,
    checkpoint_wrapper_fn: Callable = checkpoint_wrapper,
    check_fn: Callable[[nn.Module], bool] = lambda module: True,
    auto_wrap_policy: object = None,
) -> None:
    """Wrap, in place, the modules below ``model`` that ``check_fn`` (or an auto-wrap policy, which
    counts more) chooses."""
    policy = auto_wrap_policy
    if policy is None:
        policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    if isinstance(policy, _Policy):
        wrap_chosen(model, policy._run_policy(model, set(), {}), checkpoint_wrapper_fn)
    elif callable(policy):
        _recursive_wrap(model, policy, checkpoint_wrapper_fn, set(), set(), True)
    else:
        raise ConfigError(
            f"apply_activation_checkpointing: auto_wrap_policy={policy!r} given; needed is a "
            "function or a policy object such as ModuleWrapPolicy"
        )
