"""Every block of code in README and docs/ is run, or says why not (``support/pages.py``)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.pages import PAGES, ROOT, RUN, SHOWN, Block, blocks, left_out

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
NAMES = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def shell(script: str, folder: Path) -> str:
    """What the commands say; they must end well."""
    found = {k: v for k, v in os.environ.items() if k.split("_")[0] not in ("PYTEST", "DISTTRAIN")}
    env = found | {
        "PATH": PATH,
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout[-4000:]}"
    return done.stdout


def reader(folder: Path) -> Path:
    """Where a reader of a page stands: in a checkout, with the README's script."""
    for name in ("configs", "scripts", "tests"):
        (folder / name).symlink_to(ROOT / name)
    first = next(block for block in blocks(ROOT / "README.md") if block.file == "train.py")
    (folder / "train.py").write_text(first.text)
    return folder


def there(needs: str) -> bool:
    """Is a program, or a package, installed?"""
    return bool(shutil.which(needs, path=PATH)) or importlib.util.find_spec(needs) is not None


def program(parts: list[Block]) -> str:
    """Blocks as one file whose lines have the numbers that they have on the page, so that a
    traceback names them."""
    text = ""
    for part in parts:
        before = textwrap.dedent(part.said.get("before", "")).strip("\n")
        gap = part.line - 1 - text.count("\n") - (before.count("\n") + 1 if before else 0)
        text += "\n" * max(gap, 0) + (f"{before}\n" if before else "") + part.text
    return text


def run_python(page: Path, parts: list[Block], folder: Path) -> None:
    ranks = int(parts[0].said.get("ranks", 2))
    name = f"{page.stem}_{parts[0].line}.py"
    (folder / name).write_text(program(parts))
    shell(f"python {name}" if ranks == 1 else f"dtrun --nproc-per-node {ranks} {name}", folder)


@pytest.mark.timeout(150)
@NAMES
def test_code_runs(page, tmp_path):
    folder = reader(tmp_path)
    whole: list[Block] = []
    for block in blocks(page):
        needs = block.said.get("needs")
        if "not run" in block.said or (needs and not there(needs)):
            continue
        if block.file is not None:
            (folder / block.file).write_text(block.text)
        elif block.language in ("bash", "console"):
            shell(block.commands, folder)
        elif block.language == "python" and "ranks" in block.said:
            run_python(page, [block], folder)
        elif block.language == "python":
            whole.append(block)
    if whole:
        run_python(page, whole, folder)


@NAMES
def test_code_stands_between_fences(page):
    """An indented block says no language, and would not be run."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", re.sub(r"<!--.*?-->", "", outside, flags=re.DOTALL))
    listed = re.compile(r"\s*([*-]|\d+\.) |  ")
    for before, part in zip(["", *paragraphs], paragraphs, strict=False):
        assert not part.startswith("    ") or listed.match(before), part
    assert {block.language.split()[0] for block in blocks(page)} <= {*RUN, *SHOWN}


def test_what_is_not_run_says_why():
    reasons = [line.partition(": ")[2] for line in left_out()]
    assert reasons and all(len(reason.split()) >= 3 for reason in reasons)
    named = [
        name for reason in reasons for name in re.findall(r"(?:tests|scripts)/[\w/.]+", reason)
    ]
    assert [name for name in named if not (ROOT / name).exists()] == []
