"""RNN, LSTM, GRU and their cells.

What happens along a sequence is ``nn/recurrence.py``'s. Gates stand in PyTorch's order: LSTM i f g
o, GRU r z n.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from ... import ops
from ...context import thread
from ...core import Tensor
from ...core.annotations import DeviceLike, DTypeLike
from ...errors import ConfigError, ShapeError
from .. import functional as F
from .. import init, ragged
from ..module import Module
from ..packed import PackedSequence
from ..parameter import Parameter, empty
from ..recurrence import STEPS, Step, along, product


def _nonlinear_mode(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ConfigError(f"RNN: Unknown nonlinearity {nonlinearity!r}; needed 'tanh' or 'relu'")
    return f"RNN_{nonlinearity.upper()}"


class RNNBase(Module):
    """Layers, directions and parameters of a recurrent network over a sequence."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if min(input_size, hidden_size, num_layers) < 1 or not 0 <= dropout <= 1:
            raise ConfigError(
                f"{name}: input_size={input_size}, hidden_size={hidden_size}, "
                f"num_layers={num_layers}, dropout={dropout} given; sizes must be positive and "
                "dropout lie in [0, 1]"
            )
        if proj_size and mode != "LSTM":
            raise ConfigError(
                f"{name}: proj_size argument is only supported for LSTM, not RNN or GRU"
            )
        if not 0 <= proj_size < hidden_size:
            raise ConfigError(
                f"{name}: proj_size={proj_size} given; it has to be smaller than hidden_size="
                f"{hidden_size} and not negative"
            )
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, proj_size
        gates = STEPS[mode][1] * hidden_size
        for layer, suffix in self._passes():
            state = self._widths[0]
            width = state * self._directions if layer else input_size
            shapes: dict[str, tuple] = {"weight_ih": (gates, width), "weight_hh": (gates, state)}
            if bias:
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for key, shape in shapes.items():
                self.register_parameter(key + suffix, Parameter(empty(shape, dtype, device)))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _widths(self) -> tuple[int, ...]:
        """The features of each tensor of the state."""
        first = self.proj_size or self.hidden_size
        return (first, self.hidden_size)[: STEPS[self.mode][2]]

    def _passes(self) -> Iterator[tuple[int, str]]:
        """Every pass over the sequence: its layer and the ending of its parameters' names."""
        for layer in range(self.num_layers):
            yield layer, f"_l{layer}"
            if self.bidirectional:
                yield layer, f"_l{layer}_reverse"

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of every pass."""
        keys = ("weight_ih", "weight_hh") + (("bias_ih", "bias_hh") if self.bias else ())
        keys += ("weight_hr",) if self.proj_size else ()
        return [[getattr(self, k + suffix) for k in keys] for _, suffix in self._passes()]

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: here the parameters of a layer need not lie side by side."""

    def _start(
        self, x: Tensor, rows: int, states: tuple | None, batched: bool, order: Tensor | None
    ) -> list[tuple]:
        """The initial state of every pass, tensors (N, features). ``order``: of the sequences."""
        count = self.num_layers * self._directions
        if states is None:
            zeros = {n: ops.zeros(rows, n, dtype=x.dtype, device=x.device) for n in {*self._widths}}
            return [tuple(zeros[n] for n in self._widths)] * count
        for state, width in zip(states, self._widths, strict=True):
            needed = (count, rows, width) if batched else (count, width)
            if tuple(state.shape) != needed:
                raise ShapeError(
                    f"{self!r}: initial state of shape {list(state.shape)} given; needed "
                    f"{list(needed)}: (num_layers * num_directions, "
                    f"{'batch, ' if batched else ''}hidden_size)"
                )
        if not batched:
            states = tuple(s.unsqueeze(1) for s in states)
        if order is not None:
            states = tuple(s.index_select(1, order) for s in states)
        return [tuple(s[k] for s in states) for k in range(count)]

    def _lowered(self, data: Tensor, states: tuple | None, packed: bool) -> tuple:
        """Under autocast a layer is one operation in the lower type; on the CPU the LSTM alone is,
        without projections, of sequences that are not packed."""
        chooser = thread.autocast
        one = not packed and self.mode == "LSTM" and not self.proj_size
        if chooser is None or (chooser.kind == "cpu" and not one):
            return data, states
        return chooser.lower(data), chooser.lower(states)

    def _run(self, input: Any, states: tuple | None) -> tuple[Any, tuple]:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, states)
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            order = "(batch, time, " if self.batch_first else "(time, batch, "
            raise ShapeError(
                f"{self!r}: input of shape {list(input.shape)} given; needed {order}input_size="
                f"{self.input_size}), or without the batch"
            )
        input, states = self._lowered(input, states, False)
        batched = input.ndim == 3
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        if self.batch_first:
            x = x.transpose(0, 1)
        start = self._start(x, x.shape[1], states, batched, None)
        out, final = self._layers(x, start, along)
        if self.batch_first:
            out = out.transpose(0, 1)
        if not batched:
            out = out.squeeze(0 if self.batch_first else 1)
            final = tuple(s.squeeze(1) for s in final)
        return out, final

    def _run_packed(self, input: PackedSequence, states: tuple | None) -> tuple[Any, tuple]:
        """The same for sequences of different lengths; states are in the order they came in."""
        data = input.data
        if data.ndim != 2 or data.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self!r}: packed data of shape {list(data.shape)} given; needed (all steps, "
                f"input_size={self.input_size})"
            )
        data, states = self._lowered(data, states, True)
        sizes = input.batch_sizes
        if isinstance(sizes, ragged.Lengths):
            rows, along = sizes.lengths.shape[0], functools.partial(ragged.passed, sizes)
        else:
            sizes = sizes.tolist()
            rows, along = sizes[0], functools.partial(self._along_packed, sizes)
        start = self._start(data, rows, states, True, input.sorted_indices)
        out, final = self._layers(data, start, along)
        if input.unsorted_indices is not None:
            final = tuple(s.index_select(1, input.unsorted_indices) for s in final)
        return PackedSequence(out, *input[1:]), final

    def _layers(self, x: Tensor, start: list[tuple], along: Callable) -> tuple[Tensor, tuple]:
        """All passes over ``x``; ``along`` does one."""
        ends = []
        outputs: list[Tensor] = []
        for number, (layer, suffix) in enumerate(self._passes()):
            if layer and number % self._directions == 0:
                x = outputs[0] if len(outputs) == 1 else ops.cat(outputs, -1)
                x = F.dropout(x, self.dropout, self.training)
                outputs = []
            step = self._step_of(suffix)
            out, end = along(x, start[number], step, suffix.endswith("_reverse"))
            outputs.append(out)
            ends.append(end)
        out = outputs[0] if len(outputs) == 1 else ops.cat(outputs, -1)
        if len(ends) == 1:
            return out, ends[0]
        return out, tuple(ops.cat(list(parts)) for parts in zip(*ends, strict=True))

    def _step_of(self, suffix: str) -> Step:
        """One step of one pass."""
        w_ih, w_hh = getattr(self, "weight_ih" + suffix), getattr(self, "weight_hh" + suffix)
        b_ih: Any = getattr(self, "bias_ih" + suffix) if self.bias else None
        b_hh: Any = getattr(self, "bias_hh" + suffix) if self.bias else None
        if self.bias and self.mode != "GRU":  # whose last gate takes them apart
            b_ih, b_hh = None, b_ih + b_hh
        w_hr: Any = getattr(self, "weight_hr" + suffix) if self.proj_size else None
        return Step(self.mode, w_hh, b_hh, w_hr, (w_ih, b_ih))

    @staticmethod
    def _along_packed(
        sizes: list[int], x: Tensor, start: tuple, step: Step, backwards: bool
    ) -> tuple[Tensor, tuple]:
        """One pass over packed steps, as many at a time as have the same sequences: forwards the
        sequences that end leave the state, backwards they enter it."""
        runs = [(size, len(list(same))) for size, same in itertools.groupby(sizes)]
        parts = list(ops.split(x, [size * count for size, count in runs], 0))
        order = range(len(runs))
        outs: list[Any] = [None] * len(runs)
        ended: list[tuple] = []
        state = tuple(s[: sizes[-1]] for s in start) if backwards else start
        for k in reversed(order) if backwards else order:
            have, (need, count) = state[0].shape[0], runs[k]
            if have < need:
                state = tuple(ops.cat([s, b[have:need]]) for s, b in zip(state, start))
            elif have > need:
                ended.append(tuple(s[need:] for s in state))
                state = tuple(s[:need] for s in state)
            out, last = along(parts[k].reshape(count, need, -1), state, step, backwards)
            state = tuple(s[0] for s in last)
            outs[k] = out.reshape(count * need, -1)
        ended.append(state)
        final = tuple(ops.cat(list(parts)) for parts in zip(*reversed(ended)))
        return ops.cat(outs), tuple(s.unsqueeze(0) for s in final)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, value in {**usual, "bidirectional": False, "proj_size": 0}.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh); forward(input, h0=None) -> output, h_n."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs = dict(kwargs)
        if len(args) > 3:
            kwargs["nonlinearity"], args = args[3], (*args[:3], *args[4:])
        self.__dict__["nonlinearity"] = kwargs.pop("nonlinearity", "tanh")
        kind = self.__dict__["nonlinearity"]
        super().__init__(_nonlinear_mode(kind), *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        out, (h,) = self._run(input, None if hx is None else (hx,))
        return out, h


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al., 2014); forward(input, h0=None) -> output, h_n."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        out, (h,) = self._run(input, None if hx is None else (hx,))
        return out, h


class LSTM(RNNBase):
    """Long short-term memory; forward(input, (h0, c0)=None) -> output, (h_n, c_n)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Any, hx: tuple | None = None) -> tuple[Any, tuple]:
        if hx is not None and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise TypeError("LSTM: the initial state must be a tuple (h0, c0)")
        return self._run(input, None if hx is None else tuple(hx))


class RNNCellBase(Module):
    """One step, with its own parameters: ``num_chunks`` gates of each."""

    mode: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        num_chunks: int | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = (STEPS[self.mode][1] if num_chunks is None else num_chunks) * hidden_size
        self.weight_ih = Parameter(empty((gates, input_size), dtype, device))
        self.weight_hh = Parameter(empty((gates, hidden_size), dtype, device))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(empty((gates,), dtype, device)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, input: Tensor, states: tuple | None) -> tuple:
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self!r}: input of shape {list(input.shape)} given; needed "
                f"(N, {self.input_size}) or ({self.input_size})"
            )
        step, _, count = STEPS[self.mode]
        if states is None:
            shape = (*input.shape[:-1], self.hidden_size)
            states = (ops.zeros(*shape, dtype=input.dtype, device=input.device),) * count
        for state in states:
            if tuple(state.shape) != (*input.shape[:-1], self.hidden_size):
                raise ShapeError(
                    f"{self!r}: state of shape {list(state.shape)} given for an input of shape "
                    f"{list(input.shape)}; needed {[*input.shape[:-1], self.hidden_size]}"
                )
        if thread.autocast is not None:
            states = thread.autocast.lower_state(tuple(states))
        x = product(input, self.weight_ih, self.bias_ih)
        return step(x, states, self.weight_hh, self.bias_hh)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias=False"


class RNNCell(RNNCellBase):
    """One step of RNN: forward(input, h=None) -> h'."""

    mode = "RNN_TANH"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self.__dict__["mode"] = _nonlinear_mode(nonlinearity)
        super().__init__(input_size, hidden_size, bias, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,))[0]


class _GatedCell(RNNCellBase):
    """One step of a network with gates."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, device=device, dtype=dtype)


class GRUCell(_GatedCell):
    """One step of GRU: forward(input, h=None) -> h'."""

    mode = "GRU"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,))[0]


class LSTMCell(_GatedCell):
    """One step of LSTM: forward(input, (h, c)=None) -> (h', c')."""

    mode = "LSTM"

    def forward(self, input: Tensor, hx: tuple | None = None) -> tuple[Tensor, Tensor]:
        return self._step(input, None if hx is None else tuple(hx))
