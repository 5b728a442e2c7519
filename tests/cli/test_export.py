"""``disttrain export``: from the folder of a run to files that run without its Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
import train as program

import disttrain as dt
from disttrain import config
from disttrain.cli import main
from disttrain.cli.export import find_program
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import load_model, newest_checkpoint
from disttrain.errors import ConfigError
from disttrain.serialize import gguf, read_config, read_pretrained
from training import gpt2
from training.settings import Settings

ROOT = Path(__file__).parents[2]
TRAIN = str(ROOT / "scripts" / "train.py")
MLP = ["--model.name=mlp", "--model.hidden=16", "--train.epochs=1", "--train.steps_per_epoch=3",
       "--log.tensorboard=false"]  # fmt: skip
GPT = [
    "--data.name=text", "--data.block_size=8", "--data.batch_size=8", "--model.name=gpt",
    "--model.width=32", "--model.num_heads=2", "--model.num_layers=1", "--train.epochs=1",
    "--train.steps_per_epoch=2", "--log.tensorboard=false", "--model.activation=gelu_tanh",
]  # fmt: skip


def trained(folder, *words):
    """A run of one process; its folder."""
    settings = config.load(
        Settings, None, [*words, f"--log.dir={folder}", "--parallel.strategy=none"]
    )
    return program.train(settings).run


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), *GPT)


def model_of(run):
    told = program.trained(str(run), [])
    return load_model(told.build, newest_checkpoint(run))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    """A run of two ranks, which divide the weights: of processes of their own."""
    runs = tmp_path_factory.mktemp("ranks")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    train = [sys.executable, "-m", "disttrain_launcher", "--nproc-per-node", "2", TRAIN, *MLP,
             "--parallel.strategy=fsdp", f"--log.dir={runs}"]  # fmt: skip
    subprocess.run(train, env=env, check=True, timeout=50, capture_output=True)
    return runs / "0001"


def test_two_commands_on_real_ranks(mlp, tmp_path, capsys):
    """dtrun trains, and one process exports; docs/deployment.md has a fresh one run the file."""
    file = tmp_path / "digits.dtp"
    assert main(["export", str(mlp), "-o", str(file), "--program", TRAIN]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{file}: ")
    x = dt.randn(5, 1, 8, 8)
    assert dt.load_program(file)(x).tolist() == model_of(mlp)(x).tolist()


def test_a_model_of_texts_leaves_in_every_way(gpt, tmp_path, capsys):
    out = tmp_path / "m.dtp"
    words = ["-o", str(out), "--gguf", "--hf", "--type", "F32", "--program", TRAIN]
    assert main(["export", str(gpt.parent), *words]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in shown[1:]] == [
        str(out), str(tmp_path / "m.gguf"), str(tmp_path / "m-hf")
    ]  # fmt: skip
    model, codes = model_of(gpt), dt.tensor([[3, 1, 4], [1, 5, 9]])
    expected = model(codes).tolist()
    saved = dt.load_program(out)
    assert saved(codes).tolist() == expected
    assert [str(n) for n in saved.inputs[0].shape] == ["batch", "length"]
    again = gpt2.from_pretrained(*gguf.to_pretrained(gguf.load(tmp_path / "m.gguf")))
    assert again.eval()(codes).tolist() == expected
    folder = tmp_path / "m-hf"
    again = gpt2.from_pretrained(read_pretrained(folder), read_config(folder))
    assert again.eval()(codes).tolist() == expected
    alphabet = json.loads((gpt / "model.json").read_text())["alphabet"]
    told = json.loads((folder / "tokenizer.json").read_text())
    assert list(told["model"]["vocab"]) == list(alphabet)


def test_the_suffix_says_what_is_written(gpt, tmp_path):
    words = ["--program", TRAIN]
    assert main(["export", str(gpt), "-o", str(tmp_path / "m.gguf"), *words]) == 0
    assert main(["export", str(gpt), "-o", str(tmp_path / "folder"), *words]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "m.gguf"]
    assert gguf.load(tmp_path / "m.gguf").types["token_embd.weight"] == "F16"
    codes = dt.tensor([[3, 1, 4]])
    found = dt.load_program(tmp_path / "folder")(codes)
    assert found.tolist() == model_of(gpt)(codes).tolist()


def test_onnx_goes_with_it(mlp, tmp_path):
    run = mlp
    words = ["-o", str(tmp_path / "m.dtp"), "--onnx", "--opset", "17", "--program", TRAIN]
    assert main(["export", str(run), *words]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    x = dt.randn(5, 1, 8, 8)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert abs(found - model_of(run)(x).detach().numpy()).max() < 1e-5
    one = ["-o", str(tmp_path / "one.onnx"), "--program", TRAIN]
    assert main(["export", str(run), *one]) == 0
    assert (tmp_path / "one.onnx").exists() and not (tmp_path / "one.dtp").exists()


def test_the_data_are_not_needed(gpt, monkeypatch):
    from training import exporting

    monkeypatch.delattr(exporting, "make_task")
    assert model_of(gpt).tokens.weight.shape[1] == 32


def test_runs_without_a_note_and_with_a_damaged_one(mlp, tmp_path, capsys):
    run = Path(shutil.copytree(mlp, tmp_path / "runs" / "0001"))
    (run / "model.json").write_text("{}")
    words = ["export", str(run), "-o", str(tmp_path / "m.dtp"), "--program", TRAIN]
    assert main(words) == 2
    assert "model.json: KeyError" in capsys.readouterr().err
    (run / "model.json").unlink()  # of an earlier version
    assert main(words) == 0
    x = dt.ones(3, 1, 8, 8)
    assert dt.load_program(tmp_path / "m.dtp")(x).tolist() == model_of(run)(x).tolist()
    assert main(["export", str(run), "-o", str(tmp_path / "none" / "m.dtp")]) == 2
    assert "the folder" in capsys.readouterr().err


def own_program(folder, text):
    """A program of somebody else, and a run of it."""
    (folder / "runs").mkdir()
    (folder / "train.py").write_text("import disttrain as dt\n" + text)
    state = dt.nn.Linear(2, 3).state_dict()
    dcp.save({"net": state}, checkpoint_id=folder / "runs" / "step_1")
    return folder / "runs"


OWN = """from disttrain.distributed.checkpoint import Trained
def trained(run, words):
    return Trained(lambda: dt.nn.Linear(2, 3), (dt.zeros(1, 2),), dynamic={0: {0: "n"}}, key="net")
"""


def test_programs_of_others(tmp_path, capsys, monkeypatch):
    runs = own_program(tmp_path, OWN)
    out = ["-o", str(tmp_path / "m.dtp")]
    assert main(["export", str(runs), *out, "--hf"]) == 0
    state = read_pretrained(tmp_path / "m-hf")
    x = dt.randn(4, 2)
    found = dt.load_program(tmp_path / "m.dtp")(x)
    assert found.tolist() == dt.nn.functional.linear(x, state["weight"], state["bias"]).tolist()
    assert main(["export", str(runs), "-o", str(tmp_path / "m.gguf")]) == 2
    assert "models of known architectures" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"has no function trained(run, words). An export needs one"),
        ("trained = lambda run, words: 3", "returned int, not a Trained"),
        ("def trained(run, words):\n    return dt.nothing", "line 3 raised AttributeError"),
        (OWN.replace('"net"', '"model"'), "has nothing under 'model'; on top it has net"),
        (OWN.replace("Linear(2, 3)", "Linear(2, 4)"), "size mismatch for weight"),
        (OWN.replace("dt.zeros(1, 2)", "dt.zeros(1, 5)"), "disttrain export:"),
        (OWN.replace("dt.nn.Linear(2, 3)", "int('a')"), "line 4 raised ValueError: invalid"),
        (
            OWN.replace('(dt.zeros(1, 2),), dynamic={0: {0: "n"}}', "()"),
            "a call from outside raised TypeError: Linear.forward",
        ),
        (
            OWN.replace("dt.nn.Linear(2, 3)", "Net(2, 3)")
            + "class Net(dt.nn.Linear):\n    def forward"
            "(self, x):\n        raise ValueError('of the model')",
            "line 7 raised ValueError: of the m",
        ),
        ("import sys\n" + OWN.replace("return", "sys.exit(3)\n    return"), "raised SystemExit: 3"),
    ],
)
def test_what_a_program_must_say(tmp_path, capsys, text, said):
    runs = own_program(tmp_path, text)
    assert main(["export", str(runs), "-o", str(tmp_path / "m.dtp")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "m.dtp").exists()


SETTINGS = """from __future__ import annotations
from dataclasses import dataclass, field
import disttrain as dt
from disttrain import config
from disttrain.distributed.checkpoint import Trained
@dataclass(frozen=True)
class Model:
    width: int = 3
@dataclass(frozen=True)
class Settings:
    model: Model = field(default_factory=Model)
def build(settings):
    from nets_of_the_program import Net
    return Net(2, settings.model.width)
def trained(run, words):
    settings = config.load(Settings, None, words)
    return Trained(lambda: build(settings), (dt.zeros(1, 2),), key="net")
"""


def test_a_program_with_classes_of_settings_and_modules_that_it_imports_late(tmp_path, capsys):
    runs = own_program(tmp_path, "")
    (tmp_path / "train.py").write_text(SETTINGS)
    nets = "import disttrain as dt\nclass Net(dt.nn.Linear): pass\n"
    (tmp_path / "nets_of_the_program.py").write_text(nets)
    out = tmp_path / "m.dtp"
    assert main(["export", str(runs), "-o", str(out), "--model.width", "3"]) == 0
    assert dt.load_program(out)(dt.ones(1, 2)).shape == (1, 3)
    assert main(["export", str(runs), "-o", str(out), "--model.width", "4"]) == 2
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("m.pt", "the name says what is written"),
        ("m-1.5", "the name says what is written"),
        ("folder.dtp", "is a folder that is there; a file would be written"),
        ("folder.onnx", "is a folder that is there; a file would be written"),
        ("file", "is a file that is there; a folder would be written"),
        ("runs", "a folder that holds other things than a saved program"),
        ("none/m.dtp", "the folder"),
        ("m.gguf", "models of known architectures"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_done(tmp_path, capsys, name, said):
    runs = own_program(tmp_path, OWN)
    for folder in ("folder.dtp", "folder.onnx"):
        (tmp_path / folder).mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(runs), "-o", str(tmp_path / name), "--hf"]) == 2
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_suffixes_in_capitals(tmp_path):
    runs = own_program(tmp_path, OWN)
    assert main(["export", str(runs), "-o", str(tmp_path / "M.ONNX")]) == 0
    onnxruntime.InferenceSession(tmp_path / "M.ONNX", providers=["CPUExecutionProvider"])


def test_which_program_is_asked(tmp_path, monkeypatch):
    run = tmp_path / "runs" / "0001"
    run.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    (run / "model.json").write_text(json.dumps({"program": "/nowhere/train.py"}))
    with pytest.raises(ConfigError, match=r"it names /nowhere/train\.py; name the program with"):
        find_program(run)
    here = tmp_path / "here"
    (here / "scripts").mkdir(parents=True)
    for path in (here / "scripts" / "train.py", here / "train.py"):
        path.write_text("")
    monkeypatch.chdir(here)
    assert find_program(run) == here / "train.py"
    (here / "train.py").write_text("(")  # one that has no ``trained`` is not asked
    (here / "scripts" / "train.py").write_text("def trained(run, words): ...")
    assert find_program(run) == here / "scripts" / "train.py"
    for path in (here / "scripts" / "train.py", here / "train.py"):
        path.write_text("")
    (run / "model.json").write_text(json.dumps({"program": str(here / "scripts" / "train.py")}))
    assert find_program(run) == here / "scripts" / "train.py"
    (run / "model.json").write_text("[" * 10_000)  # damaged
    (tmp_path / "train.py").write_text("")
    assert find_program(run) == tmp_path / "train.py"


def test_runs_that_are_not_there(tmp_path, capsys):
    for where, said in ((tmp_path / "none", "is no folder"), (tmp_path, "holds no checkpoint")):
        assert main(["export", str(where), "-o", str(tmp_path / "m.dtp")]) == 2
        assert said in capsys.readouterr().err
