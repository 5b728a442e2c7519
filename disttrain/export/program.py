"""``Program``: a function or module as data, which runs without the Python that made it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..compile.compiled import compile as compiled
from ..core.grad_mode import no_grad
from ..core.tensor import Tensor, wrap
from ..core.types.device import CPU, usable
from ..errors import ConfigError, DTypeError, ShapeError
from ..nn import Parameter
from . import trees
from .dims import Dim
from .ranges import disagreement
from .running import Runner
from .sizes import Size
from .values import Graph, Node, Value


@dataclass(frozen=True)
class Signature:
    """How a program is called: the structure of its arguments, by name in order (those from
    ``keyword_only`` on by keyword alone), and of its result."""

    arguments: Mapping[str, dict]
    result: dict
    positional: int


@dataclass(eq=False, repr=False)
class Program:
    """A captured program: declared primitives on named values, and nothing else.

    ``inputs``, ``outputs``: a ``Value`` (name, shape, dtype) for each tensor that goes in and comes
    out; ``dims``: the dimensions that may change, by name, with their ranges; ``state``: parameters
    and buffers by qualified name; ``constants``: other tensors; ``nodes``: the operations in
    order; ``values``: every value by its name; ``relations``: what must hold of dimensions besides
    their ranges, with the lines that need it; ``writes``: what a call changes, as pairs of the
    state's (or input's) name and the name of the new value; ``examples``: the sizes of ``dims``
    that it was made with.

    Called with the arguments of the original it gives its result, with gradients where they are
    recorded; ``run`` takes and gives arrays by name.
    """

    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    dims: dict[str, Dim]
    state: dict[str, Tensor]
    constants: dict[str, Tensor]
    signature: Signature
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    relations: tuple[tuple[Size, str], ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    examples: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    device: Any = CPU
    doubted: bool = False  # it comes from a file: shapes are checked for every new set of sizes

    def __post_init__(self) -> None:
        self._runner = Runner(self)
        self._checked: set[tuple[int, ...]] = set()
        self._seen: set[tuple[int, ...]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    # --- reading ------------------------------------------------------------------------------
    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operations, in order."""
        return self.graph.nodes

    @property
    def values(self) -> dict[str, Value]:
        """Every value by its name."""
        return self.graph.values

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the values that ``outputs`` are, in the same order."""
        return self.graph.outputs

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """State and constants, by name."""
        yield from self.state.items()
        yield from self.constants.items()

    def __str__(self) -> str:
        ins = ", ".join(map(str, self.inputs))
        outs = ", ".join(map(str, self.outputs))
        dims = "".join(f"\n  {d.name}: {d.range()}" for d in self.dims.values())
        return f"program ({ins}) -> ({outs}){dims}\n{self.graph}"

    __repr__ = __str__

    @property
    def __signature__(self) -> inspect.Signature:
        """How it is called."""
        spec, count = self.signature.arguments, self.signature.positional
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return inspect.Signature(
            [inspect.Parameter(n, kinds[i >= count]) for i, n in enumerate(spec)]
        )

    # --- calls --------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result, as the original gives it, for such arguments as it was made with."""
        result, writes = self._called(args, kwargs)
        for target, new in writes:
            target.copy_(new)
        return result

    def trial(self, *args: Any, **kwargs: Any) -> Any:
        """The result of a call that writes to nothing."""
        return self._called(args, kwargs)[0]

    def _called(self, args: tuple, kwargs: dict) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
        given = [self._tensor(v, where, t) for v, (where, t) in
                 zip(self.inputs, self._leaves(args, kwargs), strict=True)]  # fmt: skip
        sizes = self.sizes(
            {v.name: tuple(t.shape) for v, t in zip(self.inputs, given, strict=True)}
        )
        doubt = self._doubts(sizes)
        found, writes = self._runner.tensors(given, sizes, doubt)
        self._saw(sizes, doubt)
        return trees.put_together(self.signature.result, iter(found), sizes), writes

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Arrays by the names of ``outputs``, for arrays by those of ``inputs``. Nothing is
        recorded; inputs stay as they are."""
        missing = [v.name for v in self.inputs if v.name not in inputs]
        extra = [n for n in inputs if n not in {v.name for v in self.inputs}]
        if missing or extra:
            raise ConfigError(
                f"program: inputs {sorted(map(str, inputs))} given; needed are "
                f"{[v.name for v in self.inputs]}"
            )
        arrays = [self._array(v, inputs[v.name]) for v in self.inputs]
        sizes = self.sizes({v.name: a.shape for v, a in zip(self.inputs, arrays, strict=True)})
        doubt = self._doubts(sizes)
        if self.device.type == "cpu":
            found = self._runner.arrays(arrays, sizes, doubt)
        else:
            with no_grad():
                given = [wrap(a).to(self.device) for a in arrays]
                outs, writes = self._runner.tensors(given, sizes, doubt)
                for target, new in writes:
                    target.copy_(new)
                found = [t.cpu().array for t in outs]
        self._saw(sizes, doubt)
        return {v.name: a for v, a in zip(self.outputs, found, strict=True)}

    def to(self, device: Any) -> Program:
        """Itself, with its tensors on ``device``, where inputs are to be from now on (``run`` takes
        and gives arrays of the host all the same)."""
        self.device = usable(device)
        for held in (self.state, self.constants):
            for name, t in held.items():
                moved = t.detach().to(self.device)
                if isinstance(t, Parameter):
                    moved = Parameter(moved, requires_grad=t.requires_grad)
                held[name] = moved
        self._runner = Runner(self)
        return self

    def compile(self, **options: Any) -> Callable[..., Any]:
        """The same, through the compiler; ``options`` are ``dt.compile``'s."""
        made: Callable[..., Any] = compiled(self.__call__, **options)
        return made

    def save(self, path: Any) -> None:
        """Write it to ``path``: one file (``m.dtp``, also an open one), or, where ``path`` has no
        suffix, a folder with ``graph.json`` and ``model.safetensors``."""
        _SAVERS[-1](self, path)

    # --- checks -------------------------------------------------------------------------------
    def sizes(self, shapes: Mapping[str, tuple]) -> dict[str, int]:
        """The sizes of ``dims`` in inputs of these shapes. Raises ``ShapeError`` where one does not
        fit."""
        found: dict[str, int] = {}
        where: dict[str, str] = {}
        for v in self.inputs:
            shape = shapes[v.name]
            if len(shape) != len(v.shape):
                raise ShapeError(f"{v.name}: shape {list(shape)} given; {_shown(v)} is needed")
            for d, (n, want) in enumerate(zip(shape, v.shape, strict=True)):
                if not isinstance(want, Size):
                    if n != want:
                        raise ShapeError(
                            f"{v.name}: dimension {d} is {n}; {want} is needed (shape "
                            f"{list(shape)} given, {_shown(v)} is needed)"
                        )
                elif want.alone:
                    self._take_size(want.text, n, f"dimension {d} of {v.name}", found, where)
        for v in self.inputs:
            for d, want in enumerate(v.shape):
                if isinstance(want, Size) and want.evaluate(found) != shapes[v.name][d]:
                    raise ShapeError(f"{v.name}: dimension {d} is {shapes[v.name][d]}; {want} is "
                                     f"needed, which is {want.evaluate(found)}")  # fmt: skip
        for relation, line in self.relations:
            if not relation.evaluate(found):
                told = ", ".join(f"{n}={found[n]}" for n in sorted(relation.names))
                raise ShapeError(f"program: {relation} is needed at {line}; {told} given")
        if self.doubted:
            self._check(found)
        return found

    def _check(self, sizes: dict[str, int]) -> None:
        """That shapes are what the rules of primitives say of these sizes."""
        key = self._key(sizes)
        if key not in self._checked:
            why = disagreement(self, sizes)
            if why is not None:
                raise ShapeError(f"program: {why}, for {sizes}")
            _keep(self._checked, key)

    def _key(self, sizes: dict[str, int]) -> tuple[int, ...]:
        return tuple(sizes.get(name, 0) for name in self.dims)

    def _doubts(self, sizes: dict[str, int]) -> bool:
        """Whether it was not seen yet that values have their shapes for these sizes."""
        return self.doubted and self._key(sizes) not in self._seen

    def _saw(self, sizes: dict[str, int], doubt: bool) -> None:
        if doubt:
            _keep(self._seen, self._key(sizes))

    def _take_size(self, name: str, n: int, at: str, found: dict, where: dict) -> None:
        dim = self.dims[name]
        if name in found and found[name] != n:
            raise ShapeError(f"{at} is {n}; {where[name]} is {found[name]}; both are {name!r}, and "
                             "must be equal")  # fmt: skip
        if n < dim.min or (dim.max is not None and n > dim.max):
            raise ShapeError(f"{at} is {n}; {name!r} is {dim.range()}")
        found[name], where[name] = n, at

    def _leaves(self, args: tuple, kwargs: dict) -> list[tuple[str, Any]]:
        spec = self.signature.arguments
        if len(args) > self.signature.positional:
            raise ConfigError(f"program: {len(args)} arguments by position given; "
                              f"{self.signature.positional} are taken: {list(spec)}")  # fmt: skip
        given = dict(zip(spec, args, strict=False))
        twice = [k for k in kwargs if k in given]
        unknown = [k for k in kwargs if k not in spec]
        if twice or unknown:
            raise ConfigError(f"program: argument {(twice + unknown)[0]!r} is "
                              f"{'given twice' if twice else 'not known'}; the arguments are "
                              f"{', '.join(spec)}")  # fmt: skip
        given.update(kwargs)
        found: list[tuple[str, Any]] = []
        for name, part in spec.items():
            if name in given:
                trees.take_apart(part, given[name], name, found)
            elif trees.count(part):
                raise ConfigError(f"program: argument {name!r} is missing")
        return found

    def _tensor(self, value: Value, where: str, given: Any) -> Tensor:
        t = wrap(given) if isinstance(given, np.ndarray) else given
        if not isinstance(t, Tensor):
            raise DTypeError(f"{where}: {type(given).__name__} given; a tensor is needed")
        if t.meta()[1] != value.dtype:
            raise DTypeError(f"{where}: {t.meta()[1]} given; {value.dtype} is needed")
        return t

    def _array(self, value: Value, given: Any) -> np.ndarray:
        given = given.detach().array if isinstance(given, Tensor) else given
        given = np.asarray(given) if isinstance(given, np.generic) else given
        if not isinstance(given, np.ndarray):
            raise DTypeError(f"{value.name}: {type(given).__name__} given; an array is needed")
        if given.dtype != value.dtype:
            raise DTypeError(f"{value.name}: {given.dtype} given; {value.dtype} is needed")
        return given


def _shown(value: Value) -> str:
    return f"[{', '.join(map(str, value.shape))}]"


_CHECKED = 4096  # sets of sizes that are known to be right


def _keep(known: set, key: tuple) -> None:
    if len(known) >= _CHECKED:
        known.clear()
    known.add(key)


_SAVERS: list[Callable[[Program, Any], None]] = []


def provide(save: Callable[[Program, Any], None]) -> None:
    """Let programs be saved by ``save`` (``files``, which reads them, too)."""
    _SAVERS.append(save)


__all__ = ["Program", "Signature", "provide"]
