"""``disttrain plan --cluster``: files of models, what is asked, what is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disttrain.cli import main
from disttrain.distributed.planning.asking import read_model
from disttrain.errors import ConfigError

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "configs" / "models" / "llama3_70b.toml"
CLUSTER = ROOT / "configs" / "clusters" / "h100x8x64.toml"
SMALL = """[model]
layers = 4
hidden = 1024
heads = 16
vocab = 1000
"""


def ask(capsys, *words):
    code = main(["plan", *map(str, words)])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_text(capsys):
    code, out, _ = ask(capsys, MODEL, "--cluster", CLUSTER, "--nodes", 8, "--top", 3, "--play", 2)
    assert code == 0 and out.startswith("70.6 billion weights on 64 h100")
    assert "with contention" in out and out.count("ruled out: ") == 3


def test_json(capsys, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(SMALL)
    words = (path, "--cluster", CLUSTER, "--nodes", 1, "--batch", 16, "--seq", 1024, "--json")
    code, out, _ = ask(capsys, *words)
    table = json.loads(out)
    assert code == 0 and table["devices"] == 8 and len(table["played"]) == 3
    assert all("difference" in each for each in table["played"])


def test_chakra_traces(capsys, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(SMALL + "[training]\nbatch = 16\nseq = 1024\n")
    name = tmp_path / "t"
    code, out, _ = ask(capsys, path, "--cluster", CLUSTER, "--nodes", 1, "--chakra", name)
    assert code == 0 and f"ranks: {name}.RANK.et" in out
    assert (tmp_path / "t.0.et").stat().st_size > 100


def test_a_program_is_traced(capsys):
    config = ROOT / "configs" / "gpt_char.toml"
    code, out, _ = ask(capsys, config, "--cluster", CLUSTER, "--nodes", 1, "--model.width", 192)
    assert code == 0 and "32 sequences of 64 tokens" in out


@pytest.mark.parametrize(("words", "message"), [
    ((), "--batch is missing"),
    (("--batch", "8"), "--seq is missing"),
    (("--batch", "-8", "--seq", "9"), "--batch is missing or below 1"),
    (("--batch", "8", "--seq", "9", "--play", "-1"), "--play takes 0 or more"),
    (("--batch", "8", "--seq", "9", "--nodes", "-1"), "--nodes -1 given"),
    (("--batch", "8", "--seq", "9", "--nodes", "0"), "--nodes 0 given"),
    (("--batch", "8", "--seq", "9", "--precision", "fp4"), "precision='fp4' given"),
    (("--batch", "8", "--seq", "9", "--model.width", "3"), "has no program"),
])  # fmt: skip
def test_wrong_questions(capsys, tmp_path, words, message):
    path = tmp_path / "m.toml"
    path.write_text(SMALL)
    code, _, err = ask(capsys, path, "--cluster", CLUSTER, *words)
    assert code == 2 and message in err


@pytest.mark.parametrize("flag", ["--batch", "--seq"])
def test_a_flag_of_zero_is_not_the_file_s(capsys, tmp_path, flag):
    path = tmp_path / "m.toml"
    path.write_text(SMALL + "[training]\nbatch = 16\nseq = 1024\n")
    code, _, err = ask(capsys, path, "--cluster", CLUSTER, flag, 0)
    assert code == 2 and f"{flag} is missing or below 1" in err


def test_where_nothing_fits_the_command_fails(capsys):
    code, out, _ = ask(capsys, MODEL, "--cluster", CLUSTER, "--nodes", 1)
    assert code == 1 and "none fits" in out


def documented(head):
    """The names in the first column of the table of docs/plan.md that begins with ``head``."""
    lines = (ROOT / "docs" / "plan.md").read_text().split(f"| {head} | |\n|---|---|\n")[1]
    rows = lines.split("\n\n")[0].splitlines()
    return {name.strip(" `") for row in rows for name in row.split("|")[1].split(",")}


def test_json_has_the_keys_that_are_documented(capsys, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(SMALL)
    words = (path, "--cluster", CLUSTER, "--nodes", 1, "--batch", 16, "--seq", 1024, "--json")
    table = json.loads(ask(capsys, *words)[1])
    assert set(table) == documented("JSON")
    assert set(table["best"][0]) == documented("of a layout")


def test_neither_ranks_nor_a_cluster(capsys):
    code, _, err = ask(capsys, MODEL)
    assert code == 2 and "--world N" in err and "--cluster FILE" in err


@pytest.mark.parametrize(("text", "message"), [
    ("[model", "is no TOML file"),
    (SMALL + "[training]\nsteps = 3\n", "training: unknown key 'steps'"),
    (SMALL + "[training]\nbatch = '8'\n", "training.batch='8' given; needed is a whole number"),
    ("training = 3\n" + SMALL, "training=3 given"),
    (SMALL + "depth = 2\n", "unknown key 'depth'"),
])  # fmt: skip
def test_wrong_files(tmp_path, text, message):
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_model(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_model(tmp_path / "none.toml")


def test_files_of_programs_say_no_dimensions():
    assert read_model(ROOT / "configs" / "gpt_char.toml") == (None, {})
