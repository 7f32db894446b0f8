"""The rules of docs/DESIGN.md, "The rooms", held by reading the source. That Make's prerequisites equal the catalogue's
reads is held in test_make.py, by what make itself says."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from functools import cache

import networkx as nx
import pytest

from common.artifacts.stages import STAGES
from tests.support.paths import ROOT

SCRIPTS = sorted(ROOT.glob("[0-9][0-9]_*.py"))
ROOM_FILES = sorted((ROOT / "common").rglob("*.py"))
MODEL_FILES = sorted((ROOT / "models").rglob("*.py"))
SOURCES = [*SCRIPTS, *ROOM_FILES, *MODEL_FILES]

DOORS = {"__init__", "__main__"}  # a room's __main__ counts as a script: it may bring rooms together
# Every room may use these: the vocabulary that rooms talk in.
SHARED = {"files", "graphs", "intervals", "messages", "metrics", "process"}
TYPES_ALONE = {"table_rows"}  # a stub, which knows nothing
# A room's one-way ties to others. A new line here is a decision: say in docs/DESIGN.md why.
TIES: dict[str, set[str]] = {
    "attribution": {"roofline"},  # an executed node is placed under the roof of its number format
    "cli": {"artifacts"},  # --describe prints the declarations
    "workload": {"fusion"},  # a task is a fused group
    # kernels compute the workload's tasks under the board's roof; a decoder on a card is one that is generated with
    "fpga": {"fusion", "generation", "roofline", "workload"},
    # an array for a board has the resources of the board's kernels and the cost of the design space
    "board_designs": {"design_space", "fpga", "fusion", "workload"},
    "bottlenecks": {"dag"},  # a gain is the critical path, evaluated again
    "foreign_traces": {"latency", "npu"},  # statistics of runs; QNN's own formats have their reader
    # a decoder is a loaded model that sessions run, its tokens are a latency series, and lengths are those of requests
    "generation": {"latency", "load", "onnx_graph", "runtime"},
    "mending": {"onnx_graph", "runtime"},  # named nodes; sessions run a model and the mended one on the same inputs
    # a loaded model in a format, which sessions run; a whole network in the integers of the engine in Verilog
    "precision": {"fpga", "onnx_graph", "runtime"},
    "profiling": {"runtime", "latency"},  # profiled sessions, timed as latency series
    # spans of nodes are those of measured runs, and their times are written on the model's graph
    "timeline": {"latency", "onnx_graph"},
    "os_events": {"latency"},  # events are laid on runs
    # what several rooms measure together: each of its modules joins some of these
    "measurements": {
        *("attribution", "comparison", "foreign_traces", "latency", "monitor", "onnx_graph", "os_events", "power"),
        *("profiling", "runtime", "sensors"),
    },
    "comparison": {"latency"},  # its series are those of measured runs
    "history": {"comparison", "latency"},  # a recorded run is a side of comparisons, and judged like one
    "design_space": {"fusion", "onnx_graph", "roofline", "workers", "workload"},  # fa_dosa parses a file itself
    # it loads sessions, their answers are a latency series, and a request is one row of the model's inputs
    "load": {"latency", "onnx_graph", "runtime"},
    # runs as they end are counted in histograms, its gauges are samples, and events slow its runs
    "monitor": {"latency", "os_events", "sensors"},
}
# Who may import a package that is heavy, or is the subject of one room.
ONLY_IN = {
    "onnxruntime": {"precision", "runtime"},  # its tools for quantization
    "matplotlib": {"view"},
    "pandera": {"artifacts"},
    "networkx": {"dag", "comparison"},
    "argparse": {"cli"},
    "pyRAPL": {"sensors"},
    "pynvml": {"sensors"},
    "psutil": {"sensors", "os_events"},
    # of fpga: the engine in Verilog takes its integers from a quantized file
    "onnx": {"fpga", "mending", "onnx_graph", "precision", "profiling", "runtime"},
    "yaml": {"files"},
    "ortools": {"fpga"},
    **{name: {"fpga"} for name in ("litedram", "litex", "migen")},
    # tests that need no normality; bounds; Student's law; a knapsack
    "scipy": {"comparison", "fpga", "history", "latency", "precision"},
    "torch": {"design_space"},
    "prometheus_client": {"metrics"},
    "onnxruntime_qnn": {"runtime"},
    **{name: {"load"} for name in ("mlperf_loadgen", "grpc", "tritonclient")},
    "cma": {"design_space"},
    "nevergrad": {"design_space"},
    "optuna": {"design_space"},
    **{name: {"workers"} for name in ("joblib", "dask", "distributed", "ray")},
    "sqlite3": {"design_space", "history", "monitor"},
    **{name: {"monitor"} for name in ("fastapi", "h11", "starlette", "uvicorn", "websockets", "pydantic")},
}
# They take 20 ms to half a second to import, so they are imported where they are used.
LATE = {"fastapi", "joblib", "ortools", "pandera", "prometheus_client", "ruptures", "scipy", "torch", "uvicorn"}
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
    "psutil",  # the processor's sensors, and the fallback where the kernel's events cannot be read
    "ruptures",  # change points of a latency series
    "ortools",  # the offload plan as a program
    "scipy",  # HiGHS: a bound on what any plan can reach
    "prometheus_client",  # the text of metrics
    "joblib",  # designs in several processes
    *("dask", "distributed", "ray"),  # optional: designs on a cluster
    "torch",  # optional: the gradient of the cost of a mapping
    "onnxruntime_qnn",  # optional: the plug-in that runs models on Qualcomm's NPU
    # optional: the server of the live dashboard; h11 is uvicorn's parser
    *("fastapi", "h11", "starlette", "uvicorn", "websockets", "pydantic"),
    *("grpc", "tritonclient"),  # optional: endpoints that are loaded by gRPC
    "mlperf_loadgen",  # optional: another program that sends the requests of a load test, and judges the run
    *("litedram", "litex", "migen"),  # optional: a system around an engine, by a program for an environment with LiteX
    "cma",  # optional, as the next two: search engines
    "nevergrad",
    "optuna",
}


def identify(path):
    return str(path.relative_to(ROOT))


def each(paths):
    """Hold a rule for each file, in one test: six thousand tests would take longer to collect than to run."""

    def decorated(rule):
        def test():
            failures = []
            for path in paths:
                try:
                    rule(path)
                except AssertionError as error:
                    failures.append(f"{identify(path)}: {error}")
            assert not failures, "\n".join(failures)

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return decorated


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def import_statements(path, *, at_module_level=False):
    """Imports of a file, wherever in it, as (module, name) and as (module, "") for ``import module``."""
    tree, statements = tree_of(path), []
    for node in tree.body if at_module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            statements += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            statements += [(node.module, alias.name) for alias in node.names]
    return statements


def imported(path):
    """Full names of the modules that a file imports; ``from a import b`` gives ``a`` and ``a.b``."""
    return {name for module, part in import_statements(path) for name in (module, f"{module}.{part}".rstrip("."))}


def packages(path):
    return {name.partition(".")[0] for name in imported(path)}


def room_of(path):
    """``common/fpga/planning/plan.py`` and ``common/dag.py`` to ``fpga`` and ``dag``."""
    return path.relative_to(ROOT / "common").parts[0].removesuffix(".py")


def rooms_used(path):
    """Rooms that a file imports, its own left out."""
    names = (name.split(".") for name in imported(path))
    return {parts[1] for parts in names if parts[0] == "common" and len(parts) > 1}


@cache
def file_of(module):
    """The source of a module of ours, or None where the name is that of something in a module."""
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def modules_imported(path, *, at_module_level=False):
    """Files of ours that a file imports; ``from package import module`` gives the module."""
    statements = import_statements(path, at_module_level=at_module_level)
    files = (file_of(f"{module}.{part}") or file_of(module) for module, part in statements)
    return sorted({file for file in files if file})


def reached(path):
    """Every file of ours that importing a file imports, itself included."""
    seen, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += modules_imported(current, at_module_level=True)
    return seen


# --- rooms ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each([path for path in ROOM_FILES if path.stem not in DOORS])
def test_a_room_knows_no_other_room(path):
    room = room_of(path)
    assert rooms_used(path) - {room} - SHARED - TYPES_ALONE - TIES.get(room, set()) == set()


@pytest.mark.slow
def test_of_the_design_space_only_the_interface_that_takes_a_file_reads_onnx():
    found = {
        path.parent.name for path in ROOM_FILES if room_of(path) == "design_space" if "onnx_graph" in rooms_used(path)
    }
    assert found == {"fa_dosa"}


@pytest.mark.slow
def test_what_all_rooms_share_knows_no_room():
    used = {room for path in ROOM_FILES if room_of(path) in SHARED for room in rooms_used(path)}
    assert used <= SHARED | TYPES_ALONE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "rooms"), ONLY_IN.items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_package_is_imported_by_its_room_only(package, rooms):
    found = {room_of(path) for path in ROOM_FILES if package in packages(path)}
    assert found <= rooms
    assert not [identify(path) for path in SCRIPTS if package in packages(path)]


@pytest.mark.slow
@each(SOURCES)
def test_only_the_packages_that_the_user_chose(path):
    ours = {"common", "models"}
    assert packages(path) - ALLOWED_PACKAGES - ours - sys.stdlib_module_names == set()


@pytest.mark.slow
@each([*ROOM_FILES, *MODEL_FILES])
def test_nothing_reaches_up_to_a_script(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"import_module\(|runpy|__import__", text)
    assert "models" not in packages(path) or path in MODEL_FILES
    assert "common" not in packages(path) or path in ROOM_FILES


@pytest.mark.slow
@each([path for path in SCRIPTS if not path.name.startswith("06_")])
def test_no_stage_but_06_loads_matplotlib(path):
    assert not [identify(file) for file in reached(path) if "matplotlib" in packages(file)]


@pytest.mark.slow
@each(SCRIPTS)
def test_no_start_loads_a_package_that_few_runs_need(path):
    loaded = {module for file in reached(path) for module, _ in import_statements(file, at_module_level=True)}
    assert {module.partition(".")[0] for module in loaded} & LATE == set()


@pytest.mark.slow
@each([path for path in SCRIPTS if path.name[:2] in ("03", "04", "05", "06", "07")])
def test_computed_stages_load_no_runtime(path):
    """They work on tables of machines where the runtime does not exist."""
    assert not [identify(file) for file in reached(path) if "onnxruntime" in packages(file)]


@pytest.mark.slow
@each(SOURCES)
def test_no_drawer_for_everything(path):
    parts = {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    assert not parts & {"utils", "util", "helpers", "helper", "misc", "tools", "common_utils"}


@pytest.mark.slow
def test_no_two_public_classes_have_one_name():
    names = [
        node.name
        for path in ROOM_FILES
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_a_package_is_worth_three_files():
    for folder in {path.parent for path in ROOM_FILES} - {ROOT / "common"}:
        files = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
        assert len(files) >= 3, identify(folder)


@cache
def subject_of(path):
    """The smallest unit that may depend on another: a folder of modules, or a module beside folders."""
    beside_folders = any(other.is_dir() and other.name != "__pycache__" for other in path.parent.iterdir())
    return path.with_suffix("") if beside_folders else path.parent


def circles(arrows):
    """Sets of names that depend on each other."""
    return [sorted(names) for names in nx.strongly_connected_components(nx.DiGraph(arrows)) if len(names) > 1]


@pytest.mark.slow
def test_no_modules_import_each_other():
    arrows = [(path, file) for path in SOURCES for file in modules_imported(path) if file != path]
    found = circles((identify(path), identify(file)) for path, file in arrows)
    assert found == []


@pytest.mark.slow
def test_no_rooms_depend_on_each_other():
    arrows = [(path, file) for path in ROOM_FILES if path.stem not in DOORS for file in modules_imported(path)]
    subjects = [(subject_of(path), subject_of(file)) for path, file in arrows]
    found = circles((identify(subject), identify(other)) for subject, other in subjects if subject != other)
    assert found == []


# --- scripts --------------------------------------------------------------------------------------------------------


def test_every_script_is_a_stage_and_every_stage_a_script():
    assert [path.name for path in SCRIPTS] == sorted(name for name in STAGES if name.endswith(".py"))


@each(SCRIPTS)
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


MUTATORS = {"append", "extend", "insert", "update", "setdefault", "add", "pop", "remove", "discard", "clear", "sort"}


def root_of(node):
    """The name that an attribute or an item is reached from: ``settings`` of ``settings.values["x"]``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def changed_objects(function):
    """Names of the objects that a function changes in place."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield root_of(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            yield root_of(node.func)


@each(SCRIPTS)
def test_functions_of_a_script_change_nothing_that_they_are_given(path):
    for function in (node for node in tree_of(path).body if isinstance(node, ast.FunctionDef) and node.name != "main"):
        given = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        assert given & set(changed_objects(function)) == set(), function.name


@each(SCRIPTS)
def test_no_stage_imports_another(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"import_module|runpy|__import__|subprocess", text)


TABLE_METHODS = {
    *("rows", "document", "table", "tables", "documents", "has", "path", "foreign"),
    *("add_table", "add_rows", "add_document", "add_text", "add_bytes", "add_file", "add_copy", "add_page"),
}


@each(SCRIPTS)
def test_a_stage_touches_only_the_tables_that_the_catalogue_gives_it(path):
    """First arguments of the methods of its folder and transaction, where they are written out."""
    stage = STAGES[path.name]
    known = set(stage.reads) | set(stage.writes)
    used = {
        node.args[0].value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TABLE_METHODS
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert used <= known


@each(SCRIPTS)
def test_the_settings_of_a_stage_are_those_that_its_record_names(path):
    """They are data, so that a note of one stage can name the flag of another."""
    import importlib

    flags = set(importlib.import_module(path.stem).arguments().defaults) - {"out", "config", "quiet"}
    assert flags == set(STAGES[path.name].settings)


# --- speech ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each(SOURCES)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(tree_of(path))


# A room may be called by a script, by a __main__ or by somebody else's program. It does not know how its values
# were given, nor which script runs. common.cli replaces <quantity> by a flag and <table> by a script.
SILENT_FILES = [path for path in ROOM_FILES if room_of(path) not in ("cli", "artifacts") and path.stem != "__main__"]
CALLS_OTHER_PROGRAMS = {
    "common/history/record.py",
    "common/fpga/rtl/simulate.py",
    "common/fpga/rtl/engine/simulate.py",
    "common/fpga/rtl/system/simulate.py",
    "common/fpga/rtl/open_device.py",
    "common/fpga/rtl/routing.py",
    "common/sensors/hardware_counters.py",
}  # with their flags
FLAG = re.compile(r"(?<![\w-])--(?!enable_cuda_profiling)[a-z]")
SCRIPT = re.compile(r"\b0[0-9]_[a-z]+|(?<![\w.:,/-])0[0-7](?![\w.:,/-])|\bstage 0?[0-9]\b")


def spoken(path):
    """String constants without docstrings, as (line, text)."""
    tree = tree_of(path)
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def written(path):
    """All strings and comments, as (line, text)."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)):
            yield token.start[0], token.string


@pytest.mark.slow
@each(SILENT_FILES)
def test_a_room_names_no_flag(path):
    found = [(line, text) for line, text in spoken(path) if FLAG.search(text)]
    assert found == [] or identify(path) in CALLS_OTHER_PROGRAMS


@pytest.mark.slow
@each(SILENT_FILES)
def test_a_room_names_no_script(path):
    assert [(line, text) for line, text in written(path) if SCRIPT.search(text)] == []


@pytest.mark.slow
@each(SILENT_FILES)
def test_no_room_blames_the_command_line(path):
    names = {node.id for node in ast.walk(tree_of(path)) if isinstance(node, ast.Name)}
    assert "CommandLineError" not in names


@pytest.mark.slow
@each(SOURCES)
def test_nothing_is_left_to_do(path):
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text(encoding="utf-8"))


TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.slow
@each(TEST_FILES)
def test_no_test_imports_another_test(path):
    assert not [name for name in imported(path) if re.search(r"(^|\.)test_", name)]
