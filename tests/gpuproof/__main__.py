"""``scripts/gpu``: the command line, what is looked at first, and where the report goes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import packages
from .parts import BUDGET, PARTS, chosen
from .report import markdown
from .runner import as_data, run

ROOT = Path(__file__).parents[2]
NO_GPU = 2


def main(words: Sequence[str] | None = None) -> int:
    """0: all held; 1: something did not; 2: there is no GPU, or the call was wrong."""
    given = _parser().parse_args(words)
    try:
        parts = chosen(given.only)
    except ValueError as error:
        print(f"scripts/gpu: {error}", file=sys.stderr)
        return 2
    machine = _machine() if given.platform == "cuda" else {"cards": [], "driver": ""}
    if given.platform == "cuda" and not machine["cards"]:
        why = machine["problem"] or "none is visible"
        doctor = "`python -m disttrain.cli doctor` says what is missing"
        rehearse = "`scripts/gpu --platform double` rehearses on a stand-in"
        print(f"scripts/gpu: there is no GPU here ({why}). Nothing was tried.", file=sys.stderr)
        print(f"scripts/gpu: {doctor}; {rehearse}", file=sys.stderr)
        return NO_GPU
    device = (machine["cards"][0]["name"] or "gpu") if machine["cards"] else "rehearsal"
    beginning = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpuproof-") as folder:
        notes = _packages(given, machine, Path(folder, "packages"))
        width = max(1, min(6, (os.cpu_count() or 1) // 2))
        outcomes = run(parts, given.platform, Path(folder), given.budget, width, _say)
    found = {
        "device": device,
        "platform": given.platform,
        "command": "scripts/gpu " + " ".join(sys.argv[1:]),
        "python": platform.python_version(),
        "revision": _revision(),
        "seconds": time.monotonic() - beginning,
        "driver": machine["driver"],
        "parts": as_data(outcomes),
    }
    found["parts"][0]["notes"][:0] = notes
    path = write(found, given.out)
    bad = [part["title"] for part in found["parts"] if part["state"] in ("FAILED", "no time")]
    print(f"scripts/gpu: {path} ({found['seconds']:.0f} s)")
    for title in bad:
        print(f"scripts/gpu: failed: {title}")
    return 1 if bad else 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="scripts/gpu", description=__doc__)
    p.add_argument(
        "--wheels", type=Path, metavar="DIR", help="wheels for packages that are missing"
    )
    p.add_argument("--out", type=Path, default=ROOT / "docs" / "gpu", metavar="DIR",
                   help="where <device>.md and .json go (default: docs/gpu)")  # fmt: skip
    names = ", ".join(part.name for part in PARTS)
    p.add_argument("--only", default="", metavar="PARTS", help=f"some of {names}")
    p.add_argument("--platform", default="cuda", choices=("cuda", "double"),
                   help="double: rehearse on a stand-in for a device")  # fmt: skip
    p.add_argument("--budget", type=float, default=BUDGET, metavar="S", help="seconds for all")
    return p


def _machine() -> dict[str, Any]:
    """What there is, asked before any package but the standard library is needed."""
    words = [sys.executable, "-I", "-S", str(ROOT / "disttrain" / "gpus.py")]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return {"cards": [], "driver": "", "cuda": 0, "problem": str(error)}
    return json.loads(done.stdout)


def _packages(given: argparse.Namespace, machine: dict[str, Any], target: Path) -> list[str]:
    """Put what is missing where child processes find it; what there is to say about it."""
    if given.platform != "cuda":
        return []
    major = 12 if 0 < machine["cuda"] < 13000 else 13
    missing = packages.missing(major)
    if not missing:
        return []
    if given.wheels is None:
        return [f"missing: {', '.join(missing)}; carry their wheels and name the folder: --wheels"]
    problems = packages.install(missing, given.wheels, target)
    # behind the packages that are here: these are only for what is missing
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(target)])
    notes = [f"{name}: {why}" for name, why in problems.items()]
    put = [name for name in missing if name not in problems]
    return [f"from {given.wheels}: {', '.join(put)}", *notes] if put else notes


def write(found: dict[str, Any], folder: Path) -> Path:
    """The report and the JSON beside it; both are whole or not there."""
    name = re.sub(r"[^a-z0-9]+", "-", found["device"].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".json", json.dumps(found, indent=1)), (".md", markdown(found))):
        path = folder / f"{name}{suffix}"
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    return folder / f"{name}.md"


def _revision() -> str:
    git = shutil.which("git")
    if git is None:
        return "an unknown revision"
    words = [git, "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or "an unknown revision"


def _say(text: str) -> None:
    print(f"scripts/gpu: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
