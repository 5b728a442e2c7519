"""The parts of the training program: data, schedule, models, checkpoints, the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import config
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import tools
from disttrain.errors import ConfigError, SerializationError
from disttrain.metrics import read_jsonl
from training import checkpoint
from training.datasets import Windows, make_task
from training.loop import Trainer
from training.models import make_model, write_text
from training.optimizing import learning_rate_factor
from training.settings import Data, Schedule, Settings

ROOT = Path(__file__).parents[2]

QUICK = [
    "--parallel.strategy=none",
    "--model.name=mlp",
    "--model.hidden=32",
    "--train.epochs=3",
    "--optim.lr=0.01",
]
TINY_GPT = [
    "--parallel.strategy=none",
    "--data.name=text",
    "--data.block_size=16",
    "--data.batch_size=8",
    "--model.name=gpt",
    "--model.width=16",
    "--model.num_heads=2",
    "--model.num_layers=1",
    "--train.epochs=1",
    "--train.steps_per_epoch=4",
]


def quick(folder: Path, *words: str) -> Settings:
    return config.load(Settings, None, [*QUICK, f"--log.dir={folder}", *words])


def test_digits_are_split_once_and_for_all():
    task = make_task(Data())
    assert (len(task.train), len(task.test), task.num_classes) == (1437, 360, 10)
    image, label = task.train[0]
    assert image.shape == (1, 8, 8) and image.dtype == np.float32 and label.dtype == np.int64
    assert 0 <= task.train.images.min() and task.train.images.max() == 1
    assert task.test.labels[:12].tolist() == TEST_LABELS
    assert np.bincount(task.test.labels).min() >= 25


TEST_LABELS = [3, 0, 8, 6, 2, 4, 1, 4, 0, 8, 4, 9]


def test_windows_of_text_predict_the_next_character():
    windows = Windows(np.arange(20), block_size=4, stride=3)
    assert len(windows) == 6
    for index in range(len(windows)):
        inputs, targets = windows[index]
        assert len(inputs) == len(targets) == 4
        np.testing.assert_array_equal(inputs + 1, targets)
    assert windows[5][1][-1] == 19
    assert len(Windows(np.arange(4), 4, 1)) == 0


def test_text_parts_do_not_overlap():
    task = make_task(Data(name="text", block_size=32))
    assert len(task.alphabet) == task.num_classes > 60
    assert len(task.train.codes) > 8 * len(task.test.codes) > 0


def test_schedules():
    cosine = Schedule(name="cosine", warmup=0.1, floor=0.2)
    rates = [learning_rate_factor(cosine, s, 100, 10) for s in range(101)]
    assert rates[0] == pytest.approx(1 / 11) and rates[10] == 1.0
    assert rates[100] == pytest.approx(0.2) and sorted(rates[10:], reverse=True) == rates[10:]
    step = Schedule(name="step", warmup=0, step_epochs=2, gamma=0.5)
    assert [learning_rate_factor(step, s, 100, 10) for s in (0, 19, 20, 40)] == [1, 1, 0.5, 0.25]
    constant = Schedule(name="constant", warmup=0)
    assert {learning_rate_factor(constant, s, 100, 10) for s in range(100)} == {1.0}


@pytest.mark.parametrize("size", [8, 28, 5])
def test_convolutional_net_fits_image_sizes(size):
    settings = config.load(Settings, None, ["--model.channels=4,8"])
    task = make_task(settings.data)
    task = type(task)(task.train, task.test, 7, (size, size + 1))
    model = make_model(settings.model, task, 0)
    assert model(dt.zeros(2, 1, size, size + 1)).shape == (2, 7)


def test_run_leaves_everything_behind(tmp_path):
    result = Trainer(quick(tmp_path)).fit()
    assert result.test_accuracy > 0.8 and result.world_size == 1
    assert result.run == tmp_path / "0001"
    names = {p.name.split(".")[0] for p in result.run.iterdir()}
    assert names == {"config", "metrics", "events", "model", "epoch_0002", "epoch_0003"}
    records = read_jsonl(result.run / "metrics.jsonl")
    tests = [r for r in records if r["kind"] == "test"]
    assert [r["epoch"] for r in tests] == [1, 2, 3] and tests[-1]["step"] == 3 * (1437 // 64)
    assert tests[-1]["accuracy"] == result.test_accuracy
    losses = [r["loss"] for r in records if r["kind"] == "train"]
    assert losses[-1] < losses[0] / 2


def test_same_seed_same_numbers(tmp_path):
    one, two = (Trainer(quick(tmp_path, "--model.dropout=0.1")).fit() for _ in range(2))
    other = Trainer(quick(tmp_path, "--model.dropout=0.1", "--seed=1")).fit()
    assert (one.train_loss, one.test_accuracy) == (two.train_loss, two.test_accuracy)
    assert one.train_loss != other.train_loss
    assert two.run == tmp_path / "0002"


@pytest.mark.parametrize("optim", ["sgd", "adamw"])
def test_resumed_run_ends_like_the_whole_one(tmp_path, optim):
    words = ["--model.dropout=0.2", f"--optim.name={optim}", "--optim.clip_norm=1.0"]
    whole = Trainer(quick(tmp_path, *words)).fit()
    tools.remove(str(whole.run / "epoch_0003"))  # as if it had been killed in epoch 3
    again = Trainer(quick(tmp_path, *words), checkpoint.find(tmp_path)).fit()
    assert (again.train_loss, again.test_accuracy) == (whole.train_loss, whole.test_accuracy)
    assert again.run == whole.run
    assert {"kind": "resume", "step": 44} in read_jsonl(whole.run / "metrics.jsonl")
    done = Trainer(quick(tmp_path, *words), checkpoint.find(tmp_path)).fit()
    assert (done.train_loss, done.test_accuracy) == (whole.train_loss, whole.test_accuracy)


def test_an_older_checkpoint_is_gone_on_from_beside_the_newer_ones(tmp_path):
    whole = Trainer(quick(tmp_path)).fit()
    first = tmp_path / "0001" / "epoch_0002"
    again = Trainer(quick(tmp_path), first).fit()
    assert again.run == tmp_path / "0002" and checkpoint.newest(whole.run).name == "epoch_0003"
    told = [
        [r for r in read_jsonl(run / "metrics.jsonl") if r["kind"] == "test"]
        for run in (whole.run, again.run)
    ]
    assert told[0] == told[1]
    job = checkpoint.open_run(tmp_path, "job", None)  # a job has one run, whatever is there
    assert job == tmp_path / "0003" == checkpoint.open_run(tmp_path, "job", first)
    assert checkpoint.own_run(tmp_path, "job") == job and checkpoint.own_run(tmp_path, "") is None


def test_resuming_something_else_is_refused(tmp_path):
    Trainer(quick(tmp_path, "--train.epochs=1")).fit()
    found = checkpoint.find(tmp_path)
    with pytest.raises(ConfigError, match=r"--resume: model.hidden is \[8\] here and \[32\] in"):
        Trainer(quick(tmp_path, "--model.hidden=8"), found)
    with pytest.raises(ConfigError, match=r"train.steps_per_epoch is 5 here and 'none' in"):
        Trainer(quick(tmp_path, "--train.steps_per_epoch=5"), found)  # where its epochs end
    dcp.save({"model": {}}, checkpoint_id=tmp_path / "other")
    with pytest.raises(SerializationError, match="holds no optimizer, scheduler"):
        Trainer(quick(tmp_path), tmp_path / "other")


def test_character_model_learns_and_writes(tmp_path, capfd):
    words = [*TINY_GPT, f"--log.dir={tmp_path}", "--log.sample=20", "--log.every=1"]
    result = Trainer(config.load(Settings, None, words)).fit()
    records = [r for r in read_jsonl(result.run / "metrics.jsonl") if r["kind"] == "train"]
    assert len(records) == 4 and records[-1]["loss"] < records[0]["loss"]
    assert "--- sample ---" in capfd.readouterr().out


def test_character_model_looks_back_only():
    settings = config.load(Settings, None, TINY_GPT)
    task = make_task(settings.data)
    dt.manual_seed(0)
    model = make_model(settings.model, task, 16).eval()
    codes = np.arange(16)[None] % task.num_classes
    changed = codes.copy()
    changed[0, 8:] += 1
    with dt.no_grad():
        one, two = (model(dt.from_numpy(c)).numpy() for c in (codes, changed))
    np.testing.assert_array_equal(one[0, :8], two[0, :8])
    assert not np.array_equal(one[0, 8:], two[0, 8:])
    assert len(write_text(model, task.alphabet, 30, seed=0)) == 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data.batch_size=2000"], "the training data has only 1437 samples"),
        (["--data.name=idx", "--data.dir=/nowhere"], "/nowhere is no folder"),
    ],
)
def test_settings_that_do_not_fit_the_data(tmp_path, words, said):
    with pytest.raises(ConfigError, match=said):
        Trainer(quick(tmp_path, *words))


def test_diverging_run_stops(tmp_path):
    words = ["--optim.name=sgd", "--optim.lr=1e30", "--schedule.warmup=0", "--log.every=5"]
    with pytest.raises(FloatingPointError, match=r"the loss is (nan|inf).*Lower optim\.lr"):
        Trainer(quick(tmp_path, *words)).fit()


def test_runs_are_numbered(tmp_path):
    (tmp_path / "notes").mkdir()
    assert [checkpoint.new_run(tmp_path / "a").name for _ in range(3)] == ["0001", "0002", "0003"]
    with pytest.raises(ConfigError, match="there is no checkpoint"):
        checkpoint.find(tmp_path / "a")
    with pytest.raises(ConfigError, match="there is no checkpoint"):
        checkpoint.find(tmp_path / "missing")


def test_checkpoints_are_whole_or_absent(tmp_path):
    for epoch in range(1, 5):
        state = {"x": dt.full((3,), float(epoch)), "n": epoch}
        checkpoint.save(tmp_path, checkpoint.name_of(epoch), state, keep=2)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["epoch_0003", "epoch_0004"]
    found = tools.values(str(checkpoint.find(tmp_path)))
    assert found["x"].tolist() == [4.0, 4.0, 4.0] and found["n"] == 4
    with pytest.raises((TypeError, ValueError)):
        checkpoint.save(tmp_path, checkpoint.name_of(5), {"x": lambda: 0}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == names
