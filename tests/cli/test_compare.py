"""The commands ``compare`` and ``reproduce``."""

import csv
import io
import json
from pathlib import Path

import pytest

from slackswap_ilp import reproduce as reproduction
from slackswap_ilp.result import Result
from tests.cli.conftest import RunCli

KEYS = [name for name in Result.model_fields if name != "plan"]
SOLVERS = ("--solver", "greedy", "--solver", "recompute-all")


def test_compare_prints_rows_in_order(run_cli: RunCli, small: Path, chain: Path) -> None:
    """JSON rows go over instances, then budgets, then solvers, each with the keys of a result."""
    done = run_cli("compare", small, chain, "--budget", "75%", "--budget", "100%", *SOLVERS, "--json")
    rows = json.loads(done.out)["rows"]
    assert (done.code, done.err) == (0, "")
    assert all(list(row) == KEYS for row in rows)
    first, second = (json.loads(path.read_text())["name"] for path in (small, chain))
    assert [(row["instance"], row["solver"]) for row in rows] == [
        (name, solver) for name in (first, second) for _ in range(2) for solver in ("greedy", "recompute-all")
    ]
    assert rows[0]["budget_bytes"] == rows[1]["budget_bytes"] < rows[2]["budget_bytes"]
    assert rows[0]["bound_seconds"] == rows[1]["bound_seconds"]


def test_compare_prints_csv(run_cli: RunCli, small: Path) -> None:
    """CSV has a header of the JSON keys, lines that end with CR LF, and empty cells where JSON has null."""
    arguments = ("compare", small, "--budget", "10%", "--budget", "75%", "--solver", "greedy")
    done = run_cli(*arguments, "--csv")
    assert done.code == 0
    header, *cells = csv.reader(io.StringIO(done.out, newline=""))
    rows = json.loads(run_cli(*arguments, "--json").out)["rows"]
    assert header == KEYS
    assert done.out.count("\r\n") == done.out.count("\n") == 3
    for texts, row in zip(cells, rows, strict=True):
        for key, text in zip(header, texts, strict=True):
            if key != "runtime_seconds":
                assert text == (
                    "" if row[key] is None else str(row[key]).lower() if row[key] is False else str(row[key])
                )


def test_compare_prints_a_table(run_cli: RunCli, small: Path) -> None:
    """The table has a line per row, and says once below it why a row has no plan."""
    done = run_cli("compare", small, "--budget", "10%", "--budget", "75%", *SOLVERS)
    assert done.code == 0
    assert sum(" greedy " in line for line in done.out.splitlines()) == 2
    assert sum("recompute-all" in line for line in done.out.splitlines()) == 2
    assert done.out.count("no plan of this kind fits into less than") == 1


def test_compare_without_any_plan(run_cli: RunCli, small: Path) -> None:
    """If no row has a plan the exit code is 1."""
    assert run_cli("compare", small, "--budget", "10%", "--solver", "greedy", "--json").code == 1


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_compare_fits_narrow_terminals(
    run_cli: RunCli, small: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """No line is wider than the terminal, and solver, share and gap are always there."""
    run_cli("models")
    monkeypatch.setenv("COLUMNS", str(columns))
    done = run_cli("compare", small, "--budget", "75%", "--solver", "greedy")
    share = json.loads(run_cli("compare", small, "--budget", "75%", "--solver", "greedy", "--json").out)["rows"][0]
    assert max(map(len, done.out.splitlines())) <= columns
    assert "greedy" in done.out
    assert f"{share['throughput_ratio']:.2%}".replace("%", " %") in done.out
    assert f"{share['gap_ratio']:.2%}".replace("%", " %") in done.out


def test_compare_reads_stdin(run_cli: RunCli, chain: Path) -> None:
    """One of the instances may come from stdin."""
    done = run_cli("compare", "-", chain, "--solver", "greedy", "--json", stdin=chain.read_bytes())
    assert [row["instance"] for row in json.loads(done.out)["rows"]] == ["chain", "chain"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--json", "--csv"), "--json and --csv: must be given one at a time, got both"),
        (("--solver", "greedy", "--solver", "x"), "solver: must be one of keep-all"),
        (("--budget", "x"), "budget: must be a share"),
        (("-", "-"), "files: stdin ('-') can be read once"),
        (("missing.json",), "missing.json: cannot be read: No such file or directory"),
    ],
)
def test_compare_refuses(run_cli: RunCli, chain: Path, arguments: tuple[str, ...], message: str) -> None:
    """Bad options and files exit with 2 before anything is solved."""
    done = run_cli("compare", chain, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_reproduce_prints_rows_with_the_papers_figures(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is a result and the paper's figure; one workload and the heuristic take little time."""
    monkeypatch.setattr(reproduction, "WORKLOADS", reproduction.WORKLOADS[:1])
    monkeypatch.setattr(reproduction, "SOLVERS", ("greedy",))
    done = run_cli("reproduce", "--json")
    (row,) = json.loads(done.out)["rows"]
    assert (done.code, done.err) == (0, "")
    assert list(row) == [*KEYS, "paper_throughput_ratio"]
    assert row["paper_throughput_ratio"] == 0.963
    table = run_cli("reproduce")
    assert f"{row['throughput_ratio']:.2%}".replace("%", " %") in table.out
    assert "96.3 %" in table.out
    assert "arXiv 2610.13003" in table.out


def test_workloads_are_the_papers() -> None:
    """The three workloads carry the figures that the paper reports."""
    assert {workload.model: workload.paper_throughput_ratio for workload in reproduction.WORKLOADS} == {
        "bert-large": 0.963,
        "gpt2-xl": 0.976,
        "llama-7b": 0.996,
    }
