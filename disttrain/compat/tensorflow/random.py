"""``tf.random``: TensorFlow's generators over Philox (``disttrain.keyed``), with its numbers.

The same bits as TensorFlow's on a CPU: ``stateless_*`` and ``Generator`` (algorithm Philox) for
uniform floats and integers; operations after ``set_seed`` for the sequence of their seeds, too.
Normal numbers agree to the last digits (sine and logarithm are this machine's). ``shuffle``,
``gamma``, ``poisson`` and ``categorical`` have the right distributions, and numbers of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import disttrain as dt

from ...distributions import samples
from ...keyed import streams
from ...keyed.draws import DrawnStream, Draws
from .arrays import stack
from .dispatch import execute, plain
from .math import made
from .tensor import convert, wrap
from .types import as_dtype
from .variable import Variable


def set_seed(seed: int) -> None:
    """Let all operations that follow draw from ``seed``; also what layers draw."""
    streams.begin(int(seed))
    dt.manual_seed(int(seed))


class _Draws(Draws):
    execute: Any = staticmethod(execute)
    numbers: Any = staticmethod(plain)
    kind: Any = staticmethod(as_dtype)
    stack: Any = staticmethod(stack)
    value: Any = staticmethod(lambda given, kind=None: convert(given, hint=kind))
    numpy_type: Any = staticmethod(lambda kind: kind.as_numpy_dtype)
    combine: Any = staticmethod(lambda fn, *values: fn(*values))


_DRAWS = _Draws()


class Generator(DrawnStream):
    """Random numbers with a state of their own: a counter and a key (Philox)."""

    _state: Any
    draws = _DRAWS
    numbers = staticmethod(plain)
    state = property(lambda self: self._state)
    key = property(lambda self: wrap(self._state._tensor[2]))

    def get(self) -> list[int]:
        found: list[int] = self._state._tensor.tolist()
        return found

    def put(self, state: list[int]) -> None:
        t = convert(np.array(state, np.int64))
        if "_state" in vars(self):
            self._state.assign(t)
        else:
            self._state = Variable(t, trainable=False, name="StateVar")

    def skip(self, delta: Any) -> Any:
        """Go on as if ``delta`` numbers had been drawn."""
        before = wrap(self._state._tensor)
        self.taken(int(plain(delta)))
        return before


NAMES: dict[str, Any] = {
    **{w: getattr(_DRAWS, f"{w}_of_seeds") for w in ("uniform", "normal", "truncated_normal")},
    **{f"stateless_{w}": getattr(_DRAWS, f"{w}_of_seed") for w in (
        "uniform", "normal", "truncated_normal")}, "set_seed": set_seed, "Generator": Generator,
    "get_global_generator": Generator.default,
    "set_global_generator": lambda generator: generator.as_default(),
    "split": _DRAWS.split, "fold_in": _DRAWS.fold_in, **made("""
    - shuffle:RandomShuffle | value! _seed=None;
    - categorical:Multinomial | logits! num_samples dtype@=None _seed=None;
    - gamma:RandomGamma | shape alpha~ beta~=None dtype@='float32' _seed=None;
    - poisson:RandomPoissonV2 | shape lam! dtype@='float32' _seed=None""", (samples,)),
}  # fmt: skip
