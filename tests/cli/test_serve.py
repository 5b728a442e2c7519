"""``disttrain serve``, from a saved program to an answer."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain.cli import main

pytest.importorskip("starlette", reason="the board's packages are missing: disttrain[board]")


def client():
    """The function of ``docs/serving.md``."""
    text = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    names: dict = {}
    exec(text.partition("```python\n")[2].partition("\nprint(")[0], names)
    return names["infer"]


def dirty_kilobytes(process, path) -> list[int]:
    """Of each mapping of a file: how much of it is the process's own."""
    text = Path(f"/proc/{process}/smaps").read_text()
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)
    found = [
        part for part in parts if part.splitlines()[:1] and part.splitlines()[0].endswith(str(path))
    ]
    return [int(re.search(r"Private_Dirty: +(\d+)", part)[1]) for part in found]


def test_a_saved_program_is_served(tmp_path) -> None:
    dt.manual_seed(0)
    net = dt.nn.Sequential(dt.nn.Linear(3, 2), dt.nn.ReLU()).eval()
    path = tmp_path / "net.dtp"
    dt.export(net, (dt.zeros(2, 3),), dynamic={"input": {0: "batch"}}).save(path)
    command = [
        sys.executable,
        "-m",
        "disttrain.cli",
        "serve",
        str(path),
        "--port",
        "0",
        "--workers",
        "1",
    ]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = job.stdout.readline()
        assert line.startswith("disttrain serve: net at http://127.0.0.1:")
        x = np.float32([[1, 2, 3], [4, 5, 6]])
        entry = {"name": "input", "datatype": "FP32", "shape": [2, 3], "data": x.ravel().tolist()}
        address = f"{line.split()[-1]}/v2/models/net/infer"
        body = json.dumps({"inputs": [entry]}).encode()
        with urllib.request.urlopen(address, body, timeout=30) as answer:
            (output,) = json.loads(answer.read())["outputs"]
        with dt.no_grad():
            want = net(dt.tensor(x)).numpy()
        found = client()(line.split()[-1], "net", input=x)["output"]
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.float32(output["data"]).reshape(output["shape"]), want)
        with urllib.request.urlopen(f"{line.split()[-1]}/metrics", timeout=30) as answer:
            worker = re.search(r'private_bytes\{worker="(\d+)"', answer.read().decode())[1]
        assert dirty_kilobytes(worker, path) == [0]  # its pages are those of all workers
        job.send_signal(signal.SIGTERM)
        assert job.wait(30) == 0
    finally:
        job.kill()
        events = [json.loads(line)["event"] for line in job.communicate()[1].splitlines()]
    assert events == ["models_ready", "stopping"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gone.dtp"], "there is no such file"),
        (["FILE", "FILE"], "two models are named 'm'"),
        (["a/b=FILE"], "'a/b'"),
        (["FILE", "--workers", "0"], "workers: 0"),
        (["FILE", "--host", "0.0.0.0"], "--token-file"),
        (["FILE", "--max-delay-ms", "-1"], "delay"),
        (["FILE", "--token-file", "TOKEN"], "mode 0600 is needed"),
    ],
)
def test_wrong_words_are_named(tmp_path, capsys, words, told) -> None:
    file, token = tmp_path / "m.dtp", tmp_path / "token"
    file.write_bytes(b"x")
    token.write_text("0123456789abcdef")
    os.chmod(token, 0o644)
    places = {"FILE": str(file), "TOKEN": str(token)}
    assert (
        main(
            [
                "serve",
                *(w.replace("FILE", str(file)) if "=" in w else places.get(w, w) for w in words),
            ]
        )
        == 2
    )
    assert told in capsys.readouterr().err


def test_a_file_that_is_no_program_is_said_with_its_name(tmp_path, capfd) -> None:
    file = tmp_path / "m.dtp"
    file.write_bytes(b"no program" * 10)
    assert main(["serve", str(file), "--port", "0", "--workers", "1"]) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("disttrain serve: serve: ") and str(file) in said
