"""Which of PyTorch's public names the stand-in has: the tables of docs/torch.md.

torch_names.py [--check]: asks the real PyTorch for its names and the stand-in for its own, each in
a process of its own, and writes what it finds between two marks of the page.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"
BEGIN, END = "<!-- names: written by scripts/names -->", "<!-- end of names -->"
MODULES = """torch torch.Tensor torch.nn torch.nn.functional torch.nn.init torch.nn.utils
torch.nn.utils.rnn torch.nn.utils.parametrize torch.nn.utils.parametrizations
torch.nn.utils.stateless torch.nn.parallel torch.optim torch.optim.lr_scheduler
torch.optim.swa_utils torch.autograd torch.autograd.functional torch.autograd.forward_ad
torch.autograd.graph torch.func torch.linalg torch.special torch.fft torch.random torch.futures
torch.utils.data torch.utils.checkpoint torch.multiprocessing torch.distributed
torch.distributed.nn.functional torch.distributed.fsdp torch.distributed.rpc
torch.distributed.autograd torch.distributed.optim torch.distributed.checkpoint
torch.distributed.device_mesh torch.distributed.tensor torch.distributed.tensor.parallel
torch.distributed.pipelining torch.distributions torch.amp torch.profiler torch.sparse
torch.quasirandom torch.utils.tensorboard""".split()


def public(owner: object) -> list[str]:
    """Public names of a module or class, as its documentation would list them."""
    names = set(getattr(owner, "__all__", ())) if owner is not sys.modules.get("torch") else set()
    if not isinstance(owner, ModuleType) or not names:
        names |= {n for n in dir(owner) if _belongs(getattr(owner, n, None), owner)}
    return sorted(n for n in names if not n.startswith("_") and hasattr(owner, n))


def _belongs(value: object, owner: object) -> bool:
    if isinstance(value, ModuleType):
        return False
    if not isinstance(owner, ModuleType):
        return True
    home = getattr(value, "__module__", None)
    if type(value).__name__ == "pybind11_type" or (isinstance(value, type) and home == "torch._C"):
        return False  # PyTorch's inside: its compiler's types, its C++ classes
    return home is None or str(home).startswith("torch")


def names_of(root: str) -> dict[str, list[str]]:
    """Public names by module, of what stands under the name torch in this process."""
    if root == "stand-in":
        importlib.import_module("disttrain.compat.torch").install()
    out = {}
    for name in MODULES:
        try:
            if name == "torch.Tensor":
                found = importlib.import_module("torch").Tensor
            else:
                found = importlib.import_module(name)
        except ImportError:
            continue
        out[name] = dir(found) if root == "stand-in" else public(found)
    return out


def ask(root: str) -> dict[str, list[str]]:
    code = f"import json, torch_names as t; print('NAMES ' + json.dumps(t.names_of({root!r})))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=Path(__file__).parent, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    line = next(x for x in done.stdout.splitlines() if x.startswith("NAMES "))
    return json.loads(line.removeprefix("NAMES "))


def tables() -> str:
    """The text between the marks."""
    theirs, ours = ask("torch"), ask("stand-in")
    rows, missing = [], []
    for name, wanted in theirs.items():
        have = set(ours.get(name, ()))
        lacking = [n for n in wanted if n not in have]
        rows.append(f"| `{name}` | {len(wanted) - len(lacking)} of {len(wanted)} |")
        if lacking and name in ours:
            listed = textwrap.fill(" ".join(lacking), 110, break_on_hyphens=False)
            missing.append(f"Missing in `{name}`:\n\n```text\n{listed}\n```\n")
        elif lacking:
            missing.append(f"`{name}` does not exist yet.\n")
    return "\n".join(["| module | names |", "| --- | --- |", *rows, "", *missing])


def main(*options: str) -> int:
    page = PAGE.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    new = f"{page[:start]}\n\n{tables()}\n{page[end:]}"
    if "--check" in options:
        if new != page:
            print("docs/torch.md: the tables of names are out of date; run scripts/names")
        return int(new != page)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
