"""Published measurements of trainings, as cases that the cost model is held against.

Each table is a CSV with its source and licence. A case is in the half that calibrates or in the
half that is only scored by the hash of its key, so that nobody chooses.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .constants import DATA
from .layouts import DDP, FSDP, FULL, NONE, ZERO1, Layout
from .transformer import Transformer


@dataclass(frozen=True)
class Case:
    """A training that was measured: ``seconds`` of a step, ``memory`` in bytes (0: not told)."""

    table: str
    key: str
    cluster: str
    stack: str
    model: Transformer
    layout: Layout
    seconds: float
    memory: float = 0.0

    @property
    def scored(self) -> bool:
        """Whether it is in the half that is never fitted to."""
        return bool(zlib.crc32(f"{self.table} {self.key}".encode()) & 1)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / f"{name}.csv").open(newline="") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


# MPT by MosaicML, from its YAML files: hidden, layers, heads.
_MPT = {"125m": (768, 12, 12), "350m": (1024, 24, 16), "760m": (1536, 24, 12),
        "1b": (2048, 24, 16), "3b": (2560, 32, 20), "7b": (4096, 32, 32), "13b": (5120, 40, 40),
        "30b": (7168, 48, 56), "70b": (8192, 80, 64)}  # fmt: skip
_FOUNDRY = {"h100": "h100x8x64", "a100_80": "a100x8", "a100_40": "a100_40x8"}


def _llm_foundry() -> Iterator[Case]:
    for row in _rows("llm_foundry"):
        hidden, layers, heads = _MPT[row["model"]]
        seq, gpus, micro, batch = (int(row[n]) for n in ("seq", "gpus", "micro", "batch"))
        recompute = FULL if row["recompute"] == "1" else NONE
        model = Transformer(layers, hidden, heads, 50368, positions=seq, biases=True)
        layout = Layout(batch, seq, micro, gpus, sharding=FSDP, recompute=recompute,
                        precision=row["precision"])  # fmt: skip
        key = " ".join(row[n] for n in ("gpu", "precision", "model", "seq", "gpus", "micro"))
        seconds = batch * seq / float(row["tokens_s"])
        yield Case("llm_foundry", key, _FOUNDRY[row["gpu"]], "composer", model, layout, seconds)


def _vtrain() -> Iterator[Case]:
    for number, row in enumerate(_rows("vtrain_multi")):
        n = {name: int(value) for name, value in row.items() if name != "ms"}
        model = Transformer(n["layers"], n["hidden"], n["heads"], 51200, positions=2048,
                            biases=True)  # fmt: skip
        layout = Layout(n["batch"], 2048, n["micro"], n["dp"], n["tp"], pipeline=n["pp"],
                        recompute=FULL, sequence=False, overlap=False, fused=False)  # fmt: skip
        key = f"{number} " + " ".join(str(v) for v in n.values())
        stack = "megatron-deepspeed"
        yield Case("vtrain", key, "a100x8x64", stack, model, layout, float(row["ms"]) / 1e3)


_SAILOR = {
    "opt350": Transformer(24, 1024, 16, 50272, positions=2048, biases=True),
    "gptneo": Transformer(32, 2560, 32, 50272, positions=2048, biases=True, head_dim=80),
}


# Layers of each stage, as the plans say it.
_STAGES = {("opt350", 2): (11, 13), ("opt350", 4): (4, 7, 7, 6), ("gptneo", 2): (15, 17),
           ("gptneo", 4): (6, 9, 9, 8), ("gptneo", 8): (2, 5, 5, 5, 4, 4, 4, 3)}  # fmt: skip


def _sailor() -> Iterator[Case]:
    for row in _rows("sailor"):
        n = {k: int(row[k]) for k in ("nodes", "dp", "pp", "micro", "batch", "peak_bytes")}
        layout = Layout(n["batch"], 2048, n["micro"], n["dp"], 4, pipeline=n["pp"],
                        sequence=False, overlap=False, fused=False,
                        split=_STAGES.get((row["model"], n["pp"]), ()))  # fmt: skip
        key = " ".join(row[k] for k in ("model", "nodes", "dp", "pp", "micro", "batch"))
        yield Case("sailor", key, "gh200x4", "sailor", _SAILOR[row["model"]], layout,
                   float(row["seconds"]), n["peak_bytes"])  # fmt: skip


_LARGE = {
    "llama3_8b": Transformer(32, 4096, 32, 128256, 8, 128, 14336, True, False),
    "llama3_70b": Transformer(80, 8192, 64, 128256, 8, 128, 28672, True, False),
    "llama3_405b": Transformer(126, 16384, 128, 128256, 16, 128, 53248, True, False),
    "llama31_405b": Transformer(126, 16384, 128, 128256, 8, 128, 53248, True, False),
    "deepseekv2": Transformer(
        60, 5120, 128, 102400, 128, 128, 12288, True, False, experts=160, top_k=6,
        expert_ffn=1536, shared_ffn=3072, dense_layers=1, q_rank=1536, kv_rank=512, rope_dim=64,
    ),
    "deepseekv3": Transformer(
        61, 7168, 128, 129280, 128, 128, 18432, True, False, experts=256, top_k=8,
        expert_ffn=2048, shared_ffn=2048, dense_layers=1, q_rank=1536, kv_rank=512, rope_dim=64,
    ),
    "deepseekv3_full": Transformer(
        61, 7168, 128, 129280, 128, 128, 18432, True, False, experts=256, top_k=8,
        expert_ffn=2048, shared_ffn=2048, dense_layers=3, q_rank=1536, kv_rank=512, rope_dim=64,
    ),
    "gpt_oss_120b": Transformer(36, 2880, 64, 201088, 8, 64, 2880, True, False, experts=128,
                                top_k=4, expert_ffn=2880, window=128),
    "qwen3_30b": Transformer(48, 2048, 32, 151936, 4, 128, 6144, True, False, experts=128,
                             top_k=8, expert_ffn=768),
    "qwen3_235b": Transformer(94, 4096, 64, 151936, 4, 128, 12288, True, False, experts=128,
                              top_k=8, expert_ffn=1536),
}  # fmt: skip


def _simumax() -> Iterator[Case]:
    for row in _rows("simumax"):
        names = ("layers", "tp", "cp", "ep", "pp", "dp", "seq", "micros")
        n = {k: int(row[k]) for k in names}
        whole = _LARGE[row["model"]]
        model = Transformer(**{**whole.__dict__, "layers": n["layers"]})
        layout = Layout(n["dp"] * n["micros"], n["seq"], 1, n["dp"], n["tp"], n["cp"], n["pp"],
                        n["ep"], sharding=ZERO1, overlap=False)  # fmt: skip
        key = " ".join(row[k] for k in ("model", *names))
        yield Case("simumax", key, "b200x8", "megatron-core", model, layout,
                   float(row["ms"]) / 1e3, float(row["alloc_gib"]) * 2**30)  # fmt: skip


_BRIDGE = {"h100": "h100x8x64", "b200": "b200x8", "gb200": "gb200x4", "gb300": "gb300x4"}


def _megatron_bridge() -> Iterator[Case]:
    for row in _rows("megatron_bridge"):
        names = ("gpus", "batch", "micro", "seq", "fsdp", "tp", "pp", "cp", "vp", "ep")
        n = {k: int(row[k]) for k in names}
        data = n["gpus"] // (n["tp"] * n["pp"] * n["cp"])
        layout = Layout(n["batch"], n["seq"], n["micro"], data, n["tp"], n["cp"], n["pp"],
                        n["ep"], n["vp"], FSDP if n["fsdp"] else ZERO1,
                        precision=row["precision"], in_pieces=True, reduced=2)  # fmt: skip
        key = " ".join(row[k] for k in ("gpu", "model", "precision", *names))
        seconds = n["batch"] * n["seq"] / (float(row["tokens_s_gpu"]) * n["gpus"])
        model = _LARGE[row["model"]]
        model = replace(model, layers=model.layers + int(row["mtp"]))
        yield Case("megatron_bridge", key, _BRIDGE[row["gpu"]], "megatron-core-graphs", model,
                   layout, seconds)  # fmt: skip


TABLES: dict[str, Callable[[], Iterator[Case]]] = {
    "llm_foundry": _llm_foundry,
    "vtrain": _vtrain,
    "sailor": _sailor,
    "simumax": _simumax,
    "megatron_bridge": _megatron_bridge,
}


def cases(folder: Path | None = None) -> list[Case]:
    """All of them, in the order of the tables."""
    return [case for table in TABLES.values() for case in table()]


__all__ = ["TABLES", "Case", "cases", "DDP"]
