"""Options completed in shells, and outputs that are filtered and told by events."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from disttrain_launcher.options.command_line import parse, parser
from disttrain_launcher.options.completion import script
from disttrain_launcher.options.logs import _words
from support.dtrun import dtrun

TWO = ("--nproc-per-node", "2")


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "dtrun.bash"
    path.write_text(script(parser(), "bash"))
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["dtrun", "--nproc"], ["--nproc-per-node"]),
        (["dtrun", "--start-method", ""], ["fork", "forkserver", "spawn"]),
        (["dtrun", "--start-method", "=", "sp"], ["spawn"]),
        (["dtrun", "-t", "3", "--dry"], ["--dry-run"]),
        (["dtrun", "--log-dir", "fo"], ["folder"]),
        (["dtrun", "--nproc-per-node", "4", "tr"], ["train.py"]),
        (["dtrun", "--dry-run", "train.py", "--dry"], []),
    ],
)
def test_bash_completes(tmp_path, bash, words, offered):
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.py").write_text("")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"source {bash}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _dtrun"
    done = subprocess.run(
        ["bash", "-c", f'{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"'],
        cwd=tmp_path, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_zsh_completes(tmp_path):
    """As far as it can be asked without a terminal: the functions load, and the specifications are
    such as ``_arguments`` takes."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("there is no zsh here")
    (tmp_path / "_dtrun").write_text(script(parser(), "zsh"))
    ask = (
        "autoload -U compinit; compinit -D -u; source ./_dtrun; "
        '_arguments() { print -l -- "$@" }; whence -w _dtrun; _dtrun'
    )
    done = subprocess.run([zsh, "-f", "-c", ask], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == "" and "_dtrun: function" in done.stdout
    assert "--start-method=[fork ranks from one warm process" in done.stdout
    assert ":(fork forkserver spawn)" in done.stdout.replace("start_method:", ":")


def test_lines_are_duplicated_and_events_are_told(tmp_path):
    script = (
        "import os, sys\nr = os.environ['RANK']\nprint(f'loss {r}')\nprint('other')\n"
        "print('a,b no end', end='')\nprint(f'warn {r}', file=sys.stderr)\nsys.exit(int(r))\n"
    )
    flags = ("--duplicate-stdout-filters", "loss,a,,b", "--duplicate-stderr-filters", "warn")
    flags += ("--event-log-handler", "console", "--log-dir", "logs")
    ended = dtrun(tmp_path, script, *TWO, *flags)
    folder = tmp_path / "logs" / "attempt_0"
    lines = (folder / "filtered_stdout.log").read_text().splitlines()
    assert sorted(lines) == [
        "[rank 0] a,b no end", "[rank 0] loss 0", "[rank 1] a,b no end", "[rank 1] loss 1",
    ]  # fmt: skip
    lines = (folder / "filtered_stderr.log").read_text().splitlines()
    assert sorted(lines) == ["[rank 0] warn 0", "[rank 1] warn 1"]
    assert ended.out.count("loss") == 2  # they are shown as ever
    events = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    told = [(e["source"], e["metadata"]["state"], e["metadata"]["exitcode"]) for e in events]
    assert told == [("WORKER", "SUCCEEDED", 0), ("WORKER", "FAILED", 1), ("AGENT", "FAILED", 1)]


@pytest.mark.parametrize(
    ("text", "words"), [("", ()), ("a", ("a",)), ("a,b", ("a", "b")), ("a,,b,c", ("a,b", "c"))]
)
def test_words_of_filters(text, words):
    assert _words(text) == words


@pytest.mark.parametrize(
    ("flag", "value"), [("PET_EVENT_LOG_HANDLER", "kafka"), ("PET_LOGS_SPECS", "mine")]
)
def test_variables_are_checked_as_flags_are(flag, value, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["x.py"], {flag: value})
    assert stop.value.code == 2 and f"{value}: one of" in capsys.readouterr().err
