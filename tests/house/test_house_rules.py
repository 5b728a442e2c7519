"""Rules of the house that neither ruff nor import-linter checks, over every file of the project."""

from __future__ import annotations

import ast
import gc
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("disttrain", "launcher")  # folders
NAMES = ("disttrain", "disttrain_launcher")  # as they are imported
SOURCES = sorted(p for top in (*PACKAGES, "scripts") for p in (ROOT / top).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file, read once for all rules."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module", autouse=True)
def no_garbage_is_looked_for():
    """Among a million nodes, none of which is any: that takes longer than to parse them."""
    gc.disable()
    yield
    gc.enable()
    nodes.cache_clear()


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def complaints(check, paths=SOURCES) -> list[str]:
    return [f"{name(p)}: {said}" for p in paths for said in check(p)]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in nodes(path) if isinstance(node, kinds)]


def is_ours(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] in NAMES
    return isinstance(node, ast.Import) and any(a.name.split(".")[0] in NAMES for a in node.names)


def test_own_modules_are_imported_at_the_top():
    """The import order holds only if nothing goes around it inside a function."""

    def check(path):
        imports = [node for node in nodes(path) if is_ours(node)]
        for function in functions(path):
            for node in imports:
                if function.lineno <= node.lineno <= function.end_lineno:
                    yield f"line {node.lineno}: own module imported inside {function.name}"

    assert complaints(check, [p for p in SOURCES if name(p).startswith(PACKAGES)]) == []


def test_no_imports_for_the_type_checker_alone():
    def check(path):
        for node in nodes(path):
            if isinstance(node, (ast.Name, ast.Attribute)):
                word = node.id if isinstance(node, ast.Name) else node.attr
                if word == "TYPE_CHECKING":
                    yield f"line {node.lineno}: TYPE_CHECKING"

    assert complaints(check) == []


def test_references_are_not_counted():
    """Interpreters borrow references: whose an array is, is said by who made it, and whether
    somebody has something, by whether it lives on when it is let go."""
    counters = {"getrefcount", "get_referrers"}

    def check(path):
        for node in nodes(path):
            words = {getattr(node, field, None) for field in ("id", "attr", "value", "name")
                     if isinstance(getattr(node, field, None), str)}  # fmt: skip
            for word in words & counters:
                yield f"line {node.lineno}: {word}"

    assert complaints(check, [p for p in SOURCES if name(p).startswith(PACKAGES)]) == []


# One class whose methods share one state: to read it in two files would be harder. 600 at most.
LONG = {
    "disttrain/distributed/ddp/module.py": "what programs may ask of the wrapper",
    "disttrain/distributed/ddp/reducer/reducer.py": "the phases of one backward",
    "disttrain/rpc/calls/agent.py": "a call from its question to its answer",
}


def test_files_stay_short():
    def check(path):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        most = 600 if name(path) in LONG else 500
        if lines > most:
            yield f"{lines} lines; split it ({most} at most, 300 is better)"
        if name(path) in LONG and lines <= 500:
            yield f"{lines} lines: it needs no place in the list of long files"

    assert complaints(check) == []
    assert set(LONG) <= {name(path) for path in SOURCES}


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without those of functions that it defines (they count by themselves)."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = [n for n in ast.walk(function) if isinstance(n, kinds) and n is not function]
    covered = {line for n in inner for line in range(n.lineno, n.end_lineno + 1)}
    return function.end_lineno - function.lineno + 1 - len(covered)


def test_functions_stay_short():
    def check(path):
        for function in functions(path):
            lines = own_lines(function)
            if lines > 60:
                yield f"line {function.lineno}: {function.name} has {lines} lines; 60 at most"

    assert complaints(check) == []


def test_every_module_says_what_it_is():
    def check(path):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(module) and module.body:
            yield "no module docstring"

    assert complaints(check, SOURCES + TESTS) == []


def test_nothing_is_left_to_do():
    def check(path):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"#.*\b(TODO|FIXME|XXX|HACK)\b", line):
                yield f"line {number}: {line.strip()}"

    assert complaints(check, [p for p in SOURCES + TESTS if p != Path(__file__)]) == []


FORBIDDEN_CALLS = {
    ("", "eval"),
    ("", "exec"),
    ("os", "system"),
    ("os", "popen"),
    ("tempfile", "mktemp"),
    ("marshal", "loads"),
}


def called(node: ast.Call) -> tuple[str, str]:
    if isinstance(node.func, ast.Name):
        return "", node.func.id
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.value.id, node.func.attr
    return "", ""


def test_no_code_from_data():
    """No eval, no exec, no shell: nothing that a file or a peer says is run."""

    def check(path):
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            if called(node) in FORBIDDEN_CALLS:
                yield f"line {node.lineno}: {'.'.join(called(node)).lstrip('.')}()"
            for keyword in node.keywords:
                if keyword.arg == "shell" and getattr(keyword.value, "value", True) is not False:
                    yield f"line {node.lineno}: shell="

    assert complaints(check) == []


def test_no_listener_on_every_address():
    def check(path):
        for node in nodes(path):
            if isinstance(node, ast.Constant) and node.value in ("0.0.0.0", "::"):
                yield f"line {node.lineno}: {node.value!r}"

    assert complaints(check) == []


# Folders of tests whose subject is no package.
ACROSS = {"house", "peers", "scripts", "gpu", "distributed/devices"}


# Who else than disttrain.settings touches the environment of the process, and why.
ENVIRON = {
    "disttrain/backends/cuda/libraries/blas.py": "writes: cuBLAS reads it with its first handle",
    "disttrain/compat/keras/__init__.py": "writes: Keras reads its backend when it is imported",
    "disttrain/comm/transports/nccl/connecting.py": "writes for NCCL, and takes it back",
    "disttrain/distributed/groups/cores.py": "writes: threads for what the rank starts",
    "disttrain/gpus.py": "is run as a file, with nothing of ours around it",
    "disttrain/rpc/messages/hosts/channels.py": "writes: gRPC reads it when it is loaded",
    "disttrain/settings.py": "reads for all",
    "launcher/clusters/mpi.py": "reads PMI's, before numpy may be loaded",
    "launcher/clusters/mpi_meeting.py": "is run as a file, under mpiexec",
    "launcher/command/dispatch.py": "writes: threads for what it starts",
    "launcher/command/fake.py": "writes: this process becomes a rank",
    "launcher/node/mpi.py": "writes: this process becomes a rank",
    "launcher/node/mpi_shim.py": "is run as a file, under mpiexec",
    "launcher/options/environment.py": "reads, too: options come before numpy may be loaded",
    "launcher/simulated/process_state.py": "exchanges it, a rank at a time",
    "launcher/testing/sim.py": "writes: what belongs to an outer job is forgotten",
    "launcher/worker/main.py": "writes: this process becomes a rank",
}
_ENVIRON = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def test_the_environment_is_read_in_one_place():
    """A variable has one declaration; ``settings`` says what it is set to."""
    touching = set()
    for path in (p for p in SOURCES if name(p).startswith(PACKAGES)):
        for node in nodes(path):
            of_os = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "os"
            taken = isinstance(node, ast.ImportFrom) and node.module == "os"
            words = {node.attr} if of_os else {a.name for a in node.names} if taken else set()
            if words & _ENVIRON:
                touching.add(name(path))
    assert touching == set(ENVIRON)


def test_tests_lie_where_the_code_lies():
    """In the folder, or under the name, of what they test."""
    tests = ROOT / "tests"
    folders = {p.parent.relative_to(tests).as_posix() for p in tests.rglob("test_*.py")}
    roots = (ROOT / "disttrain", ROOT)
    astray = {
        folder for folder in folders - ACROSS
        if not any((r / folder).is_dir() or (r / f"{folder}.py").is_file() for r in roots)
    }  # fmt: skip
    assert astray == set()
    assert not any((tests / folder / "__init__.py").exists() for folder in folders)


def test_marks_that_choose_a_part_are_written_where_the_tests_are():
    """Files that lack the words are not imported for that part (tests/conftest.py)."""
    written = re.compile(r"mark\.(peer|simulated)\b")
    elsewhere = [p for p in TESTS if not p.name.startswith("test_") and p.name != "conftest.py"]
    assert not [p for p in elsewhere if written.search(p.read_text())]
    assert not [p for p in TESTS if "from pytest import" in p.read_text() and p != Path(__file__)]
