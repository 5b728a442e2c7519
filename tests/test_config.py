"""TOML and command lines into dataclasses: what fits, what does not, and how it is said."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from disttrain import config
from disttrain.errors import ConfigError


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


@dataclass(frozen=True)
class Optim:
    lr: float = 0.1
    name: Literal["sgd", "adamw"] = "sgd"
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None

    def __post_init__(self) -> None:
        config.require(self.lr > 0, "lr", self.lr, "a number above 0")


@dataclass(frozen=True)
class Data:
    path: Path | None = None
    batch_size: int = 32
    shuffle: bool = True
    sizes: list[int] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    title: str = 'a "title" with \\ and ünïcode\n'
    mode: Mode = Mode.FAST
    optim: Optim = field(default_factory=Optim)
    data: Data = field(default_factory=Data)
    extra: Optim | None = None


@dataclass(frozen=True)
class Needed:
    steps: int
    inner: Optim


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def fails(*args, **kwargs) -> str:
    with pytest.raises(ConfigError) as info:
        config.load(*args, **kwargs)
    return str(info.value)


FULL = """
seed = 7
mode = "exact"

[optim]
lr = 1            # an int is fine where a float is needed
name = "adamw"
betas = [0.8, 1]
clip = "none"

[data]
path = "x/y"
sizes = [1, 2]
weights = { a = 1, "b c" = 0.5 }
"""


def test_file_fills_nested_dataclasses(tmp_path):
    got = config.load(Settings, write(tmp_path, FULL))
    assert got.seed == 7 and got.mode is Mode.EXACT
    assert got.optim == Optim(lr=1.0, name="adamw", betas=(0.8, 1.0), clip=None)
    assert type(got.optim.lr) is float and type(got.optim.betas[1]) is float
    assert got.data == Data(Path("x/y"), sizes=[1, 2], weights={"a": 1.0, "b c": 0.5})
    assert got.extra is None


def test_defaults_without_a_file():
    assert config.load(Settings) == Settings()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--seed", "3"], "seed", 3),
        (["--seed=0x10"], "seed", 16),
        (["--optim.lr", "1e-3"], "optim.lr", 1e-3),
        (["--optim.lr=inf"], "optim.lr", math.inf),
        (["--optim.clip", "none"], "optim.clip", None),
        (["--optim.clip", "2"], "optim.clip", 2.0),
        (["--optim.betas", "0.5,0.6"], "optim.betas", (0.5, 0.6)),
        (["--optim.name", "adamw"], "optim.name", "adamw"),
        (["--data.batch-size", "8"], "data.batch_size", 8),
        (["--data.shuffle", "false"], "data.shuffle", False),
        (["--data.shuffle", "--seed", "1"], "data.shuffle", True),
        (["--data.sizes", "1,2,3"], "data.sizes", [1, 2, 3]),
        (["--data.sizes", "[4]"], "data.sizes", [4]),
        (["--data.sizes="], "data.sizes", []),
        (["--data.weights", "{a = 1}"], "data.weights", {"a": 1.0}),
        (["--data.path", "/tmp/z"], "data.path", Path("/tmp/z")),
        (["--mode", "exact"], "mode", Mode.EXACT),
        (["--title", "true"], "title", "true"),
        (["--title", ""], "title", ""),
        (["--extra.lr", "3"], "extra.lr", 3.0),
    ],
)
def test_overrides(words, name, value):
    got = config.load(Settings, None, words)
    for part in name.split("."):
        got = getattr(got, part)
    assert got == value and type(got) is type(value)


def test_last_override_wins_over_file(tmp_path):
    path = write(tmp_path, FULL)
    got = config.load(Settings, path, ["--optim.lr", "5", "--seed", "1", "--optim.lr=6"])
    assert (got.optim.lr, got.seed, got.optim.name) == (6.0, 1, "adamw")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[optim]\nlrr = 1", ":2: optim.lrr is no setting; did you mean lr?"),
        ("sede = 1", ":1: sede is no setting; did you mean seed?"),
        ("[optimizer]\nlr = 1", ":1: optimizer is no setting; did you mean optim?"),
        ("zzz = 1", "zzz is no setting; there are: seed, title"),
        ("[optim]\nlr = 'fast'", ":2: optim.lr: 'fast' (str) given; float is needed"),
        ("[optim]\nlr = true", "optim.lr: True (bool) given; float is needed"),
        ("seed = 1.0", ":1: seed: 1.0 (float) given; int is needed"),
        ("seed = true", "seed: True (bool) given; int is needed"),
        ("optim = 3", ":1: optim: 3 (int) given"),
        ("[optim]\nname = 'adam'", "optim.name: 'adam' (str) given; sgd | adamw is needed"),
        ("[optim]\nbetas = [1]", "optim.betas: [1] (list) given; tuple[float, float] is needed"),
        ("[optim]\nclip = 'x'", "optim.clip: 'x' (str) given; float | none is needed"),
        ("mode = 'quick'", "mode: 'quick' (str) given; fast | exact is needed"),
        ("[data]\nsizes = [1, 'a']", "data.sizes: [1, 'a'] (list) given; list[int] is needed"),
        ("[data]\nsizes = 1", "data.sizes: 1 (int) given"),
        ("[data.weights]\na = 'x'", "data.weights: {'a': 'x'} (dict) given; dict[str, float]"),
        ("[optim]\n\nlr = -1", ":3: [optim] lr: -1.0 given; a number above 0 is needed"),
        ("seed = ", "not valid TOML"),
        ("seed = 1\nseed = 2", "not valid TOML"),
    ],
)
def test_wrong_files(tmp_path, text, said):
    message = fails(Settings, write(tmp_path, text))
    assert said in message and str(tmp_path / "job.toml") in message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--optim.lrr", "1"], "--optim.lrr is no setting; did you mean --optim.lr?"),
        (["--lr", "1"], "did you mean --optim.lr?"),
        (["--batchsize", "1"], "did you mean --data.batch_size?"),
        (["--seed"], "--seed needs a value of type int"),
        (["--seed", "--title", "x"], "--seed needs a value of type int"),
        (["--seed", "1.5"], "--seed: '1.5' given; int is needed"),
        (["--data.shuffle=maybe"], "--data.shuffle: 'maybe' given; bool is needed"),
        (["--optim.betas", "1,2,3"], "tuple[float, float] is needed"),
        (["--data.sizes", "[1"], "list[int] is needed"),
        (["--optim.lr", "-1"], "command line: [optim] lr: -1.0 given"),
        (["seed", "1"], "'seed' given; --name VALUE is needed"),
        (["--"], "'--' given"),
    ],
)
def test_wrong_overrides(words, said):
    message = fails(Settings, None, words)
    assert said in message and message.startswith("command line")


def test_override_into_a_plain_value(tmp_path):
    assert "optim: 3 (int) given" in fails(
        Settings, write(tmp_path, "optim = 3"), ["--optim.lr", "1"]
    )


def test_missing_file_names_the_nearest(tmp_path):
    write(tmp_path, "")
    message = fails(Settings, tmp_path / "jop.toml")
    assert "there is no such file" in message and "job.toml" in message


def test_unreadable_files(tmp_path):
    assert "cannot be read" in fails(Settings, tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read as text" in fails(Settings, tmp_path / "b.toml")


def test_needed_settings(tmp_path):
    assert "steps is missing; int is needed" in fails(Needed, write(tmp_path, ""))
    assert config.load(Needed, None, ["--steps", "2"]) == Needed(2, Optim())


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(extra=Optim(lr=math.inf, clip=1e-5), mode=Mode.EXACT),
        Settings(data=Data(path=Path("a b"), sizes=[1], weights={"x y": 1.0, "ü": 2.0})),
    ],
)
def test_dump_reads_back(tmp_path, settings):
    path = tmp_path / "out.toml"
    assert config.dump(settings, path) == path.read_text()
    assert config.load(Settings, path) == settings
    assert config.from_dict(Settings, config.to_dict(settings)) == settings


def test_from_dict_names_its_source():
    with pytest.raises(ConfigError, match=r"^checkpoint: optim\.lr: 'x'"):
        config.from_dict(Settings, {"optim": {"lr": "x"}}, "checkpoint")


def test_describe_lists_every_setting():
    text = config.describe(Settings)
    assert "--optim.betas" in text and "tuple[float, float]" in text and "[0.9, 0.999]" in text
    assert "--steps" in config.describe(Needed) and "(needed)" in config.describe(Needed)


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        config.load(Settings).optim.lr = 2.0


HOSTILE = {
    "lists": "seed = " + "[" * 50_000 + "]" * 50_000,
    "tables": "seed = " + "{a=" * 50_000 + "1" + "}" * 50_000,
    "digits": "seed = " + "9" * 200_000,
    "hex digits": "seed = 0x" + "f" * 200_000,
    "a number that no float can be": "[optim]\nlr = 0x" + "f" * 2000,
    "a long text": "seed = '" + "x" * 200_000 + "'",
    "a long list": "seed = [" + "1," * 100_000 + "]",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_too_much_is_an_error_of_the_file(tmp_path, what):
    """And its message is no longer than people read."""
    path = tmp_path / "a.toml"
    path.write_text(HOSTILE[what])
    with pytest.raises(ConfigError, match=r"a\.toml") as error:
        config.load(Settings, path)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("text", ["9" * 200_000, "0x" + "f" * 200_000, "x" * 200_000])
def test_what_is_too_much_is_an_error_of_the_command_line(text):
    with pytest.raises(ConfigError, match="--seed") as error:
        config.load(Settings, None, ["--seed", text])
    assert len(str(error.value)) < 600
