"""What programs ask of a wrapper now and then: join blocks, reports, hooks for buffers, another
group. Knows the wrapper's attributes, not how it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from ...core.grad_mode import no_grad
from ...errors import AutogradError
from ..join import Join, JoinHook
from .joining import Shadow
from .report import logging_data, text


class BufferCommHookLocation(Enum):
    """When a hook for buffers runs."""

    PRE_FORWARD = auto()
    POST_FORWARD = auto()


class Aside:
    """The methods of ``DistributedDataParallel`` beside forward and backward."""

    reducer: Any
    process_group: Any
    module: Any

    # --- uneven inputs --------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A block around a loop in which ranks may have different numbers of inputs.

        A rank that has left it takes part with zeros until all have; in the end all have the model
        of a rank that trained to the end. Gradients are divided by the number of all ranks, or of
        those that still have input (``divide_by_initial_world_size=False``); ``weight`` gives the
        exact mean over samples. ``throw_on_early_termination``: all raise ``CommError`` as soon as
        one rank has no more input.
        """
        this: Any = self
        return Join(
            [this], enable, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without input does."""
        return Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.reducer.params[0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # --- what it costs --------------------------------------------------------------------------

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Settings, sizes and times, under PyTorch's keys."""
        return logging_data(self)

    def report(self) -> str:
        """For people: where the time of a step goes, bytes, and which rank the others wait for."""
        return text(self)

    # --- buffers --------------------------------------------------------------------------------

    def _register_buffer_comm_hook(
        self, state: Any, hook: Callable[[Any, dict], Any],
        comm_hook_location: BufferCommHookLocation = BufferCommHookLocation.POST_FORWARD,
    ) -> None:  # fmt: skip
        """Let ``hook(state, {name: buffer})`` synchronise the buffers, before or after forward,
        instead of a broadcast. Futures that it returns are waited for at the end of backward."""
        if not callable(hook):
            raise TypeError(f"hook must be callable, got {type(hook).__name__}")
        self.__dict__["buffer_hook"] = (hook, state, comm_hook_location)

    def _ask_buffer_hook(self, where: BufferCommHookLocation) -> None:
        hook, state, location = self.__dict__["buffer_hook"]
        named = dict(self.module.named_buffers())
        if location is where and named:
            with no_grad():
                self.reducer.futures += hook(state, named) or ()

    # --- the reducer ----------------------------------------------------------------------------

    def _remove_autograd_hooks(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.reducer.detach()

    def _check_reducer_finalized(self) -> None:
        """Raise unless the last backward has ended with its reduction."""
        if self.reducer.phase:
            raise AutogradError(
                "DistributedDataParallel: Expected to have finished reduction in the prior "
                "iteration: a forward has had no backward yet, or one that broke off"
            )

    def _update_process_group(self, new_process_group: Any) -> None:
        """Average over another group from now on. All its ranks call it between two steps; they
        hold the same parameters."""
        self.__dict__["process_group"] = new_process_group
        self.reducer.move(new_process_group)
