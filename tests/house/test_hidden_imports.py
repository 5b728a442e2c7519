"""The import order holds for strings too: who names a module to have it loaded imports it.

The order is the one in ``pyproject.toml``, which import-linter holds for statements. What is below
does not load what is above: what is above registers itself, or hands over the name.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from support.import_strings import Project

ROOT = Path(__file__).parents[2]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

# Modules that load what they are told by others, not by a string of their own.
TOLD = {
    "disttrain.backends.cuda.platform": "CuPy, by the name in its table",
    "disttrain.cli.programs": "the user's program",
    "disttrain.compat.running": "the user's program",
    "disttrain.compat.torch.elastic.running": "the user's program",
    "disttrain.compat.torch.distributed.sharding": "the import hook's table, each name a constant",
    "disttrain.compat.torch.hub": "the hubconf.py of a folder that the user names",
    "disttrain.compat.publish": "files of the user's own torch scripts",
    "disttrain.core.sharing": "multiprocessing's pickler, found when the user imports it",
    "disttrain.record.replay.program": "the user's program; the face that the recording names",
    "disttrain.rpc.calls.failures": "the class of an exception that a peer has named",
    "disttrain.serialize.objects": "classes that a file names and the user allows",
    "disttrain_launcher.clusters.files": "files of modules that its callers name",
    "disttrain_launcher.command.front": "the face that the plan names",
    "disttrain_launcher.node.agent": "what the plan names",
    "disttrain_launcher.simulated.process_state": "the user's program",
    "disttrain_launcher.simulated.explore": "what the plan names",
    "disttrain_launcher.simulated.job": "the user's program; the face that the plan names",
    "disttrain_launcher.worker.main": "the face that the plan names",
    "disttrain_launcher.worker.program": "the user's program",
}
# Modules whose constants are compared with names, or allow them, and load nothing by themselves.
NAMED = {
    "disttrain.compile.capture": "code that is trusted, by the names of its modules",
    "disttrain.rpc.calls.allowed": "what a message may name: a closed list in one place",
    "disttrain.rpc.messages.hosts.handshake": "the name of the protocol",
    "disttrain.serialize.objects": "what a file may name: a closed list in one place",
}
# The same, of names that are gone, too.
EARLIER = {"disttrain.serialize.homes": "what files may still name: a closed list in one place"}


def children(package: str, pair: tuple[str, str]) -> tuple[str, ...]:
    """The children of ``package`` that both ends are in, where they are in different ones."""
    inside = [name[len(package) + 1 :].split(".")[0] for name in pair
              if name.startswith(f"{package}.")]  # fmt: skip
    return tuple(inside) if len(set(inside)) == 2 else ()


def layers_of(contract: dict) -> dict[str, int]:
    """The place of each child in a contract of layers, from the top."""
    rows = [re.split(r"[|:]", row) for row in contract["layers"]]
    return {name.strip(" ()"): number for number, row in enumerate(rows) for name in row}


def matches(name: str, expression: str) -> bool:
    """import-linter's expressions: ``*`` is one segment, ``**`` are any."""
    parts = re.escape(expression).replace(r"\*\*", ".+").replace(r"\*", "[^.]+")
    return re.fullmatch(parts, name) is not None


def permits(contract: dict, pair: tuple[str, str]) -> bool:
    """Whether the contract itself leaves this import out."""
    ignored = (line.split(" -> ") for line in contract.get("ignore_imports", ()))
    return any(matches(pair[0], a.strip()) and matches(pair[1], b.strip()) for a, b in ignored)


def breaks(contract: dict, pair: tuple[str, str]) -> bool:
    """Whether an import of ``pair[1]`` by ``pair[0]`` breaks it."""
    if permits(contract, pair):
        return False
    if contract["type"] == "layers":
        order = layers_of(contract)
        free = {number for number, row in enumerate(contract["layers"]) if ":" in row}
        for container in contract["containers"]:
            a, b = children(container, pair) or ("", "")
            if a not in order or b not in order:
                continue
            if order[a] > order[b] or (order[a] == order[b] and order[a] not in free):
                return True
    if contract["type"] == "forbidden":
        packages = contract.get("as_packages", True)
        return all(
            any(matches(name, e) or (packages and matches(name, f"{e}.**")) for e in contract[key])
            for name, key in zip(pair, ("source_modules", "forbidden_modules"))
        )
    return False


def breaking(pairs) -> list[str]:
    return [f"{a} -> {b}: {c['name']}" for a, b in sorted(pairs) for c in LINTER["contracts"]
            if breaks(c, (a, b))]  # fmt: skip


def closing(imports, loads) -> list[str]:
    """Those of ``loads`` that close a circle of siblings with ``imports``. A package's own file
    stands above what it holds."""
    below: dict[tuple[str, str], set[str]] = defaultdict(set)

    def note(pair):
        parts = pair[0].split(".")
        for depth in range(1, len(parts)):
            package = ".".join(parts[:depth])
            if ends := children(package, pair):
                below[package, ends[0]].add(ends[1])
                return package, *ends
        return None

    for pair in imports | loads:
        note(pair)

    def reaches(package, start, goal):
        seen, todo = set(), [start]
        while todo:
            todo += below[package, (at := todo.pop())] - seen
            if at == goal:
                return True
            seen.add(at)
        return False

    found = []
    for pair in sorted(loads):
        place = note(pair)
        if place and reaches(place[0], place[2], place[1]):
            found.append(f"{pair[0]} -> {pair[1]}: {place[0]}.{place[2]} needs {place[1]}")
    return found


@pytest.fixture(scope="module")
def project():
    return Project([(ROOT / "disttrain", "disttrain"), (ROOT / "launcher", "disttrain_launcher")])


@pytest.fixture(scope="module")
def loads(project):
    return {(a, b) for a, b in project.loads() if a not in NAMED | EARLIER}


def test_no_string_points_up(loads):
    assert breaking(loads) == []


def test_no_string_closes_a_circle(project, loads):
    assert closing(project.imports(), loads) == []


def test_what_loads_by_other_peoples_names_is_listed(project, loads):
    assert project.unread == set(TOLD)


def test_no_list_has_a_module_too_many(project):
    named = {a for a, _ in project.loads()}
    assert set(NAMED | EARLIER) - named == set()


def test_the_contracts_are_read_as_import_linter_reads_them(project):
    known = {"layers", "forbidden", "acyclic_siblings"}
    assert {contract["type"] for contract in LINTER["contracts"]} <= known
    assert breaking(project.imports()) == []


def test_a_package_with_folders_says_where_each_child_stands(project):
    """So that a new folder without a place is complained of, wherever it is made. Circles among
    the children of all others are forbidden by one contract."""
    packages = {module.name for module in project.modules.values() if module.is_package}
    parents = {name.rpartition(".")[0] for name in packages} - {""}
    ordered = {container for contract in LINTER["contracts"] if contract.get("exhaustive")
               for container in contract["containers"]}  # fmt: skip
    assert parents - ordered == set()
    assert ordered - packages == set(), "no longer there"


WAYS = {
    "import_module(NAME)": 'from importlib import import_module\nimport_module("top.high.roof")',
    "relative": 'import importlib\nimportlib.import_module("..high.roof", __package__)',
    "lazily": 'import importlib\ndef f(): return importlib.import_module("top.high.roof").x',
    "f-string": 'import importlib\ndef f(n): importlib.import_module(f"top.high.{n}")',
    "table": 'from importlib import import_module\n'
             'T = {"a": "roof"}\ndef f(n): import_module(f"top.high.{T[n]}")',
    "loop": 'import importlib\nfor n in ("top.high.roof",): importlib.import_module(n)',
    "__import__": '__import__("top.high.roof")',
    "runpy": 'import runpy\nrunpy.run_module("top.high.roof")',
    "handed over": 'T = ("top.high.roof:x",)',
}  # fmt: skip


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_each_way_to_load_is_seen(tmp_path, text):
    pair = ("top.low.cellar", "top.high.roof")
    for name, held in zip(pair, (text, "from top.low import cellar")):
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True)
        path.parent.joinpath("__init__.py").touch()
        path.write_text(held)
    tried = Project([(tmp_path / "top", "top")])
    assert pair in tried.loads()
    assert any(pair[0] in said for said in closing(tried.imports(), tried.loads()))
    order = {"name": "", "type": "layers", "containers": ["top"], "layers": ["high", "low"]}
    assert breaks(order, pair) and not breaks(order, pair[::-1])


def test_a_file_loaded_by_its_path_is_to_be_listed(tmp_path):
    tmp_path.joinpath("a.py").write_text(
        "from importlib.util import spec_from_file_location\nspec_from_file_location('x', 'y.py')"
    )
    tried = Project([(tmp_path, "top")])
    tried.loads()
    assert tried.unread == {"top.a"}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_names_that_are_only_named_are_there(project, name):
    """A list of names that a move has left behind would allow, or trust, nothing any more."""
    texts = [node.value for node in project.modules[name].nodes
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
    ours = [t for t in texts if re.fullmatch(r"disttrain(\.\w+)+\.?(:\w+)?", t)]
    gone = [t for t in ours if t.partition(":")[0].rstrip(".") not in project.modules]
    assert ours and gone == []
