"""A rank's program finds what it would find under Python's own command."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SHOW = """\
import __main__, json, os, sys
os.chdir("/")
found = dict(file=__file__, name=__name__, package=__package__, spec=__spec__ and __spec__.name,
             argv=sys.argv, path=sys.path[0], own=__main__.__dict__ is globals(),
             bin=any(p.endswith("/bin") for p in sys.path),
             annotations=globals().get("__annotations__"))
open(os.environ["OUT"], "w").write(json.dumps(found))
"""


def ran(folder, *words, **env):
    """What the program has found, by ``words`` of Python's and by dtrun's that mean the same."""
    found = []
    for command in (["-u"], ["-m", "disttrain_launcher"]):
        out = folder / "found.json"
        done = subprocess.run(
            [sys.executable, *command, *words], cwd=folder, text=True, capture_output=True,
            env={**os.environ, "OUT": str(out), **env},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(out.read_text()))
    return found


@pytest.mark.parametrize("kind", ["script", "link", "module", "package", "folder", "zip", "spawn"])
def test_main_is_what_python_makes_of_it(tmp_path, kind):
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("__main__.py", "shown.py", "__init__.py"):
        (inside / name).write_text("" if name == "__init__.py" else SHOW)
    (tmp_path / "link.py").symlink_to(inside / "shown.py")
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as file:
        file.writestr("__main__.py", SHOW)
    words = {
        "script": ["inside/../inside/shown.py"], "link": ["link.py"], "folder": ["inside"],
        "module": ["-m", "inside.shown"], "package": ["-m", "inside"], "zip": ["it.zip"],
        "spawn": ["inside/shown.py"],
    }[kind]  # fmt: skip
    env = {"PET_START_METHOD": "spawn"} if kind == "spawn" else {}
    python, ours = ran(tmp_path, *words, "--x", **env)
    assert ours == python


def test_a_program_may_have_a_module_called_as_the_launcher(tmp_path):
    (tmp_path / "launcher.py").write_text("mine = 1")
    (tmp_path / "t.py").write_text(
        f"{SHOW}\nimport launcher, disttrain.distributed as d\nassert launcher.mine\n"
        "d.init_process_group() if 'RANK' in os.environ else 0\n"
    )
    python, ours = ran(tmp_path.parent, str(tmp_path / "t.py"))
    assert ours == python
    (tmp_path / "test_mine.py").write_text(
        "import launcher, pytest\nfrom disttrain import launch\n\n"
        "@pytest.mark.ranks(2)\ndef test(): assert launcher.mine\n\n"
        "def test_launch(): assert launch(int, nproc_per_node=2) == [0, 0]\n"
    )
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, text=True, capture_output=True, timeout=50
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_main_stays_for_threads_and_exit_handlers(job_of):
    done = job_of("""
        import atexit, pickle, threading, time
        def f():
            time.sleep(0.05)
            print("pickled", bool(pickle.dumps(f)))
        atexit.register(f)
        threading.Thread(target=f).start()
    """)
    assert (done.returncode, done.stdout) == (0, "pickled True\n" * 2), done.stderr


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("first", [True, False], ids=["before the group", "after it"])
def test_exit_handlers_may_call_the_other_ranks(job_of, transport, first):
    begin, told = f"dist.init_process_group({transport!r})", "atexit.register(tell)"
    text = f"""
        import atexit
        import disttrain as dt
        import disttrain.distributed as dist
        def tell():
            x = dt.ones(2)
            dist.all_reduce(x)
            print("sum", x[0].item())
        {told if first else begin}
        {begin if first else told}
    """
    done = job_of(text, "--nproc-per-node", "2")
    assert done.returncode == 0 and done.stdout.count("sum 2.0") == 2, done.stdout + done.stderr


def test_a_program_may_tell_of_its_errors_itself(job_of):
    done = job_of("""
        import sys
        sys.excepthook = lambda kind, error, trace: print("told:", error)
        raise ValueError("of it")
    """)
    assert (done.returncode, done.stdout) == (1, "told: of it\n")
    assert "ValueError: of it" in done.stderr  # in the headline alone
    assert done.stderr.count("raise ValueError") == 1


def test_lines_begin_as_torchruns_variable_says(job_of):
    template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}${local_rank}/${rank}]:"}
    done = job_of("print('x')", "--nproc-per-node", "2", "--role", "r", **template)
    assert sorted(done.stdout.splitlines()) == ["[r0/0]:x", "[r1/1]:x"]


@pytest.fixture
def job_of(tmp_path):
    def run(text, *flags, **env):
        path, lines = tmp_path / "t.py", text.splitlines()
        indent = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
        path.write_text("\n".join(x[indent:] for x in lines))
        return subprocess.run(
            [sys.executable, "-m", "disttrain_launcher", *flags, str(path)],
            text=True, capture_output=True, env={**os.environ, **env},
        )  # fmt: skip

    return run


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_run_path_leaves_the_path_as_the_command_has_it(tmp_path, method):
    """As ``runpy.run_path`` does, which torchrun calls."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "t.py").write_text("import sys; print('first:', sys.path[0])")
    command = [sys.executable, "-m", "disttrain_launcher", "--start-method", method]
    for flags, folder in ((["--run-path"], tmp_path), ([], tmp_path / "sub")):
        done = subprocess.run(
            [*command, *flags, "sub/t.py"], text=True, capture_output=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip
        assert f"first: {folder}" in done.stdout.splitlines()[0], done.stderr
