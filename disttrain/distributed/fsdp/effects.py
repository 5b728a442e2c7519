"""What a root does around calls of its units, in forward and in backward, as effects: a captured
step does it again each time, at the same places.

Knows roots, units and calls by their methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...context import thread
from ...core.effects import Effect, not_repeated, performed
from ...core.tensor import Tensor

__outward__ = ()


def begin(root: Any, unit: Any, recorded: bool) -> Any:
    """A call of ``unit`` begins; its weights are there afterwards. ``recorded``: a backward may
    come to it."""
    if not thread.stack:
        return root.begin(unit, recorded)
    effect = _Begin(root, unit, recorded)
    call = performed("fsdp_begin", effect)
    if call is not None:
        call.effect = effect
    root.open_effects.append(effect)
    return call


def end(root: Any, unit: Any, call: Any) -> None:
    """A call of ``unit`` has ended."""
    if thread.stack and root.open_effects:
        fulls = unit.fulls()
        effect = _End(root.open_effects.pop())
        performed("fsdp_end", effect, fulls, range(len(fulls)))
    else:
        root.end(unit, call)


def broke_off(root: Any, unit: Any, complete: bool) -> None:
    """A call of ``unit`` has raised; ``complete``: since the rest of it is not needed."""
    if not thread.stack or not root.open_effects:
        root.broke_off(unit)
        return
    if not complete:
        not_repeated("a call of a unit of fully_shard raises")
    fulls = unit.fulls()
    performed("fsdp_stop", _Stop(root.open_effects.pop()), fulls, range(len(fulls)))


def enter(root: Any, call: Any, tensors: bool) -> None:
    """Backward has come to the outputs of ``call``. ``tensors``: it walks with Tensors."""
    effect = call.effect
    if not thread.stack or effect is None:
        if thread.stack:
            not_repeated("it runs backward through a graph of fully_shard that was made outside")
        root.enter(call)
        return
    if tensors and thread.grad_enabled:
        not_repeated("create_graph=True goes through fully_shard")
    performed("fsdp_enter", _Enter(effect))


def leave(root: Any, call: Any) -> None:
    """All that was recorded since the beginning of ``call`` has run."""
    if not thread.stack or call.effect is None:
        root.leave(call)
        return
    fulls = call.unit.fulls()
    performed("fsdp_leave", _Leave(call.effect), fulls, range(len(fulls)))


def choose(choices: list[Any], values: dict[str, Any]) -> None:
    """Units are told what to do from now on."""
    performed("fsdp_choose", _Choose(choices, values))


class _Choose(Effect):
    def __init__(self, choices: list[Any], values: dict[str, Any]) -> None:
        self.choices, self.values = choices, values

    def __call__(self, *tensors: Tensor) -> None:
        for one in self.choices:
            for name, value in self.values.items():
                setattr(one, name, value)

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"<{told} of {len(self.choices)} units>"


class Shown:
    """What a unit shows of its weights, while a program runs without numbers."""

    def __init__(self, unit: Any) -> None:
        self.unit, self.was, self.open_call = unit, unit.shown, unit.open_call
        self.arrays = [m.full.__dict__.get("array") for m in unit.members]

    def give(self, arrays: Sequence[Any]) -> bool:
        """Let the full weights have ``arrays``, or what they have; whether they can."""
        fulls = [m.full for m in self.unit.members]
        if arrays and (len(arrays) < len(fulls) or any(m.spread for m in self.unit.members)):
            return False
        for full, array in zip(fulls, arrays, strict=False):
            full.array = array
        self.unit.show()
        return True

    def put_back(self) -> None:
        """As it was before."""
        for m, array in zip(self.unit.members, self.arrays, strict=True):
            m.full.__dict__.pop("array", None)
            if array is not None:
                m.full.array = array
        self.unit.open_call = self.open_call
        self.unit.show() if self.was else self.unit.hide()


class _Begin(Effect):
    """``call``: that of the last run. ``running``: whether it has not ended. ``first``: whether it
    begins a forward of the root, which drops what was gathered before."""

    def __init__(self, root: Any, unit: Any, recorded: bool) -> None:
        self.root, self.unit, self.recorded = root, unit, recorded
        self.first = root.depth == 0
        self.call: Any = None
        self.running = False
        self.given: list[Tensor] | None = None

    def __call__(self, *tensors: Tensor) -> Any:
        self.call = self.root.begin(self.unit, self.recorded)
        self.running = True
        if self.given is None:
            self.given = self.unit.fulls()
        return self.call

    def gives(self) -> Sequence[Tensor]:
        return self.given or ()

    def rehearse(self, arrays: Sequence[Any]) -> Any:
        self.shown = Shown(self.unit)
        if not self.shown.give(arrays):
            return NotImplemented
        self.call = self.root.rehearse(self.unit, self.recorded)
        return self.call

    def forget(self) -> None:
        self.shown.put_back()
        if self in self.root.open_effects:  # it has been broken off
            self.root.open_effects.remove(self)

    def parts(self) -> tuple[Effect, Effect] | None:
        return None if self.first or not self.unit.gathers else (_Ahead(self.unit), self)

    def break_off(self) -> None:
        if self.running:
            self.running = False
            self.root.broke_off(self.unit)

    def __repr__(self) -> str:
        return f"<{self.unit.label}>"


class _Ahead(Effect):
    """The weights of ``unit`` are going to be needed."""

    def __init__(self, unit: Any) -> None:
        self.unit = unit

    def __call__(self, *tensors: Tensor) -> None:
        self.unit.unshard(async_op=True)

    def __repr__(self) -> str:
        return f"<{self.unit.label}>"


class _Part(Effect):
    """What comes later of a call."""

    def __init__(self, begin: _Begin) -> None:
        self.begin = begin

    def __repr__(self) -> str:
        return repr(self.begin)


class _End(_Part):
    @property
    def quiet(self) -> bool:  # type: ignore[override]
        """Whether it drops what this rank alone has."""
        return self.begin.unit.gathers

    def __call__(self, *tensors: Tensor) -> None:
        self.begin.running = False
        self.begin.root.end(self.begin.unit, self.begin.call)

    def rehearse(self, arrays: Sequence[Any]) -> None:
        unit = self.begin.unit
        if unit.choices.reshard_after_forward or self.begin.call is None:
            unit.hide()


class _Stop(_Part):
    def __call__(self, *tensors: Tensor) -> None:
        self.begin.running = False
        self.begin.root.broke_off(self.begin.unit)


class _Enter(_Part):
    given: list[Tensor] | None = None

    def __call__(self, *tensors: Tensor) -> None:
        self.begin.root.enter(self.begin.call)
        if self.given is None:
            self.given = self.begin.unit.fulls()

    def rehearse(self, arrays: Sequence[Any]) -> Any:
        self.shown = Shown(self.begin.unit)
        return None if self.shown.give(arrays) else NotImplemented

    def forget(self) -> None:
        self.shown.put_back()

    def gives(self) -> Sequence[Tensor]:
        return self.given or ()


class _Leave(_Part):
    def __call__(self, *tensors: Tensor) -> None:
        self.begin.root.leave(self.begin.call)

    def rehearse(self, arrays: Sequence[Any]) -> None:
        self.begin.unit.hide()


__all__ = ["begin", "broke_off", "choose", "end", "enter", "leave"]
