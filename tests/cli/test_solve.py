"""The command ``solve``."""

import json
from pathlib import Path

import pytest

from slackswap_ilp import pipeline
from slackswap_ilp.errors import InputError, SolverError
from slackswap_ilp.files import read_instance, read_plan
from slackswap_ilp.result import Result
from slackswap_ilp.simulator import simulate
from tests.cli.conftest import RunCli

GREEDY = ("--solver", "greedy", "--budget", "75%")
ISSUE_KEYS = {
    "instance",
    "solver",
    "status",
    "budget_bytes",
    "peak_bytes",
    "ideal_seconds",
    "step_seconds",
    "throughput_ratio",
    "recompute_seconds",
    "stall_seconds",
    "swapped_bytes",
    "num_kept",
    "num_swapped",
    "num_recomputed",
    "bound_seconds",
    "gap_ratio",
    "runtime_seconds",
}


def test_solve_prints_a_summary(run_cli: RunCli, small: Path) -> None:
    """The summary tells the plan's cost, and how to get the plan itself."""
    done = run_cli("solve", small, *GREEDY)
    labels = [line.split("  ")[0] for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert labels[:2] == ["instance", "status"]
    assert {"memory", "step", "throughput", "overhead", "activations", "bound", "solver"} <= set(labels)
    assert "not written; --output FILE writes it" in done.out


def test_solve_prints_one_json_object(run_cli: RunCli, small: Path) -> None:
    """With --json stdout is one object with exactly the keys of a result, and the figures fit together."""
    done = run_cli("solve", small, *GREEDY, "--json")
    row = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert set(row) == {name for name in Result.model_fields if name != "plan"}
    assert set(row) >= ISSUE_KEYS
    assert row["solver"] == "greedy"
    assert row["peak_bytes"] <= row["budget_bytes"]
    assert row["throughput_ratio"] == row["ideal_seconds"] / row["step_seconds"]


def test_solve_writes_a_plan_that_simulates_the_same(run_cli: RunCli, small: Path, tmp_path: Path) -> None:
    """The plan file simulates to the step time of the result, to the last bit."""
    path = tmp_path / "plan.json"
    done = run_cli("solve", small, *GREEDY, "--json", "--output", path)
    row = json.loads(done.out)
    assert simulate(read_instance(small), read_plan(path)).step_seconds == row["step_seconds"]
    replayed = json.loads(run_cli("simulate", small, path, "--json").out)
    assert {key: row[key] for key in row.keys() & replayed.keys()} == {
        key: replayed[key] for key in row.keys() & replayed.keys()
    }
    assert f"written to {path}" in run_cli("solve", small, *GREEDY, "--output", path).out


def test_solve_reads_stdin(run_cli: RunCli, small: Path) -> None:
    """An instance on stdin gives the result of the same instance in a file."""
    from_file = json.loads(run_cli("solve", small, *GREEDY, "--json").out)
    from_stdin = json.loads(run_cli("solve", "-", *GREEDY, "--json", stdin=small.read_bytes()).out)
    assert {**from_file, "runtime_seconds": 0} == {**from_stdin, "runtime_seconds": 0}


@pytest.mark.parametrize("gap", ["100%", "-0.1", "nan", "x", "1%%", ""])
def test_solve_refuses_gaps(run_cli: RunCli, small: Path, gap: str) -> None:
    """A gap that is no ratio below one is refused."""
    done = run_cli("solve", small, *GREEDY, "--gap", gap)
    assert done.code == 2
    assert done.err.startswith("error: gap: must be ")


def test_solve_takes_the_gap_in_percent(run_cli: RunCli, small: Path) -> None:
    """A gap of 50 % and one of 0.5 are the same: the plan counts as optimal within it."""
    for gap in ("50%", "0.5"):
        assert json.loads(run_cli("solve", small, *GREEDY, "--gap", gap, "--json").out)["status"] == "optimal"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--solver", "simplex"),
            "solver: must be one of keep-all, swap-all, recompute-all, greedy, ilp, got 'simplex'",
        ),
        (("--backend", "gurobi"), "backend: must be one of highs, cbc, got 'gurobi'"),
        (("--budget", "half"), "budget: must be a share of the keep-all peak ('50%') or a size ('12GiB', bytes), got"),
        (("--budget", "0"), "budget: must be "),
        (("--time-limit", "0"), "time limit: must be a positive number of seconds, got 0.0"),
        (("--time-limit", "nan"), "time limit: must be a positive number of seconds, got nan"),
        (("--time-limit", "soon"), "Invalid value for '--time-limit'"),
        (("--output", "-"), "output: must be a file, got '-'; stdout carries the result"),
        (("--output", "missing/plan.json"), "missing/plan.json: cannot be written: there is no folder missing"),
        (("--frobnicate",), "No such option: --frobnicate"),
    ],
)
def test_solve_refuses_options(run_cli: RunCli, small: Path, arguments: tuple[str, ...], message: str) -> None:
    """Bad options exit with 2, say what is allowed, and leave stdout empty."""
    done = run_cli("solve", small, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_solve_refuses_bad_files(run_cli: RunCli, tmp_path: Path) -> None:
    """Unreadable and malformed files exit with 2, and every finding is named."""
    done = run_cli("solve", tmp_path / "missing.json")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {tmp_path / 'missing.json'}: cannot be read: No such file or directory\n"
    assert run_cli("solve", tmp_path).err == f"error: {tmp_path}: cannot be read: Is a directory\n"
    done = run_cli("solve", "-", stdin=b'{"format": "slackswap-instance", "version": 1, "name": 3, "layers": []}')
    assert done.code == 2
    lines = done.err.splitlines()
    assert lines[0].startswith("error: stdin: name: must be a text, got 3")
    assert all(line.startswith("       stdin: ") for line in lines[1:])
    assert any("layers: must not be empty" in line for line in lines)


def test_solve_of_an_infeasible_budget(run_cli: RunCli, small: Path, tmp_path: Path) -> None:
    """Where nothing fits, the exit code is 1, the message names both limits, and JSON has nulls; no plan is written."""
    plan = tmp_path / "plan.json"
    done = run_cli("solve", small, "--solver", "greedy", "--budget", "10%", "--output", plan)
    assert (done.code, done.err) == (1, "")
    assert "infeasible" in done.out
    assert not plan.exists()
    done = run_cli("solve", small, "--solver", "greedy", "--budget", "10%", "--json")
    row = json.loads(done.out)
    assert (done.code, row["status"], row["step_seconds"], row["num_kept"]) == (1, "infeasible", None, None)
    assert f"{row['necessary_budget_bytes']} bytes" in row["message"]
    assert f"{row['sufficient_budget_bytes']} bytes" in row["message"]


def test_solve_that_finds_nothing(run_cli: RunCli, small: Path) -> None:
    """A solver that finds nothing at a budget that may be enough exits with 1 and does not claim a proof."""
    done = run_cli("solve", small, "--solver", "keep-all", "--budget", "80%", "--json")
    row = json.loads(done.out)
    assert (done.code, row["status"]) == (1, "unknown")
    assert "does not prove" in row["message"]


def test_solve_whose_solver_fails(run_cli: RunCli, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that fails exits with 3 and its own words, without a traceback."""

    def fail(*_arguments: object, **_options: object) -> Result:
        raise SolverError("CBC is missing: install it")

    monkeypatch.setattr(pipeline, "solve", fail)
    done = run_cli("solve", small)
    assert (done.code, done.out, done.err) == (3, "", "error: CBC is missing: install it\n")


def test_interrupt_outside_a_solve_is_quiet(run_cli: RunCli, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a file is read ends with 130 and no word."""

    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slackswap_ilp.cli.solving.load_instance", interrupt)
    done = run_cli("solve", small)
    assert (done.code, done.out, done.err) == (130, "", "")


def test_result_is_shown_when_the_plan_cannot_be_written(
    run_cli: RunCli, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the plan file and the exit code, not the result of a long solve."""

    def fail(*_arguments: object) -> None:
        raise InputError("plan.json: cannot be written: No space left on device")

    monkeypatch.setattr("slackswap_ilp.cli.solving.write_plan", fail)
    done = run_cli("solve", small, *GREEDY, "--output", tmp_path / "plan.json")
    assert done.code == 2
    assert "not written" in done.out
    assert done.err == "error: plan.json: cannot be written: No space left on device\n"


def test_solve_does_not_overwrite_what_it_reads(run_cli: RunCli, small: Path) -> None:
    """A plan is not written over its instance."""
    before = small.read_text(encoding="utf-8")
    done = run_cli("solve", small, *GREEDY, "--output", small)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {small}: cannot be written: it is what is read\n"
    assert small.read_text(encoding="utf-8") == before


def test_solve_refuses_an_empty_name(run_cli: RunCli) -> None:
    """An empty file name is said to be that."""
    done = run_cli("solve", "")
    assert (done.code, done.err) == (2, "error: file: must have a name, got ''\n")


def test_solve_says_when_the_device_is_too_small(run_cli: RunCli, small: Path) -> None:
    """A budget that does not fit beside the weights gets a plan, and a warning with the numbers."""
    budget_bytes = 2 * read_instance(small).device.memory_bytes
    row = json.loads(run_cli("solve", small, "--solver", "greedy", "--budget", budget_bytes, "--json").out)
    assert row["status"] == "optimal"
    assert "together exceed the device's memory" in row["message"]
