"""The rules of docs/DESIGN.md, "The rooms", held by reading the source. That Make's prerequisites equal the catalogue's
reads is held in test_make.py, by what make itself says."""

from __future__ import annotations

import ast
import re
import sys

import networkx
import pytest

from common.artifacts.stages import STAGES
from tests.support.paths import ROOT

SCRIPTS = sorted(ROOT.glob("[0-9][0-9]_*.py"))
ROOM_FILES = sorted((ROOT / "common").rglob("*.py"))
MODEL_FILES = sorted((ROOT / "models").rglob("*.py"))
SOURCES = [*SCRIPTS, *ROOM_FILES, *MODEL_FILES]

DOORS = {"__init__", "__main__"}  # a room's __main__ counts as a script: it may bring rooms together
# Every room may use these: the vocabulary that rooms talk in.
SHARED = {"configuration", "errors", "graph", "intervals", "number_formats", "operators", "source_graph", "sums"}
# A room's one-way ties to others. A new line here is a decision: say in docs/DESIGN.md why.
TIES: dict[str, set[str]] = {
    "cli": {"artifacts"},  # --describe prints the declarations
    "workload": {"fusion"},  # a task is a fused group
    "fpga": {"fusion", "roofline", "workload"},  # kernels compute the workload's tasks under the board's roof
    "profiling": {"runtime", "latency"},  # profiled sessions, timed as latency series
    "os_events": {"latency"},  # events are laid on runs
    "observer": {"sensors", "os_events", "latency"},  # what goes on around the runs, as one context for 01
    "design_space": {"fusion", "roofline", "workload"},
}
# Who may import a package that is heavy, or is the subject of one room.
ONLY_IN = {
    "onnxruntime": {"runtime"},
    "matplotlib": {"view"},
    "pandera": {"artifacts"},
    "networkx": {"dag"},
    "argparse": {"cli"},
    "pyRAPL": {"sensors"},
    "pynvml": {"sensors"},
    "psutil": {"sensors", "os_events"},
    "onnx": {"onnx_graph", "profiling", "runtime"},
    "yaml": {"configuration"},
    "ortools": {"fpga"},
    "scipy": {"fpga"},
}
# By the user, then by us, each for a reason.
CHOSEN_PACKAGES = {
    "onnx",
    "onnxruntime",
    "numpy",
    "pandas",
    "matplotlib",
    "networkx",
    "pyRAPL",
    "pynvml",
}  # by the user
ALLOWED_PACKAGES = CHOSEN_PACKAGES | {
    "pandera",  # the declarations of tables
    "yaml",  # configurations
    "google",  # protobuf's errors, which onnx raises
    "PIL",  # --input of an image
    "sympy",  # counts over unbound dimensions
    "psutil",  # the processor's sensors, and the fallback where the kernel's events cannot be read
    "ruptures",  # change points of a latency series
    "ortools",  # the offload plan as a program
    "scipy",  # HiGHS: a bound on what any plan can reach
}


def identify(path):
    return str(path.relative_to(ROOT))


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path, *, at_module_level=False):
    """Full names of the modules that a file imports, wherever in it; ``from a import b`` gives ``a`` and ``a.b``."""
    tree = tree_of(path)
    for node in tree.body if at_module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(path):
    return {name.partition(".")[0] for name in imported(path)}


def room_of(path):
    """``common/fpga/planning/plan.py`` and ``common/dag.py`` to ``fpga`` and ``dag``."""
    return path.relative_to(ROOT / "common").parts[0].removesuffix(".py")


def rooms_used(path):
    """Rooms that a file imports, its own left out."""
    names = (name.split(".") for name in imported(path))
    return {parts[1] for parts in names if parts[0] == "common" and len(parts) > 1}


def file_of(module):
    """The source of a module of ours, or None where the name is that of something in a module."""
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def reached(path):
    """Every file of ours that importing a file imports, itself included."""
    seen, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += [found for name in imported(current, at_module_level=True) if (found := file_of(name))]
    return seen


# --- rooms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in ROOM_FILES if path.stem not in DOORS], ids=identify)
def test_a_room_knows_no_other_room(path):
    room = room_of(path)
    assert rooms_used(path) - {room} - SHARED - TIES.get(room, set()) == set()


def test_what_all_rooms_share_knows_no_room():
    assert {room for name in SHARED for room in rooms_used(ROOT / "common" / f"{name}.py")} <= SHARED


@pytest.mark.parametrize(
    ("package", "rooms"), ONLY_IN.items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_package_is_imported_by_its_room_only(package, rooms):
    found = {room_of(path) for path in ROOM_FILES if package in packages(path)}
    assert found <= rooms
    assert not [identify(path) for path in SCRIPTS if package in packages(path)]


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_only_the_packages_that_the_user_chose(path):
    ours = {"common", "models"}
    assert packages(path) - ALLOWED_PACKAGES - ours - sys.stdlib_module_names == set()


@pytest.mark.parametrize("path", [*ROOM_FILES, *MODEL_FILES], ids=identify)
def test_nothing_reaches_up_to_a_script(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"import_module\(|runpy|__import__", text)
    assert "models" not in packages(path) or path in MODEL_FILES
    assert "common" not in packages(path) or path in ROOM_FILES


@pytest.mark.parametrize("path", [path for path in SCRIPTS if not path.name.startswith("06_")], ids=identify)
def test_no_stage_but_06_loads_matplotlib(path):
    assert not [identify(file) for file in reached(path) if "matplotlib" in packages(file)]


@pytest.mark.parametrize(
    "path", [path for path in SCRIPTS if path.name[:2] in ("03", "04", "05", "06", "07")], ids=identify
)
def test_computed_stages_load_no_runtime(path):
    """They work on tables of machines where the runtime does not exist."""
    assert not [identify(file) for file in reached(path) if "onnxruntime" in packages(file)]


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_no_drawer_for_everything(path):
    parts = {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    assert not parts & {"utils", "util", "helpers", "helper", "misc", "tools", "common_utils"}


def test_a_package_is_worth_three_files():
    for folder in {path.parent for path in ROOM_FILES} - {ROOT / "common"}:
        files = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
        assert len(files) >= 3, identify(folder)


def modules_used(path):
    """Files of ours that a file imports, in functions too; of a package, the module that is named and not its door."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if file_of(name) else node.module for name in inner]
        else:
            continue
        yield from (file for name in names if (file := file_of(name)) is not None)


def test_no_modules_import_each_other_in_a_circle():
    graph = networkx.DiGraph((path, used) for path in ROOM_FILES for used in set(modules_used(path)))
    circles = [circle for circle in networkx.strongly_connected_components(graph) if len(circle) > 1]
    assert [sorted(map(identify, circle)) for circle in circles] == []
    assert not [identify(path) for path in graph if graph.has_edge(path, path)]


# --- scripts --------------------------------------------------------------------------------------------------------


def test_every_script_is_a_stage_and_every_stage_a_script():
    assert [path.name for path in SCRIPTS] == sorted(name for name in STAGES if name.endswith(".py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=identify)
def test_a_script_has_its_five_parts(path):
    tree = tree_of(path)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not [node for node in tree.body if isinstance(node, ast.ClassDef)]  # a class belongs into a room
    assert {"arguments", "main"} < set(functions)  # and at least one function from tables to tables
    main = functions["main"].args
    assert ([argument.arg for argument in main.args], len(main.defaults)) == (["argv"], 1)
    assert ast.unparse(tree.body[-1]) == "if __name__ == '__main__':\n    cli.run(main)"
    doc = ast.get_docstring(tree) or ""
    assert "EXAMPLE" in doc
    assert re.search(rf"^ *python {re.escape(path.name)}", doc, re.MULTILINE), "no command to copy"
    assert {"Reads", "Writes"} <= set(re.findall(r"^(Reads|Writes)\b", doc, re.MULTILINE))


@pytest.mark.parametrize("path", SCRIPTS, ids=identify)
def test_no_stage_imports_another(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"import_module|runpy|__import__|subprocess", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=identify)
def test_a_stage_touches_only_the_tables_that_the_catalogue_gives_it(path):
    """First arguments of the methods of its folder and transaction, where they are written out."""
    stage = STAGES[path.name]
    known = set(stage.reads) | set(stage.writes)
    used = {
        node.args[0].value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("table", "document", "file", "add_table", "add_document", "add_text", "add_file")
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert used <= known


@pytest.mark.parametrize("path", SCRIPTS, ids=identify)
def test_the_settings_of_a_stage_are_those_that_its_record_names(path):
    """They are data, so that a note of one stage can name the flag of another."""
    import importlib

    flags = set(importlib.import_module(path.stem).arguments().defaults) - {"out", "config", "quiet"}
    assert flags == set(STAGES[path.name].settings)


# --- speech ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(tree_of(path))


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_nothing_is_left_to_do(path):
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text(encoding="utf-8"))


TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("path", TEST_FILES, ids=identify)
def test_no_test_imports_another_test(path):
    assert not [name for name in imported(path) if re.search(r"(^|\.)test_", name)]
