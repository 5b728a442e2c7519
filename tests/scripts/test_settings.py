"""The settings of the training program: the files in configs/, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from disttrain import config
from disttrain.errors import ConfigError
from training.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda p: p.stem)
def test_every_file_in_configs_fits(path, tmp_path):
    settings = config.load(Settings, path)
    config.dump(settings, tmp_path / "again.toml")
    assert config.load(Settings, tmp_path / "again.toml") == settings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--optim.lr", "0"], "[optim] lr: 0.0 given; a finite number above 0 is needed"),
        (["--optim.learning_rate", "1"], "--optim.learning_rate is no setting; there are: "),
        (["--optim.betas", "0.9,1"], "[optim] betas: (0.9, 1.0) given"),
        (["--data.batch_size", "0"], "[data] batch_size: 0 given; 1 or more is needed"),
        (["--data.name", "idx"], "[data] dir: None given; a folder when name is idx"),
        (["--data.dir", "x"], "[data] dir:"),
        (["--data.name", "text"], "model.name: 'cnn' given; gpt for text"),
        (["--model.name", "gpt"], "model.name: 'gpt' given; gpt for text, cnn or mlp for images"),
        (["--model.channels", ""], "[model] channels: [] given"),
        (["--model.width", "90", "--model.num_heads", "4"], "a multiple of num_heads (4)"),
        (["--model.dropout", "1"], "[model] dropout: 1.0 given"),
        (["--train.epochs", "0"], "[train] epochs: 0 given"),
        (["--optim.lr", "inf"], "[optim] lr: inf given; a finite number above 0 is needed"),
        (["--optim.lr", "nan"], "[optim] lr: nan given; a finite number above 0 is needed"),
        (["--optim.weight_decay", "inf"], "[optim] weight_decay: inf given"),
        (["--parallel.bucket_mb", "inf"], "[parallel] bucket_mb: inf given"),
        (["--train.epoch", "1"], "did you mean --train.epochs?"),
        (
            ["--parallel.strategy", "dpp"],
            "'dpp' given; ddp | zero | fsdp | hsdp | 2d | none is needed",
        ),
        (["--schedule.warmup", "2"], "[schedule] warmup: 2.0 given"),
        (["--log.every", "0"], "[log] every: 0 given"),
        (["--seed", "-1"], "seed: -1 given; 0 or more is needed"),
    ],
)
def test_refused(words, said):
    with pytest.raises(ConfigError) as info:
        config.load(Settings, None, words)
    assert said in str(info.value)
