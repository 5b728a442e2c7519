"""A program as a module: parameters and buffers under their names, a forward that runs it."""

from __future__ import annotations

from typing import Any

from ..nn import Module, Parameter
from .program import Program


class ProgramModule(Module):
    """Runs ``program``. State dicts, ``parameters()`` and attributes (``m.fc.weight``) are those of
    the module that the program was made of; what is loaded or trained here is what it computes
    with. It runs in the mode that it was made in."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.__dict__["_program"] = program
        self.hold(program)
        self.train(False)

    def hold(self, program: Program) -> None:
        """Have the parameters and buffers of a program, but those that are there."""
        there = {
            n
            for n, _ in (
                *self.named_parameters(remove_duplicate=False),
                *self.named_buffers(remove_duplicate=False),
            )
        }
        for name, t in program.state.items():
            if name in there:
                continue
            *path, last = name.split(".")
            owner: Module = self
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, Module())
                owner = owner._modules[part]  # type: ignore[assignment]
            if name in program.parameters and isinstance(t, Parameter):
                owner.register_parameter(last, t)
            else:
                owner.register_buffer(last, t)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The program's result."""
        self._take_state()
        return self.program(*args, **kwargs)

    def _take_state(self) -> None:
        """Let the program use the tensors that the module has now (``to``, ``load_state_dict``)."""
        state = self.program.state
        places = {t.device for t in (*self.parameters(), *self.buffers())}
        if len(places) == 1 and places != {self.program.device}:
            self.program.to(places.pop())
        for name in state:
            owner: Any = self
            *path, last = name.split(".")
            for part in path:
                owner = owner._modules[part]
            found = owner._parameters.get(last)
            state[name] = owner._buffers[last] if found is None else found

    @property
    def program(self) -> Program:
        """What it runs."""
        found: Program = self.__dict__["_program"]
        return found


__all__ = ["ProgramModule"]
