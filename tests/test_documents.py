"""The documents say what is so: their examples run, their links lead somewhere, what they name exists."""

import doctest
import functools
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import isclass
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel
from typer.main import get_command

import slackswap_ilp
from benchmarks.best_known import BestKnown, read_best
from slackswap_ilp.analysis import keep_all_peak, make_graph
from slackswap_ilp.cli.app import app
from slackswap_ilp.files import parse_plan, read_instance
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.plan import KEEP, Keep, Plan, Recompute, Swap
from slackswap_ilp.report.simulation import SimulationSummary
from slackswap_ilp.result import Result
from slackswap_ilp.simulator import simulate
from slackswap_ilp.slots import parse_slot
from slackswap_ilp.solvers.exact import make_exact_program
from slackswap_ilp.solvers.fluid import make_fluid_program
from slackswap_ilp.solvers.program import Program
from slackswap_ilp.solvers.registry import SOLVERS
from tests.strategies import random_instance

ROOT = Path(__file__).parents[1]
DOCUMENTS = tuple(
    path.relative_to(ROOT).as_posix()
    for path in sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "instances" / "README.md"))
)
MODULES = tuple(
    module.name
    for module in pkgutil.walk_packages(slackswap_ilp.__path__, "slackswap_ilp.")
    if not module.name.endswith("__main__")
)
NUM_RANDOM_PROGRAMS = 40
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def read(document: str) -> str:
    """Return the text of a document."""
    return (ROOT / document).read_text(encoding="utf-8")


def read_prose(document: str) -> str:
    """Return the text of a document without its code blocks."""
    return FENCED.sub("", read(document))


@dataclass(frozen=True, slots=True)
class Block:
    """A code block that a document calls runnable."""

    document: str
    language: str
    code: str


def find_runnable_blocks() -> Iterator[Block]:
    """Yield all code blocks below a line that says so."""
    for document in DOCUMENTS:
        for language, code in re.findall(r"^<!-- runnable -->\n```(\w+)\n(.*?)^```$", read(document), re.M | re.S):
            yield Block(document, language, code)


def find_tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of a document's tables, without their headers, by the heading above them."""
    tables: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            tables.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return {heading: rows[2:] for heading, rows in tables.items()}


def find_codes(text: str) -> list[str]:
    """Return what stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("block", [*find_runnable_blocks()], ids=lambda block: f"{block.document}-{block.language}")
def test_runnable_block_runs(block: Block, tmp_path: Path) -> None:
    """Every code block that is called runnable runs, in an empty folder, without a warning."""
    command = {
        "shell": ("/bin/sh", "-e", "-u", "-c", block.code),
        "python": (sys.executable, "-W", "error", "-c", block.code),
    }[block.language]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_readme_and_solvers_have_runnable_blocks() -> None:
    """README shows shell and Python, the page on solvers a whole solver, and all of them are run."""
    found = [(block.document, block.language) for block in find_runnable_blocks()]
    assert found == [("README.md", "shell"), ("README.md", "python"), ("docs/solvers.md", "python")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_code_blocks_are_runnable(document: str) -> None:
    """No block of shell or Python escapes being run."""
    marked = sum(block.document == document for block in find_runnable_blocks())
    assert len(re.findall(r"^```(?:shell|python)", read(document), re.M)) == marked


def test_readme_table_is_what_the_simulator_says() -> None:
    """README's picture of a plan shows the ledger and the starts of the best plan of the example, to the digit."""
    (header, *rows) = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in read("README.md").split("## What a plan does")[1].split("## Two commands")[0].splitlines()
        if line.startswith("|") and "---" not in line
    )
    cells = {row[0]: row[1:] for row in rows}
    instance = read_instance(ROOT / "instances/tiny/mixing_wins.json")
    best = read_best(ROOT / "instances/tiny/mixing_wins.best.json")
    keep_all = Plan(instance=instance.name, activations={output.name: KEEP for output in instance.activations})
    slots = [parse_slot(name, len(instance.layers)) or 0 for name in header[1:]]
    found, kept = simulate(instance, best.plan), simulate(instance, keep_all)
    assert cells["keep all: bytes"] == [str(kept.slot_bytes[slot]) for slot in slots]
    assert cells["plan: bytes"] == [str(found.slot_bytes[slot]) for slot in slots]
    assert cells["plan: starts at second"] == [f"{found.slot_start_seconds[slot]:g}" for slot in slots]
    assert (kept.peak_bytes, found.peak_bytes, instance.budget_bytes) == (16, 8, 8)
    assert (found.step_seconds, found.ideal_seconds, best.bound_seconds) == (25, 23, 25)


def make_anchor(heading: str) -> str:
    """Return the anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    """Every link within the project leads to a file, and to a heading where it names one."""
    for target in re.findall(r"\]\(([^)\s]+)\)", read_prose(document)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / document).parent / file if file else ROOT / document
        assert path.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            assert anchor in map(make_anchor, headings), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_paths_exist(document: str) -> None:
    """Every path in backticks that starts at the root of the project exists."""
    tops = ("slackswap_ilp/", "tests/", "instances/", "docs/", "benchmarks/")
    for code in find_codes(read_prose(document)):
        if code.startswith(tops):
            assert (ROOT / code).exists(), code


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_commands_exist(document: str) -> None:
    """Every ``slackswap`` command that a document names exists, and so do its options; so does every make target."""
    commands = getattr(get_command(app), "commands", {})
    for line in re.findall(r"^(?: {4})?slackswap (.*)$|`slackswap ([^`\n]*)`", read(document), re.M):
        words = re.split(r"\s+", line[0] or line[1])
        if words[0].startswith("-"):
            continue
        assert words[0] in commands, words
        options = {option for parameter in commands[words[0]].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= {*options, "--help"}, words
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for target in re.findall(r"(?:`|^ {4})make ([a-z-]+)", read(document), re.M):
        assert target in targets, target


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name != "docs/glossary.md"])
def test_one_word_per_concept(document: str) -> None:
    """Synonyms stand in the glossary only."""
    assert not re.findall(r"offload|prefetch|remateriali", read_prose(document), re.I)


@functools.cache
def find_package_names() -> frozenset[str]:
    """Return the names of all modules, functions, classes, constants, fields and methods of the package."""
    names: set[str] = set()
    for module in map(importlib.import_module, MODULES):
        names.update(module.__name__.split("."), vars(module))
        for value in vars(module).values():
            if isclass(value) and value.__module__.startswith("slackswap_ilp"):
                names.update(vars(value), *(getattr(base, "__annotations__", {}) for base in value.__mro__))
                names.update(value.model_fields if issubclass(value, BaseModel) else ())
    return frozenset(names)


def record_heads(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, set[str]]]:
    """Return, by program, the names of variables and rows, without their indices, that it has for many graphs."""
    heads = {program: {"variables": set[str](), "rows": set[str]()} for program in ("fluid", "exact")}

    def record(method: str, kind: str) -> None:
        original = getattr(Program, method)

        def call(program: Program, name: str, *arguments: object, **options: object) -> object:
            heads[program.name][kind].add(name.partition("[")[0])
            return original(program, name, *arguments, **options)

        monkeypatch.setattr(Program, method, call)

    for method in ("variable", "binary"):
        record(method, "variables")
    for method in ("at_most", "at_least", "equal"):
        record(method, "rows")
    for seed in range(NUM_RANDOM_PROGRAMS):
        graph = make_graph(random_instance(seed))
        budget_bytes = (max(graph.fixed_bytes) + keep_all_peak(graph)) // 2
        for window, is_closed in product((None, 1), (False, True)):
            make_fluid_program(graph, budget_bytes=budget_bytes, window=window, is_closed=is_closed)
        make_fluid_program(graph, budget_bytes=None, window=1)
        make_exact_program(graph, budget_bytes=budget_bytes)
    return heads


def test_formulation_names_all_variables_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the formulation have every variable and row of both programs, and no others."""
    text = read("docs/formulation.md")
    tables = find_tables(text)
    for program, kinds in record_heads(monkeypatch).items():
        title = program.capitalize()
        variables = {code for row in tables[f"{title} variables"] for code in find_codes(row[1])}
        rows = {code for row in tables[f"{title} constraints"] for code in find_codes(row[2])}
        assert variables == kinds["variables"], program
        sums = {f"sum_{name}" for name in ("swapped", "releasable", "due", "used")} if program == "fluid" else set()
        assert sums <= set(find_codes(text))
        assert rows == kinds["rows"] - sums, program


def test_formulation_names_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name in the formulation is one of a function, class, field or constant, or of a variable or row."""
    known = set(find_package_names()).union(
        *(names for kinds in record_heads(monkeypatch).values() for names in kinds.values())
    )
    text = read("docs/formulation.md")
    unknown = {code for code in find_codes(text) if re.fullmatch(r"\w+", code) and code not in known}
    assert not unknown


def test_formulation_functions_exist() -> None:
    """Every function that a table says adds something exists in the modules of that program."""
    modules = {
        "Fluid": ("fluid", "fluid_actions", "fluid_memory", "fluid_model", "fluid_transfers"),
        "Exact": ("exact", "exact_actions", "exact_memory", "exact_model", "exact_transfers"),
    }
    tables = find_tables(read("docs/formulation.md"))
    for program, names in modules.items():
        known: set[str] = set()
        for name in names:
            module = importlib.import_module(f"slackswap_ilp.solvers.{name}")
            known.update(vars(module), *(vars(value) for value in vars(module).values() if isclass(value)))
        for row in (*tables[f"{program} variables"], *tables[f"{program} constraints"]):
            assert set(find_codes(row[3])) <= known, row


@pytest.mark.parametrize("document", ["docs/solvers.md", "docs/formats.md", "docs/decisions.md", "CONTRIBUTING.md"])
def test_named_functions_exist(document: str) -> None:
    """Every function, class or field that another page names exists in the package."""
    for code in find_codes(read_prose(document)):
        if re.fullmatch(r"[A-Z]\w+\.\w+|[a-z]+(?:_[a-z]+)+(?:\(\))?|[A-Z][a-z]+[A-Z]?\w*", code):
            assert set(code.removesuffix("()").split(".")) <= find_package_names(), code


FORMATS: tuple[tuple[str, tuple[type[BaseModel], ...]], ...] = (
    ("Instance", (Instance,)),
    ("Device", (Device,)),
    ("Layer", (Layer,)),
    ("Activation", (Activation,)),
    ("Plan", (Plan,)),
    ("Decision", (Keep, Recompute, Swap)),
    ("Best-known plan", (BestKnown,)),
    ("Result", (Result,)),
    ("Replay", (SimulationSummary,)),
)


@pytest.mark.parametrize(("heading", "records"), FORMATS, ids=[heading for heading, _ in FORMATS])
def test_formats_have_every_field(heading: str, records: Sequence[type[BaseModel]]) -> None:
    """The tables of the formats have every field of every record, in order, and say which are required."""
    rows = find_tables(read("docs/formats.md"))[heading]
    fields = {name: field for record in records for name, field in record.model_fields.items() if not field.exclude}
    assert [find_codes(row[0])[0] for row in rows] == list(fields)
    if heading in ("Result", "Replay"):
        return
    for row, (name, field) in zip(rows, fields.items(), strict=True):
        is_header = name in ("format", "version", "action")
        assert row[2].startswith("required") == (field.is_required() or is_header), name


def test_formats_example_is_a_plan() -> None:
    """The plan that the page on formats shows is one, for the instance that it names."""
    (text,) = re.findall(r"^```json\n(.*?)^```$", read("docs/formats.md"), re.M | re.S)
    instance = read_instance(ROOT / "instances/tiny/mixing_wins.json")
    assert simulate(instance, parse_plan(text)).step_seconds == 25


def test_solvers_page_has_every_solver() -> None:
    """The page on solvers lists those of the registry, in its order."""
    rows = find_tables(read("docs/solvers.md"))["Solvers"]
    assert [find_codes(row[0])[0] for row in rows] == list(SOLVERS)


def test_changelog_has_the_version() -> None:
    """The changelog speaks of the version that the project has."""
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert version in read("CHANGELOG.md")


def run_doctests(module: ModuleType) -> doctest.TestResults:
    """Run the examples in a module's docstrings."""
    return doctest.testmod(module, verbose=False)


@pytest.mark.parametrize("name", ["slackswap_ilp", *MODULES])
def test_docstring_examples_hold(name: str) -> None:
    """Every example in a docstring of the package prints what it says."""
    assert run_doctests(importlib.import_module(name)).failed == 0
