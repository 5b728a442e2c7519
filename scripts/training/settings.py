"""Every setting of ``scripts/train.py``. A section of the TOML file is a dataclass here."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal

from disttrain.config import require


@dataclass(frozen=True)
class Data:
    """What is learned from. ``batch_size`` counts samples over all ranks together."""

    name: Literal["digits", "idx", "text"] = "digits"
    dir: Path | None = None  # of the IDX files
    batch_size: int = 64
    num_workers: int = 0  # loader processes per rank
    block_size: int = 64  # characters of context (text)

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "1 or more")
        require(self.num_workers >= 0, "num_workers", self.num_workers, "0 or more")
        require(self.block_size >= 1, "block_size", self.block_size, "1 or more")
        given = self.dir is not None
        require(
            given == (self.name == "idx"), "dir", self.dir, "a folder when name is idx, else none"
        )


@dataclass(frozen=True)
class Model:
    """The network. ``cnn`` and ``mlp`` take images, ``gpt`` takes text."""

    name: Literal["mlp", "cnn", "gpt"] = "cnn"
    hidden: list[int] = field(default_factory=lambda: [64])  # fully connected layers (cnn, mlp)
    channels: list[int] = field(default_factory=lambda: [32, 64])  # convolutions (cnn)
    dropout: float = 0.0
    num_layers: int = 2  # the rest: gpt
    num_heads: int = 4
    width: int = 96
    activation: Literal["gelu", "gelu_tanh"] = "gelu"  # gelu_tanh: as GPT-2 and llama.cpp have it

    def __post_init__(self) -> None:
        require(0 <= self.dropout < 1, "dropout", self.dropout, "a part from 0 to below 1")
        require(all(n > 0 for n in self.hidden), "hidden", self.hidden, "sizes above 0")
        fine = self.name != "cnn" or (self.channels and all(n > 0 for n in self.channels))
        require(bool(fine), "channels", self.channels, "one size above 0 or more")
        require(self.num_layers >= 1, "num_layers", self.num_layers, "1 or more")
        require(self.num_heads >= 1, "num_heads", self.num_heads, "1 or more")
        fits = self.width > 0 and self.width % self.num_heads == 0
        require(fits, "width", self.width, f"a multiple of num_heads ({self.num_heads})")


@dataclass(frozen=True)
class Optim:
    """The optimizer. ``momentum`` is for sgd, ``betas`` are for adam and adamw."""

    name: Literal["sgd", "adam", "adamw"] = "adamw"
    lr: float = 0.001
    weight_decay: float = 0.01
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float | None = None  # clip the norm of all gradients together

    def __post_init__(self) -> None:
        require(0 < self.lr < inf, "lr", self.lr, "a finite number above 0")
        fine = 0 <= self.weight_decay < inf
        require(fine, "weight_decay", self.weight_decay, "a finite number, 0 or more")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "0 to below 1")
        require(all(0 <= b < 1 for b in self.betas), "betas", self.betas, "two of 0 to below 1")
        fine = self.clip_norm is None or self.clip_norm > 0
        require(fine, "clip_norm", self.clip_norm, "none or a number above 0")


@dataclass(frozen=True)
class Schedule:
    """How the learning rate goes: a linear warm-up, then what ``name`` says."""

    name: Literal["constant", "cosine", "step"] = "cosine"
    warmup: float = 0.05  # part of all steps
    floor: float = 0.0  # cosine ends at this part of lr
    step_epochs: int = 10  # step: every so many epochs ...
    gamma: float = 0.1  # ... the rate is multiplied by this

    def __post_init__(self) -> None:
        require(0 <= self.warmup <= 1, "warmup", self.warmup, "a part from 0 to 1")
        require(0 <= self.floor <= 1, "floor", self.floor, "a part from 0 to 1")
        require(self.step_epochs >= 1, "step_epochs", self.step_epochs, "1 or more")
        require(0 < self.gamma <= 1, "gamma", self.gamma, "a factor above 0, at most 1")


@dataclass(frozen=True)
class Train:
    """How long, and where. ``steps_per_epoch`` cuts an epoch short (none: all the data)."""

    epochs: int = 20
    device: str = "cpu"  # or cuda: each rank takes its own by LOCAL_RANK
    steps_per_epoch: int | None = None
    compile: bool = False  # capture the step and replay it; what that cannot do runs as it is
    save_every: int | None = None  # steps between two checkpoints, besides those of epochs' ends

    def __post_init__(self) -> None:
        require(self.epochs >= 1, "epochs", self.epochs, "1 or more")
        kinds = ("cpu", "cuda")
        fine = self.device.partition(":")[0] in kinds
        require(fine, "device", self.device, f"one of {', '.join(kinds)}, or cuda:1")
        fine = self.steps_per_epoch is None or self.steps_per_epoch >= 1
        require(fine, "steps_per_epoch", self.steps_per_epoch, "none, or 1 or more")
        fine = self.save_every is None or self.save_every >= 1
        require(fine, "save_every", self.save_every, "none, or 1 or more")


@dataclass(frozen=True)
class Parallel:
    """How the ranks work together. ``none`` is for one process without a process group."""

    strategy: Literal["ddp", "zero", "fsdp", "hsdp", "2d", "none"] = "ddp"
    bucket_mb: float = 25.0  # ddp, zero: gradients are exchanged in buckets of this size
    replicas: int = 2  # hsdp: so many groups, each with all weights
    tensor: int = 2  # 2d: ranks that divide a layer
    precision: Literal["float32", "bf16"] = "float32"  # fsdp, hsdp, 2d: of the weights in use
    recompute: bool = False  # run the blocks of a gpt again in backward, to keep less
    deterministic: Literal["none", "global"] = "none"  # global: same bits on any number of ranks
    virtual_shards: int = 8  # of a step, with deterministic = "global"

    def __post_init__(self) -> None:
        fine = 0 < self.bucket_mb < inf
        require(fine, "bucket_mb", self.bucket_mb, "a finite number of MiB above 0")
        require(self.replicas >= 1, "replicas", self.replicas, "1 or more")
        require(self.tensor >= 1, "tensor", self.tensor, "1 or more")
        require(self.virtual_shards >= 1, "virtual_shards", self.virtual_shards, "1 or more")
        fine = self.precision == "float32" or self.strategy in ("fsdp", "hsdp", "2d")
        require(fine, "precision", self.precision, "float32 unless strategy is fsdp, hsdp or 2d")
        fine = self.deterministic == "none" or self.strategy not in ("zero", "none")
        require(fine, "deterministic", self.deterministic, "none unless ddp, fsdp, hsdp or 2d")


@dataclass(frozen=True)
class Log:
    """What is kept of a run, and where. Every run gets a numbered folder of its own in ``dir``."""

    dir: Path = Path("runs/default")
    every: int = 10  # steps between two records
    jsonl: bool = True
    tensorboard: bool = True
    keep_checkpoints: int = 2
    sample: int = 0  # characters to write when a text model is trained

    def __post_init__(self) -> None:
        require(self.every >= 1, "every", self.every, "1 or more steps")
        require(self.keep_checkpoints >= 1, "keep_checkpoints", self.keep_checkpoints, "1 or more")
        require(self.sample >= 0, "sample", self.sample, "0 or more characters")


@dataclass(frozen=True)
class Settings:
    """Everything that a run depends on. The same settings give the same numbers."""

    seed: int = 0
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    train: Train = field(default_factory=Train)
    parallel: Parallel = field(default_factory=Parallel)
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        text = self.data.name == "text"
        needed = "gpt for text, cnn or mlp for images"
        require(text == (self.model.name == "gpt"), "model.name", self.model.name, needed)
