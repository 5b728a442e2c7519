"""Layers of 8-bit integers beside those of float32, written once for both libraries: ``T`` is
``disttrain`` or ``torch``. Each case returns {name of a row: seconds, or a ratio of such}."""

from __future__ import annotations

import copy
import importlib
from typing import Any

from benchmarks.models import median_time


def quantized(T: Any) -> dict[str, float]:
    """Linear 1024x1024 and an LSTM with weights of 8 bits, dynamic; ours with weights alone, too.
    float32 and 8 bits take turns, so that a drift of the machine hits both alike."""
    ours = T.__name__ == "disttrain"
    home = importlib.import_module("disttrain.quantize" if ours else "torch.ao.quantization")
    plain, found = T.nn.Sequential(T.nn.Linear(1024, 1024)).eval(), {}
    models = {"dynamic int8": home.quantize_dynamic(plain)}
    if ours:
        models["int8 weights"] = copy.deepcopy(plain)
        home.quantize_(models["int8 weights"], home.Int8WeightOnlyConfig())
    with T.no_grad():
        for rows in (1, 16, 256):
            x = T.randn(rows, 1024)
            for name, model in models.items():
                times = [(_time(plain, x), _time(model, x)) for _ in range(5)]
                wide, narrow = (sorted(t)[2] for t in zip(*times))
                row = f"{name} Linear 1024x1024, {rows} row{'s' * (rows > 1)}"
                found[f"kernel: {row}"] = narrow
                found[f"ratio: {row}, to float32"] = narrow / wide
        lstm = T.nn.Sequential(T.nn.LSTM(256, 256)).eval()
        x = T.randn(20, 1, 256)
        quick = home.quantize_dynamic(lstm)
        found["kernel: dynamic int8 LSTM, 20 steps, 1 x 256 to 256"] = median_time(
            lambda: quick(x), 7, 3
        )
    return found


def _time(model: Any, x: Any) -> float:
    return median_time(lambda: model(x), 7, 20)
