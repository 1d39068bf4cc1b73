"""Tests of the architecture: allowed imports, light modules, small files and functions.

The arrows: albert_tf <- data <- {pretraining, finetuning}. A failure names file, line and import.
"""

import ast
import functools
import importlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What each package may import of the project, besides itself.
ALLOWED = {
    "albert_tf": set(),
    "data": {"albert_tf"},
    "pretraining": {"albert_tf", "data"},
    "finetuning": {"albert_tf", "data"},
    "examples": {"albert_tf", "data", "pretraining", "finetuning"},
    "benchmarks": {"albert_tf", "data", "pretraining", "finetuning", "examples"},
}
PACKAGES = [name for name in ALLOWED if (ROOT / name).is_dir()]
# The subpackages of each package, lowest layer first; each may import from lower layers only.
LAYERS = {
    "albert_tf": [
        {"runtime"},
        {"text", "optimization"},
        {"models"},
        {"training"},
        {"graph"},
        {"tasks"},
        {"convert", "export"},
    ],
    "data": [
        {"records"},
        {"corpora"},
        {"building", "cleaning", "vocabulary"},
        {"objectives"},
        {"pipeline"},
    ],
    "pretraining": [{"loop"}, {"evaluation", "pjrt", "sweeping"}, {"tpu"}],
    "finetuning": [{"datasets"}, {"kinds"}, {"reporting", "searching"}, {"training"}],
}
# Worker processes and text tools start without TensorFlow: seconds and hundreds of megabytes each.
LIGHT = [
    "albert_tf.__main__",
    "albert_tf.info",
    "albert_tf.models.config",
    "albert_tf.training.progress",
    *(
        f"albert_tf.runtime.{name}"
        for name in (
            "commands",
            "errors",
            "keyed_random",
            "files.outputs",
            "settings",
        )
    ),
    *(
        f"albert_tf.text.{name}"
        for name in (
            "normalization",
            "sentencepiece_model",
            "tokenizer",
            "wordpiece",
        )
    ),
    *(
        f"data.corpora.{name}"
        for name in (
            "arrow_tables",
            "corpus",
            "glance",
            "markup",
            "python_docs",
            "readers",
            "sentences",
            "texts",
        )
    ),
    *(f"data.cleaning.{name}" for name in ("duplicates", "filters", "held_out", "options")),
    *(f"data.building.{name}" for name in ("cutter", "pair_labels", "segments", "workers")),
    "data.records.schema",
]
HEAVY = {"tensorflow", "tensorflow_text", "tensorflow_hub", "tf_keras", "official", "orbit"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 350, 60
MORE_LINES = {"examples/serve.py": 408}  # which people copy alone
MIN_FILE_LINES = 40
# Where a dataset or a kind is a file.
SMALL_ROOMS = (ROOT / "finetuning" / "datasets", ROOT / "finetuning" / "kinds")
FEWER_LINES = {  # and why these are files of their own
    "albert_tf/models/kernels/xla_internals.py": "private calls that XLA alone has",
    "albert_tf/optimization/lamb.py": "an optimizer, named after it",
    "albert_tf/runtime/cores.py": "what starts without TensorFlow, unlike devices.py",
    "albert_tf/runtime/forks.py": "what models and tasks share",
    "albert_tf/tasks/kinds.py": "a registry",
    "albert_tf/tasks/probabilities.py": "what the contract and several kinds share",
    "albert_tf/tasks/regressor/module.py": "every kind has its module there",
    "albert_tf/text/truncation.py": "a rule, which records, features and graphs share",
    "albert_tf/training/clusters.py": "what pretraining and fine-tuning share",
    "albert_tf/training/graph_memory.py": "a private call that both trainings share",
    "data/corpora/options.py": "what commands that read a corpus share",
    "data/objectives/objective.py": "a base class of two families",
    "data/objectives/row_ops.py": "what objectives and the pipeline share",
    "data/objectives/sentence_order.py": "an objective, named after it",
    "finetuning/datasets/scores/pair_metrics.py": "the metrics of one kind of data, as others",
    "finetuning/searching/rankings.py": "what three kinds of search share",
}


class Import(NamedTuple):
    """One imported module: `module` is absolute, `at_top` tells that importing the file runs it."""

    line: int
    module: str
    at_top: bool


def sources(package: str) -> list[pathlib.Path]:
    return sorted((ROOT / package).rglob("*.py"))


def shown(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def imports(text: str, package: str = "") -> Iterator[Import]:
    """Every import of a source text; `package` is what relative imports start from."""
    tree = ast.parse(text)
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test))
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parts if node.level else []), *filter(None, [node.module])])
            # `from data import x` may name a module, `from data.x import X` an attribute.
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(node.lineno, name, id(node) not in inner)


def dotted(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def parsed(path: pathlib.Path) -> list[ast.AST]:
    """The nodes of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imports_of(path: pathlib.Path) -> list[Import]:
    package = ".".join(path.relative_to(ROOT).parent.parts)
    return list(imports(path.read_text(encoding="utf-8"), package))


def forbidden_edges(where: str, package: str, found: list[Import]) -> list[str]:
    """Imports against the arrows, as `file:line imports module`."""
    ours = {*ALLOWED, "tests"} - ALLOWED[package] - {package}
    return [
        f"{where}:{edge.line} imports {edge.module}: {package} may import "
        f"{', '.join(sorted(ALLOWED[package])) or 'nothing of the project'}"
        for edge in found
        if edge.module.split(".")[0] in ours
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows(package):
    edges = [
        edge
        for path in sources(package)
        for edge in forbidden_edges(shown(path), package, imports_of(path))
    ]
    assert not edges, "\n".join(edges)


@pytest.mark.parametrize("package", LAYERS)
def test_arrows_inside_a_package(package):
    layer = {name: number for number, names in enumerate(LAYERS[package]) for name in names}
    assert set(layer) == {
        path.name for path in (ROOT / package).iterdir() if (path / "__init__.py").is_file()
    }
    wrong = []
    for path in sources(package):
        own = path.relative_to(ROOT / package).parts[0]
        for edge in imports_of(path):
            other = edge.module.removeprefix(f"{package}.").split(".")[0]
            if edge.module.startswith(f"{package}.") and own in layer and other in layer:
                if own != other and layer[other] >= layer[own] and edge.at_top:
                    wrong.append(f"{shown(path)}:{edge.line} imports {edge.module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", LAYERS)
def test_no_module_imports_a_command(package):
    """What a command shares with others stands in a room."""
    commands = {
        f"{package}.{path.stem}"
        for path in (ROOT / package).glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8") and path.stem != "__main__"
    }
    found = [
        f"{shown(path)}:{edge.line} imports {edge.module}"
        for path in sources(package)
        for edge in imports_of(path)
        if edge.module in commands or edge.module.rpartition(".")[0] in commands
    ]
    assert commands and not found, found


ROOMS = {path.parent.name for path in (ROOT / "albert_tf" / "tasks").glob("*/kind.py")}
FINETUNING_REGISTRY = ROOT / "finetuning" / "kinds" / "registry.py"
# The modules of fine-tuning's rooms, which the registry imports, and what only rooms import.
TUNING_ROOMS = {edge.module.rpartition(".")[0] for edge in imports_of(FINETUNING_REGISTRY)} - {
    "finetuning.kinds.kind"
}
# Who may know a kind of task: its rooms, the registries, and the datasets, each of which feeds one.
KNOW_KINDS = (
    *(f"albert_tf.tasks.{room}" for room in ROOMS),
    "albert_tf.tasks.pretrained",  # the room of what is exported without a task
    "albert_tf.tasks.kinds",
    *TUNING_ROOMS,
    "finetuning.kinds.registry",
    "finetuning.kinds.baselines",
    "finetuning.kinds.cards",
    "finetuning.datasets",
    "pretraining.loop.groups",  # a group of its sweeps has the name of a kind
)


ROOM = re.compile(rf"albert_tf\.tasks\.({'|'.join(sorted(ROOMS))})\b")
PROBE = re.compile(  # not getattr(task, key) of every field, or the type of a value in JSON
    r"(?:has|get)attr\((\w+\.)*_?(task|kind|example|features|model), '.*"
    r"|isinstance\((\w+\.)*_?(task|kind|example|features|model), [A-Z].*"
)


def rooms_imported(path: pathlib.Path) -> list[str]:
    """Imports of a kind's room."""
    return [
        f"{shown(path)}:{edge.line} imports {edge.module}"
        for edge in imports_of(path)
        if (edge.module.startswith("albert_tf.tasks.") and edge.module.split(".")[2] in ROOMS)
        or edge.module.startswith((*TUNING_ROOMS,))
    ]


def kinds_known(path: pathlib.Path) -> list[str]:
    """Imports of a kind's room, and names of kinds, in a module that must not know any."""
    names = re.findall(r'^    "(\w+)": ', FINETUNING_REGISTRY.read_text(), re.M)
    assert len(names) == len(ROOMS), "a kind has one room and one line in each registry"
    constants = [
        node
        for node in parsed(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = re.compile(rf"(?:.*[=:'`])?({'|'.join(names)})(?:['`].*)?", re.S)  # no English words
    named_within = re.compile("|".join(name for name in names if "_" in name))
    docstrings = {id(node.value) for node in parsed(path) if isinstance(node, ast.Expr)}
    return [
        *rooms_imported(path),
        *(
            f"{shown(path)}:{n.lineno} names {n.value}"
            for n in constants
            if id(n) not in docstrings
            and (named.fullmatch(n.value) or named_within.search(n.value))
        ),
        # a module in a string, as for importlib, and a question that the contract should answer
        *(f"{shown(path)}:{n.lineno} names {n.value}" for n in constants if ROOM.match(n.value)),
        *(
            f"{shown(path)}:{node.lineno} probes {ast.unparse(node)}"
            for node in parsed(path)
            if isinstance(node, ast.Call) and PROBE.fullmatch(ast.unparse(node))
        ),
    ]


def test_only_its_rooms_know_a_kind():
    found = [
        each
        for package in ("albert_tf", "data", "pretraining", "finetuning")
        for path in sources(package)
        if not dotted(path).startswith(KNOW_KINDS)
        and shown(path) != "albert_tf/__init__.py"  # the public names
        for each in kinds_known(path)
    ]
    found += [
        each
        for package in ("examples", "benchmarks")
        for path in sources(package)
        for each in rooms_imported(path)
    ]
    assert not found, "\n".join(found)


def test_a_room_knows_no_other():
    found = [
        f"{shown(path)}:{edge.line} imports {edge.module}"
        for room in ROOMS
        for path in sources(f"albert_tf/tasks/{room}")
        for edge in imports_of(path)
        if edge.module.startswith("albert_tf.tasks.")
        and edge.module.split(".")[2] in ROOMS - {room}
    ]
    assert not found, "\n".join(found)


OBJECTIVE = re.compile(r"\b(sop|nsp)\b")
# Objectives of pairs themselves, their registry, and the experiments that choose one.
KNOW_OBJECTIVES = ("data.objectives", "pretraining.loop.groups")


def objectives_known(text: str) -> list[int]:
    """The lines that name an objective of pairs in a string which is no docstring, or as a name."""
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    names = {ast.Constant: "value", ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}
    return [
        node.lineno
        for node in nodes
        if type(node) in names
        and id(node) not in docstrings
        and OBJECTIVE.search(str(getattr(node, names[type(node)])))
    ]


def test_only_their_room_knows_the_objectives_of_pairs():
    found = [
        f"{shown(path)}:{line}"
        for package in ("albert_tf", "data", "pretraining", "finetuning")
        for path in sources(package)
        if not dotted(path).startswith(KNOW_OBJECTIVES)
        for line in objectives_known(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_guard_finds_the_name_of_an_objective():
    text = '"""About sop."""\nif pair == "sop":\n    nsp = f"loss/nsp"\n    x.sop()\n"tops"\n'
    assert sorted(objectives_known(text)) == [2, 3, 3, 4]


MODELS, KERNELS = "albert_tf.models", "albert_tf.models.kernels"
DEVICES = re.compile(r"(?i)(?<![a-z])(?:cpu|gpu|tpu|xla)s?(?![a-z])")
HAND_WRITTEN = re.compile("Twins|Packing")


def devices_named(where: str, text: str, words: re.Pattern) -> list[str]:
    """Lines with one of `words`, comments included."""
    return [
        f"{where}:{number} names {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        if (match := words.search(line))
    ]


def test_only_kernels_know_a_device():
    found = []
    for path in sources("albert_tf/models"):
        text, name = path.read_text(encoding="utf-8"), dotted(path)
        if not name.startswith(KERNELS):
            found += devices_named(shown(path), text, DEVICES)
        if name.startswith(f"{MODELS}.layers"):
            found += devices_named(shown(path), text, HAND_WRITTEN)
            found += [
                f"{shown(path)}:{edge.line} imports {edge.module}"
                for edge in imports_of(path)
                if edge.module.startswith(KERNELS)
                and not edge.module.startswith(f"{KERNELS}.interface.")
            ]
    assert not found, "\n".join(found)


def test_words_that_name_a_device():
    text = "output, exclamation\nif is_tpu(x):\n# on CPUs\nTwins"
    assert devices_named("x.py", text, DEVICES) == ["x.py:2 names tpu", "x.py:3 names CPUs"]
    assert devices_named("x.py", text, HAND_WRITTEN) == ["x.py:4 names Twins"]


def test_kernels_know_no_layer():
    found = [
        f"{shown(path)}:{edge.line} imports {edge.module}"
        for path in sources("albert_tf/models/kernels")
        for edge in imports_of(path)
        if edge.module.startswith(MODELS) and not edge.module.startswith(KERNELS)
    ]
    assert not found, "\n".join(found)


def test_only_the_call_of_a_model_chooses_kernels():
    callers = [
        dotted(path)
        for package in ("albert_tf", "data", "pretraining", "finetuning")
        for path in sources(package)
        if any(edge.module.startswith(f"{KERNELS}.choice") for edge in imports_of(path))
    ]
    assert callers == [f"{MODELS}.configured_model"]


@pytest.mark.parametrize(
    ("package", "text", "caught"),
    [
        ("albert_tf", "import os\nimport data", "x.py:2 imports data"),
        ("albert_tf", "def f():\n    from data.x import X", "x.py:2 imports data.x.X"),
        ("data", "from pretraining import loop", "x.py:1 imports pretraining.loop"),
        ("pretraining", "import finetuning.train as t", "x.py:1 imports finetuning.train"),
        (
            "finetuning",
            "try:\n    import pretraining\nexcept E: pass",
            "x.py:2 imports pretraining",
        ),
        ("data", "from tests import conftest", "x.py:1 imports tests.conftest"),
        (
            "pretraining",
            "import data\nfrom albert_tf.runtime import commands\nimport database",
            None,
        ),
        ("albert_tf", "from . import data\nfrom .layers import common", None),
    ],
)
def test_the_guard_catches_a_forbidden_edge(package, text, caught):
    edges = forbidden_edges("x.py", package, list(imports(text, package)))
    assert [edge.split(":", 2)[0] + ":" + edge.split(":")[1] for edge in edges] == (
        [caught] if caught else []
    )


def resolve(module: str) -> pathlib.Path | None:
    """The project's file of a dotted name; of `package.module.attribute`, the module's."""
    parts = module.split(".")
    while parts:
        path = ROOT.joinpath(*parts)
        if parts[0] in ALLOWED and path.with_suffix(".py").is_file():
            return path.with_suffix(".py")
        if parts[0] in ALLOWED and (path / "__init__.py").is_file():
            return path / "__init__.py"
        parts.pop()
    return None


def tensorflow_import_chain(module: str) -> list[str]:
    """The chain of imports from `module` to TensorFlow that importing it runs; empty if none."""
    waiting, seen = [[module]], set()
    while waiting:
        chain = waiting.pop(0)
        if chain[-1].split(".")[0] in HEAVY:
            return chain
        path = resolve(chain[-1])
        if path is None or path in seen:
            continue
        seen.add(path)
        parents = [folder for folder in path.parents if folder.is_relative_to(ROOT)][:-1]
        waiting += [[*chain, dotted(p / "__init__.py")] for p in parents if p != path.parent]
        waiting += [[*chain, edge.module] for edge in imports_of(path) if edge.at_top]
        if (init := path.parent / "__init__.py") not in seen and init.is_file():
            waiting.append([*chain, dotted(init)])
    return []


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_import_no_tensorflow(module):
    assert resolve(module) == ROOT.joinpath(*module.split(".")).with_suffix(".py"), "moved?"
    assert not (chain := tensorflow_import_chain(module)), " -> ".join(chain)


def test_the_guard_finds_a_chain_to_tensorflow():
    assert tensorflow_import_chain("albert_tf.tasks.pretrained.encoder")[-1] in (
        "tensorflow",
        "tf_keras",
    )
    assert tensorflow_import_chain("pretraining.train")[0] == "pretraining.train"
    lazy = list(imports("if typing.TYPE_CHECKING:\n    import a\ndef f():\n    import b\nimport c"))
    assert [(edge.module, edge.at_top) for edge in lazy] == [
        ("c", True),
        ("a", False),
        ("b", False),
    ]


@pytest.mark.parametrize(
    "module", ["albert_tf", "albert_tf.text.tokenizer", "albert_tf.runtime.commands"]
)
def test_light_modules_load_no_tensorflow(module):
    heavy = sorted(HEAVY)
    code = f"import sys, {module}; assert not set(sys.modules) & set({heavy}), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_importing_the_library_changes_nothing():
    """Commands set two variables before TensorFlow; a user's program keeps its own environment."""
    code = """
import os, pkgutil, importlib, sys, albert_tf
sys.modules["jax"] = None  # else TensorFlow imports it, and it sets variables itself
before = dict(os.environ)
skipped = ("albert_tf.runtime.commands", "albert_tf.info")
for module in pkgutil.walk_packages(albert_tf.__path__, "albert_tf."):
    if not module.name.startswith(skipped) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
changed = {k for k in os.environ if os.environ.get(k) != before.get(k)}
assert not {k for k in changed if k.startswith("TF_")}, changed
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_keras_means_tf_keras():
    found = []
    for package in PACKAGES:
        for path in sources(package):
            found += [
                f"{shown(path)}:{node.lineno} uses tf.keras"
                for node in parsed(path)
                if isinstance(node, ast.Attribute)
                and node.attr == "keras"
                and isinstance(node.value, ast.Name)
                and node.value.id in ("tf", "tensorflow")
            ]
            found += [
                f"{shown(path)}:{edge.line} imports {edge.module}"
                for edge in imports_of(path)
                if edge.module.split(".")[0] == "keras"
                or edge.module.startswith("tensorflow.keras")
            ]
    assert not found, "\n".join(found)


def test_flags_are_defined_in_one_place():
    found = [
        f"{shown(path)}:{edge.line} imports {edge.module}"
        for package in PACKAGES
        for path in sources(package)
        for edge in imports_of(path)
        if edge.module in ("absl.flags", "absl.app", "argparse")
        and dotted(path) != "albert_tf.runtime.commands"
    ]
    assert not found, "\n".join(found)


# What only Linux has, and the files that may name it: each has an answer for other systems.
LINUX_ONLY = ("/proc", "sched_", ".so.", "so.2", "ru_maxrss")
PORTABLE = {
    "albert_tf/runtime/cores.py",
    "albert_tf/runtime/devices.py",
    "examples/c_api.py",
    "examples/demo.py",
}


def test_only_benchmarks_need_linux():
    found = {
        shown(path)
        for package in PACKAGES
        if package != "benchmarks"
        for path in sources(package)
        if any(name in path.read_text(encoding="utf-8") for name in LINUX_ONLY)
    }
    assert found == PORTABLE


def test_files_and_functions_are_small():
    found = []
    for path in (path for package in PACKAGES for path in sources(package)):
        text = path.read_text(encoding="utf-8")
        limit = MORE_LINES.get(shown(path), MAX_FILE_LINES)
        if (lines := len(text.splitlines())) > limit:
            found.append(f"{shown(path)} has {lines} lines, more than {limit}")
        for node in parsed(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    found.append(f"{shown(path)}:{node.lineno} {node.name} has {lines} lines")
    assert not found, "\n".join(found)


def test_small_files_have_a_reason():
    small = {
        shown(path)
        for package in ("albert_tf", "data", "pretraining", "finetuning")
        for path in sources(package)
        if path.name != "__init__.py"
        and len(path.read_text(encoding="utf-8").splitlines()) < MIN_FILE_LINES
        and path.parent not in SMALL_ROOMS
    }
    assert not (new := small - set(FEWER_LINES)), f"{new}: join it to another, or say why not"
    assert not (gone := set(FEWER_LINES) - small), f"{gone}: no longer small, or no longer there"


def test_no_module_has_a_name_of_the_standard_library():
    found = [
        shown(path)
        for package in PACKAGES
        for path in [ROOT / package, *(ROOT / package).rglob("*")]
        if (path.suffix == ".py" or path.is_dir()) and path.stem in sys.stdlib_module_names
    ]
    assert not found, found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tests_folders_hide_no_package(package):
    """tests/data holds tests of `data`: importing that must find the package."""
    module = importlib.import_module(package)
    assert module.__path__ == [str(ROOT / package)]


def test_gitignore_hides_no_source():
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, so there is no .gitignore to ask about")
    paths = [shown(path) for package in [*PACKAGES, "tests"] for path in sources(package)]
    paths += ["data/new_module.py", "pretraining/recipes/new.sh", "tests/golden/new.json"]
    done = subprocess.run(
        ["git", "check-ignore", "--stdin", "--no-index"],
        input="\n".join(paths),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, f"hidden by .gitignore: {done.stdout or done.stderr}"


def test_every_folder_of_a_wheel_is_a_package():
    """setup.py finds no others."""
    without = {
        shown(path.parent)
        for package in ("albert_tf", "data", "pretraining", "finetuning")
        for path in sources(package)
        if not (path.parent / "__init__.py").is_file()
    }
    assert not without, f"no __init__.py in {without}"
