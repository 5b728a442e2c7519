"""What generators draw with: a seeded random program that runs on the peer while it is written.

A generator asks for tensors that exist, by what they are (``pick``), for new ones (``leaf``), for
numbers, dims, shapes and indices, and adds statements (``add``). Because every statement has run,
what a later one can be is known. Statements that raise stay in the program now and then: that both
sides raise is compared too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from peers.program import environment, execute, given

FLOATS = ("float32", "float64")
NARROW = ("float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
ALL = (*FLOATS, *NARROW, *COMPLEX, *INTEGERS, "bool")
LARGEST = 3000.0  # values beyond are not kept: what follows would be about rounding
Predicate = Callable[[Any], bool]


def floating(x: Any) -> bool:
    return x.is_floating_point()


def smooth(x: Any) -> bool:
    return x.is_floating_point() or x.is_complex()


def anything(x: Any) -> bool:
    return True


def alive(x: Any) -> bool:
    """Not a part (of unbind, split) whose base was written to: asking it anything raises."""
    try:
        return x.is_leaf in (True, False)
    except RuntimeError:
        return False


class Draw:
    """One program in the making, on ``peer``."""

    def __init__(self, seed: str, peer: Any, ours: Any, dtypes: Sequence[str] = FLOATS) -> None:
        self.rng = random.Random(seed)
        self.peer = peer
        self.ours = ours
        self.dtypes = dtypes
        self.names = environment(peer)
        self.lines: list[str] = []
        self.count = 0
        self.rough: set[str] = set()  # computed with rounding that need not be ours

    # --- statements ------------------------------------------------------------------------------

    def add(self, line: str, keep_errors: float = 0.5) -> bool:
        """Run a statement and keep it; one that raises is kept with a probability."""
        error = execute(line, self.names)
        if error is None or self.rng.random() < keep_errors:
            self.lines.append(line)
        return error is None

    def let(self, text: str | None, rough: bool = False, keep_errors: float = 0.5) -> str | None:
        """``v5 = text``; its name, or None when it raised or its values are too large."""
        if text is None:
            return None
        name = f"v{self.count}"
        error = execute(f"{name} = {text}", self.names)
        if error is None and not self.modest(self.names[name]):
            del self.names[name]
            return None
        if error is None or self.rng.random() < keep_errors:
            self.lines.append(f"{name} = {text}")
            self.count += 1
        if error is not None:
            return None
        if rough or any(n in self.rough for n in self.mentioned(text)):
            self.rough.add(name)
        return name

    def mentioned(self, text: str) -> list[str]:
        return [n for n in self.names if given(n) and n in text]

    def modest(self, x: Any) -> bool:
        if not isinstance(x, self.peer.Tensor):
            return True
        if x.numel() > 20_000 or str(x.dtype).rpartition(".")[2] not in ALL:
            return False
        if x.numel() == 0 or not smooth(x):
            return True
        return bool((x.detach().abs().nan_to_num(0.0, 0.0, 0.0) <= LARGEST).all())

    # --- tensors ---------------------------------------------------------------------------------

    def tensors(self, wanted: Predicate = anything) -> list[str]:
        """Names of the tensors there are."""
        kind = self.peer.Tensor
        return [
            n
            for n, x in self.names.items()
            if given(n) and isinstance(x, kind) and alive(x) and wanted(x)
        ]

    def pick(self, wanted: Predicate = anything) -> str | None:
        """One of them, late ones more often."""
        found = self.tensors(wanted)
        if not found:
            return None
        return self.rng.choice(found[-4:] if self.rng.random() < 0.6 else found)

    def exact(self, wanted: Predicate = anything) -> str | None:
        """One whose values are ours to the last bit, as what jumps needs."""
        found = [n for n in self.tensors(wanted) if n not in self.rough]
        return self.rng.choice(found) if found else None

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def leaf(
        self, shape: Sequence[int], dtype: str | None = None, grad: bool | None = None, **how: Any
    ) -> str:
        """A new tensor of literal values; differentiable ones want a gradient half of the time."""
        dtype = dtype or self.rng.choice(self.dtypes)
        if grad is None:
            grad = self.rng.random() < 0.6
        grad = grad and dtype in (*FLOATS, *NARROW, *COMPLEX)
        name = self.let(self.literal(shape, dtype, grad, **how))
        assert name is not None
        return name

    def literal(
        self, shape: Sequence[int], dtype: str, grad: bool = False, positive: bool = False
    ) -> str:
        """The text of a new tensor."""
        extra = ", requires_grad=True" if grad else ""
        if 0 in shape:
            return f"T.zeros({tuple(shape)}, dtype=T.{dtype}{extra})"
        values = self.nested(shape, lambda: self.value(dtype, positive))
        return f"T.tensor({values}, dtype=T.{dtype}{extra})"

    def nested(self, shape: Sequence[int], value: Callable[[], Any]) -> Any:
        return [self.nested(shape[1:], value) for _ in range(shape[0])] if shape else value()

    def value(self, dtype: str, positive: bool = False) -> Any:
        """Small values on a grid, so that sums and products of narrow types are exact."""
        if dtype == "bool":
            return self.rng.random() < 0.5
        low = 1 if positive else 0 if dtype.startswith("uint") else -9
        if dtype in INTEGERS:
            return self.rng.randint(low if positive or low == 0 else -5, 7)
        if dtype in COMPLEX:
            return complex(self.rng.randint(low, 9) / 4, self.rng.randint(low, 9) / 4)
        return self.rng.randint(low, 12) / 4

    def has(self, path: str) -> bool:
        """Whether both libraries have a name such as "nn.functional.pad" or "Tensor.add_"."""
        for library in (self.peer, self.ours):
            for name in path.split("."):
                library = getattr(library, name, None)
            if library is None:
                return False
        return True

    def call(self, name: str, x: str, arguments: str = "") -> str | None:
        """The text of a call as a method or as a function, whichever there is."""
        forms = []
        if self.has(f"Tensor.{name}"):
            forms.append(f"{x}.{name}({arguments})")
        if self.has(name):
            forms.append(f"T.{name}({x}{', ' if arguments else ''}{arguments})")
        return self.rng.choice(forms) if forms else None

    # --- small things ----------------------------------------------------------------------------

    def shape(
        self, least: int = 0, most: int = 3, sizes: Sequence[int] = (1, 2, 3, 4)
    ) -> list[int]:
        """A shape; seldom one with no elements."""
        shape = [self.rng.choice(sizes) for _ in range(self.rng.randint(least, most))]
        if shape and self.rng.random() < 0.03:
            shape[self.rng.randrange(len(shape))] = 0
        return shape

    def fitting(self, shape: Sequence[int]) -> list[int]:
        """A shape that broadcasts with ``shape``, now and then in the other direction."""
        kind = self.rng.random()
        out = [1 if self.rng.random() < 0.25 else n for n in shape]
        if kind < 0.3:
            return out[self.rng.randint(0, len(out)) :]
        if kind < 0.4 and len(out) < 4:
            return [self.rng.randint(1, 3), *out]
        return out if kind < 0.6 else list(shape)

    def dim(self, x: Any, wrong: float = 0.01) -> int:
        """A dim of ``x``, seldom one that it has not."""
        n = max(1, x.dim())
        if self.rng.random() < wrong:
            return n + 1
        return self.rng.randrange(-n, n)

    def dims(self, x: Any) -> tuple[int, ...]:
        n = max(1, x.dim())
        chosen = self.rng.sample(range(n), self.rng.randint(1, n))
        return tuple(d - n if self.rng.random() < 0.3 else d for d in chosen)

    def number(self, complex_too: bool = False) -> Any:
        """A Python number of any kind."""
        kind = self.rng.random()
        if kind < 0.35:
            return self.rng.choice([-2, -1, 0, 1, 2, 3])
        if kind < 0.9 or not complex_too:
            return self.rng.choice([-1.5, -0.5, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5])
        return self.rng.choice([True, False, 1j, 0.5 + 1.5j])

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def choice(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def factors(self, n: int, most: int = 3) -> list[int]:
        """A shape of ``n`` elements."""
        out: list[int] = []
        while n > 1 and len(out) < most - 1:
            divisors = [k for k in range(1, n + 1) if n % k == 0]
            out.append(self.rng.choice(divisors))
            n //= out[-1]
        self.rng.shuffle(out)
        return [*out, n] if n != 1 or not out else out

    def leads(self, root: str, sources: Sequence[str]) -> bool:
        """Whether the gradient of ``root`` reaches one of ``sources``. (Where it reaches none, the
        peer still calls the hooks of the root, and keeps its gradient; we do nothing.)"""
        x, wanted = self[root], [self[n] for n in sources]
        try:
            found = self.peer.autograd.grad(
                x, wanted, self.peer.ones_like(x), retain_graph=True, allow_unused=True
            )
        except (RuntimeError, TypeError):
            return True
        return any(g is not None for g in found)

    def gradient(self, x: Any) -> str:
        """The text of a cotangent for ``x``: contiguous, transposed, expanded or strided."""
        shape, dtype = list(x.shape), str(x.dtype).rpartition(".")[2]
        kind = self.rng.random()
        if kind < 0.3 and len(shape) >= 2:
            shape[0], shape[-1] = shape[-1], shape[0]
            return f"{self.literal(shape, dtype)}.transpose(0, {len(shape) - 1})"
        if kind < 0.45 and shape:
            return f"{self.literal([1] * len(shape), dtype)}.expand({tuple(shape)})"
        if kind < 0.6 and shape and math.prod(shape):
            return f"{self.literal([*shape[:-1], 2 * shape[-1]], dtype)}[..., ::2]"
        return self.literal(shape, dtype)
