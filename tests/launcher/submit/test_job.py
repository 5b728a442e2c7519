"""What ``dtrun submit`` writes down, and what it refuses before a job waits in a queue."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from disttrain_launcher.command import dispatch
from disttrain_launcher.submit.yaml_text import documents

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted((ROOT / "configs" / "cluster").glob("*"))
WRITTEN = [path for path in TEMPLATES if path.suffix != ".sh"]
SLURM = ("submit", "--to", "slurm", "--dry-run", "--nnodes", "2")
POD = ("submit", "--to", "kubernetes", "--dry-run", "--image", "i:1", "--nnodes", "2")


def written(capsys, *words):
    assert dispatch.main(list(words)) == 0
    return capsys.readouterr().out


def refused(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        dispatch.main(list(words))
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_templates_are_what_their_first_lines_write(path, capsys):
    text = path.read_text()
    command = next(line for line in text.splitlines() if line.startswith("# dtrun submit "))
    words = shlex.split(command[2:])[1:]
    assert written(capsys, words[0], "--dry-run", *words[1:]) == text


def test_there_is_a_template_for_each_cluster():
    assert {"slurm.sbatch", "slurm_elastic.sbatch", "kubernetes.yaml"} <= {
        p.name for p in TEMPLATES
    }


def test_scripts_are_shell_that_can_be_read(capsys):
    text = written(capsys, *SLURM, "--setup", "module load cuda", "t.py", "--text", "it's $(x)")
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    lines = text.splitlines()
    assert lines.index("module load cuda") < next(i for i, s in enumerate(lines) if "srun" in s)
    assert shlex.quote("it's $(x)") in text


def srun_of(text):
    return next(shlex.split(line) for line in text.splitlines() if line.startswith("srun "))


def test_dtrun_gets_its_own_options_and_the_program_its_arguments(capsys):
    words = (
        "--time",
        "1:00",
        "--max-restarts",
        "2",
        "--tee",
        "3",
        "t.py",
        "--time",
        "9",
        "--to",
        "x",
    )
    srun = srun_of(written(capsys, *SLURM, *words))
    handed_on = srun[srun.index("dtrun") : srun.index("||")]
    program = handed_on.index("t.py")
    assert handed_on[program:] == [*words[6:]]
    flags = handed_on[1:program]
    assert dict(zip(flags[::2], flags[1::2])) == {
        "--max-restarts": "2", "--tee": "3", "--on-term": "checkpoint", "--shutdown-timeout": "110",
    }  # fmt: skip


def test_a_node_may_be_lost_and_time_may_end(capsys):
    text = written(capsys, *SLURM, "--save-time", "300", "--restarts", "7", "--time", "60", "t.py")
    assert "#SBATCH --signal=TERM@300" in text and "#SBATCH --requeue" in text
    assert "--no-kill" not in text, "the job needs all, and another start gets others"
    assert "$code == 143" in text and "-lt 7" in text
    assert "--on-term checkpoint --shutdown-timeout 290" in text
    words = ("--on-term", "exit", "--shutdown-timeout", "9", "t.py")
    assert "dtrun --shutdown-timeout 9.0 t.py" in written(capsys, *SLURM, *words)


def test_between_two_numbers_of_nodes(capsys):
    text = written(capsys, "submit", "--to", "slurm", "--dry-run", "--nnodes", "2:5", "t.py")
    assert "#SBATCH --nodes=2-5" in text
    assert '--nnodes 2:"$SLURM_JOB_NUM_NODES"' in text
    assert "#SBATCH --no-kill" in text and "--no-kill" in srun_of(text)
    text = written(capsys, *POD[:-1], "2:5", "t.py")
    assert 'value: "2:5"' in text and "completions: 5" in text


def test_a_gpu_is_a_rank(capsys):
    text = written(capsys, *SLURM, "--gpus-per-node", "8", "--cpus-per-node", "32", "t.py")
    assert "#SBATCH --gpus-per-node=8" in text
    srun = srun_of(text)
    assert srun[srun.index("--nproc-per-node") + 1] == "8"
    assert "--cpus-per-task=32" in srun, "srun does not take it from the job"
    assert 'nvidia.com/gpu: "8"' in written(capsys, *POD, "--gpus-per-node", "8", "t.py")


def test_no_secret_is_written_down(capsys):
    text = written(capsys, *POD, "t.py")
    assert "kind: Secret" not in text and "kubectl create secret" in text
    assert "secretName: t-token" in text


@pytest.mark.parametrize(
    "program, name",
    [("Train_GPT.v2.py", "train-gpt-v2"), ("/a/b/3d.py", "job-3d"), ("x" * 80 + ".py", "x" * 52)],
)
def test_a_job_is_named_as_its_program(program, name, capsys):
    assert f"#SBATCH --job-name={name}\n" in written(capsys, *SLURM, program)


@pytest.mark.parametrize(
    "words, said",
    [
        ((*SLURM,), "no program"),
        ((*SLURM, "--simulate", "4", "t.py"), "--simulate"),
        ((*SLURM, "--standalone", "t.py"), "--standalone"),
        ((*SLURM, "--image", "x", "t.py"), "--image"),
        ((*SLURM, "--tee", "9", "t.py"), "--tee 9"),
        ((*SLURM, "--name", "Has Spaces", "t.py"), "--name Has Spaces"),
        ((*SLURM, "--time", "1 2", "t.py"), "--time"),
        ((*SLURM, "--sbatch", "exclusive", "t.py"), "--sbatch exclusive"),
        ((*SLURM, "--save-time", "-1", "t.py"), "--save-time"),
        (("submit", "--to", "slurm", "--nnodes", "3:2", "t.py"), "--nnodes 3:2"),
        (("submit", "--to", "slurm", "--nnodes", "x", "t.py"), "--nnodes x"),
        (("submit", "--to", "kubernetes", "t.py"), "--image"),
        ((*POD, "--partition", "p", "t.py"), "--partition"),
        ((*POD, "--volume", "data", "t.py"), "--volume"),
        ((*POD, "--port", "0", "t.py"), "--port 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(words, said, capsys):
    assert said in refused(capsys, *words)


def test_sbatch_gets_the_script(tmp_path, monkeypatch, capfd):
    stand_in = tmp_path / "sbatch"
    stand_in.write_text("#!/bin/sh\ncat > " + str(tmp_path / "got") + "\necho job 7\nexit 3\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = [word for word in SLURM if word != "--dry-run"]
    assert dispatch.main([*words, "t.py"]) == 3, "its exit code"
    assert capfd.readouterr().out == "job 7\n"
    assert (tmp_path / "got").read_text() == written(capfd, *SLURM, "t.py")


def test_where_there_is_no_sbatch(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dispatch.main([*(word for word in SLURM if word != "--dry-run"), "t.py"]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_text_keeps_what_looks_like_something_else():
    found = {"a": "no", "b": "0x1", "c": "1.0", "d": "", "e": [], "f": {}, "g": "x: y", "h": None}
    assert documents([found, {"i": [{"j": True, "k": ["l"]}]}]) == (
        'a: "no"\nb: "0x1"\nc: "1.0"\nd: ""\ne: []\nf: {}\ng: "x: y"\nh: null\n'
        "---\ni:\n  - j: true\n    k:\n      - l\n"
    )
