"""The shell part of scripts/: finding a python, knowing when there is nothing to install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.dtrun import until

ROOT = Path(__file__).parents[2]
VERBS = ("demo", "test", "lint", "bench", "gpu", "docs", "release")


def bash(script: str, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **env},
        capture_output=True,
        text=True,
        timeout=50,
    )


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a virtual environment that looks complete."""
    (tmp_path / "scripts").mkdir()
    shutil.copytree(ROOT / "scripts" / "lib", tmp_path / "scripts" / "lib")
    for verb in VERBS:
        shutil.copy(ROOT / "scripts" / verb, tmp_path / "scripts" / verb)
    (tmp_path / "pyproject.toml").write_text("# settings\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    stamp = 'fingerprint "$extra" > "$VENV/.installed-$extra"'
    done = bash(f". scripts/lib/venv.sh; for extra in base test; do {stamp}; done", tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.parametrize("path", [*(f"scripts/{v}" for v in VERBS), ".ci/run"])
def test_verbs_can_be_run(path):
    assert os.access(ROOT / path, os.X_OK)
    assert subprocess.run(["bash", "-n", ROOT / path], timeout=20).returncode == 0


@pytest.mark.parametrize("fails", ["", "lint", "test --newest", "ensure_peers"])
def test_every_part_runs_and_failures_are_told_at_the_end(tmp_path, fails):
    """What runs beside the tests is told of behind them."""
    (tmp_path / "scripts" / "lib").mkdir(parents=True)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    told = f'said="$*"; echo "did $said"; [[ "$said" != "{fails}" ]]'
    made = "".join(f"{f}() {{ set -- {f}; {told}; }}\n" for f in ("ensure_peers", "run_newest"))
    (tmp_path / "scripts" / "lib" / "venv.sh").write_text(f"ensure_venv() {{ :; }}\n{made}")
    for verb in ("lint", "test"):
        path = tmp_path / "scripts" / verb
        path.write_text(f"#!/bin/bash\nset -- {verb} $*\n{told}\n")
        path.chmod(0o755)
    done = bash("exec .ci/run", tmp_path)
    did = [x.removeprefix("did ") for x in done.stdout.splitlines() if x.startswith("did")]
    later = [f"test --{which}" for which in ("kernels", "newest", "peers")]
    assert did == ["test", "lint", "ensure_peers", "run_newest", *later]
    part = fails in ("lint", "test --newest")
    told = f"ci: failed: scripts/{fails}" if part else "ci: all good in "
    assert done.stdout.splitlines()[-1].startswith(told)
    assert done.returncode == part


def test_nothing_is_installed_twice(checkout):
    done = bash(". scripts/lib/venv.sh; ensure_venv test; echo ready", checkout)
    assert (done.stdout, done.stderr, done.returncode) == ("ready\n", "", 0)


@pytest.mark.parametrize(
    ("words", "env", "own"),
    [
        ("--platform double", {}, True),
        ("--only kernels --platform=double", {}, True),
        ("--only kernels", {}, False),
        ("--platform double", {"PYTHON": "python3"}, False),
    ],
)
def test_only_the_rehearsal_takes_the_environment_of_the_tests(checkout, words, env, own):
    package = checkout / "tests" / "gpuproof"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("import sys; print(sys.executable, *sys.argv[1:])")
    done = bash(f"exec '{checkout}/scripts/gpu' {words}", checkout.parent, **env)
    found, *given = done.stdout.split()
    assert given == words.split(), done.stderr
    assert (Path(found) == checkout / ".venv" / "bin" / "python") == own


def test_changed_pyproject_installs_again(checkout):
    (checkout / "pyproject.toml").write_text("# other settings\n")
    # An index that does not exist: the attempt is what is looked for, and how its failure is told.
    done = bash(
        ". scripts/lib/venv.sh; ensure_venv; echo ready",
        checkout,
        PIP_NO_INDEX="1",
        PIP_CONFIG_FILE="/dev/null",
    )
    assert "installing . into .venv" in done.stderr and "installation failed" in done.stderr
    assert done.returncode == 1 and "ready" not in done.stdout


def test_old_python_is_refused_with_a_way_out(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        fake = tmp_path / "bin" / name
        fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit 0\nexit 1\n')
        fake.chmod(0o755)
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    done = bash(f". {ROOT}/scripts/lib/venv.sh; find_python", tmp_path, PATH=path)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed; found: Python 3.9.1" in done.stderr
    assert "apt install" in done.stderr and "PYTHON=" in done.stderr


def test_a_newer_python_beside_an_old_one_is_found(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    newer = tmp_path / "bin" / "python3.14"
    newer.symlink_to(sys.executable)
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    done = bash(f". {ROOT}/scripts/lib/venv.sh; find_python", tmp_path, PATH=path)
    assert done.stdout.strip() == str(newer)


def test_peers_have_an_environment_of_their_own(checkout):
    (checkout / ".venv-peers" / "bin").mkdir(parents=True)
    (checkout / ".venv-peers" / "bin" / "python").symlink_to(sys.executable)
    stamp = 'fingerprint "$extra" > "$VENV/.installed-$extra"'
    done = bash(
        ". scripts/lib/venv.sh; VENV=$ROOT/.venv-peers\n"
        f"for extra in base test peers; do {stamp}; done\n"
        "ensure_peers; echo $VENV",
        checkout,
    )
    assert (done.stdout, done.stderr) == (f"{checkout}/.venv-peers\n", "")


WHEEL = '{{"install": [{{"metadata": {{"name": "torch", "requires_dist": ["{}"]}}}}]}}'


@pytest.mark.parametrize("needs, taken", [("nvidia-cublas", False), ("sympy", True)])
def test_a_build_with_cuda_is_refused_before_it_is_fetched(checkout, needs, taken):
    """A fake python that answers pip's dry run, and writes down how it was asked to install."""
    (checkout / "pyproject.toml").write_text('peers = ["torch==2.13.0"]\n')
    python = checkout / ".venv-peers" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"""#!/bin/bash
case "$*" in
    *--dry-run*torch==2.13.0) echo '{WHEEL.format(needs)}' ;;
    *"pip install"*) echo "$*" >> asked ;;
    *torch.version.cuda*) exit 0 ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    done = bash(". scripts/lib/venv.sh; ensure_peers", checkout)
    last = (checkout / "asked").read_text().splitlines()[-1]
    if taken:
        assert done.returncode == 0, done.stderr
        assert last == "-m pip install -q --disable-pip-version-check --no-compile -e .[peers]"
    else:
        assert done.returncode == 1 and "gigabytes of CUDA. Name PyTorch's index" in done.stderr
        assert "peers" not in last


def test_a_build_with_cuda_is_refused(checkout):
    fake = 'VENV=.venv-peers; mkdir -p $VENV/bin; printf "#!/bin/sh\\nexit 1\\n" > $VENV/bin/python'
    done = bash(f". scripts/lib/venv.sh; {fake}; chmod +x $VENV/bin/python; refuse_cuda", checkout)
    assert done.returncode == 1
    assert (
        "not the CPU build. Remove .venv-peers. Name PyTorch's index of CPU builds" in done.stderr
    )


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_busy_processes_end_with_the_command_and_with_their_parent():
    loaded = [sys.executable, ROOT / "scripts" / "lib" / "loaded.py", "2"]
    children = "import os; p = os.getppid(); print(open(f'/proc/{p}/task/{p}/children').read())"
    done = subprocess.run(
        [*loaded, sys.executable, "-c", f"{children}; raise SystemExit(3)"],
        capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    busy = done.stdout.split()[:2]
    assert done.returncode == 3 and len(done.stdout.split()) == 3
    assert not any(map(runs, busy))
    waiting = subprocess.Popen([*loaded, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    waiting.stdin.write(b"x\n")
    waiting.stdin.flush()
    assert waiting.stdout.read(1) == b"x"
    path = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    busy = path.read_text().split()[:2]
    waiting.kill()
    waiting.communicate()
    until(lambda: not any(map(runs, busy)), "the busy ones to end")


@pytest.mark.parametrize(
    ("heading", "untracked", "message"),
    [("0.1.0", True, "has changes"), ("0.0.9", False, "has no '## [0.1.0] - DATE'")],
)
def test_a_release_is_refused(checkout, heading, untracked, message):
    """Of a tree with changes, and of a version that nothing is said of."""
    (checkout / "disttrain").mkdir()
    (checkout / "disttrain" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (checkout / "CHANGELOG.md").write_text(f"## [{heading}] - 2026-11-23\n")
    made = bash(
        "git init -q . && echo '.venv*' > .gitignore && git add -A && "
        "git -c user.name=a -c user.email=a@b commit -qm first",
        checkout,
    )
    assert made.returncode == 0, made.stderr
    if untracked:
        (checkout / "more").touch()
    done = bash("scripts/release", checkout)
    assert done.returncode == 1 and message in done.stderr and not (checkout / "dist").exists()
