"""From instance to certificate: what is claimed is what the simulator says, and the same in every process."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slackswap_ilp.analysis import keep_all_peak, make_graph
from slackswap_ilp.errors import OptionError, SolverError
from slackswap_ilp.files import read_plan, write_instance, write_plan
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.presets import generate
from slackswap_ilp.pipeline import compare, solve
from slackswap_ilp.plan import Plan
from slackswap_ilp.result import Result, Status
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers import registry
from slackswap_ilp.solvers.base import Claim, Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.registry import SOLVERS, Entry
from slackswap_ilp.units import Budget
from tests.oracle import best_by_enumeration
from tests.strategies import find_budget_range, random_budget_bytes, random_instance

TOLERANCE_RATIO = 1e-6
GAP = 1e-6


def solve_to_the_end(instance: Instance, budget_bytes: int) -> float | None:
    """Return the optimal step time, None if nothing fits."""
    result = solve(instance, budget=budget_bytes, gap=GAP, time_limit_seconds=None)
    if result.status is Status.INFEASIBLE:
        return None
    assert result.status is Status.OPTIMAL
    return result.step_seconds


def register(monkeypatch: pytest.MonkeyPatch, claim: Claim) -> None:
    """Add a solver called "liar" that makes this claim whatever the problem."""

    def lie(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
        del problem, options, monitor
        return claim

    monkeypatch.setattr(registry, "SOLVERS", {**SOLVERS, "liar": Entry(lie, "lies")})


def make_problem() -> tuple[Instance, int, Plan]:
    """Return an instance, a budget that is tight, and an optimal plan."""
    instance = random_instance(9)
    budget_bytes = (find_budget_range(instance)[0] + find_budget_range(instance)[1]) // 2
    best = best_by_enumeration(instance, budget_bytes, 100_000)
    assert best is not None
    return instance, budget_bytes, best.plan


def test_compare_shares_the_best_bound() -> None:
    """Every row with a plan is measured against the best bound of its instance and budget, whoever proved it."""
    instances = [random_instance(seed) for seed in (9, 31)]
    rows = compare(instances, budgets=("70%", "85%"), solvers=("greedy", "swap-all", "ilp"), gap=GAP)
    assert len(rows) == 2 * 2 * 3
    assert [row.solver for row in rows] == ["greedy", "swap-all", "ilp"] * 4
    for first in range(0, len(rows), 3):
        group = rows[first : first + 3]
        assert len({(row.instance, row.budget_bytes) for row in group}) == 1
        planned = [row for row in group if row.step_seconds is not None]
        bounds = {row.bound_seconds for row in planned}
        assert len(bounds) <= 1
        for row in planned:
            assert row.bound_seconds is not None
            assert row.step_seconds is not None
            assert row.gap_ratio is not None
            assert row.gap_ratio == pytest.approx((row.step_seconds - row.bound_seconds) / row.bound_seconds)
            assert (row.status is Status.OPTIMAL) == (row.gap_ratio <= GAP)
        assert len({row.status for row in group if row.step_seconds is None}) <= 1


def test_compare_infeasible_for_one_is_infeasible_for_all() -> None:
    """Where one solver proves that nothing fits, no row calls it unknown."""
    instance = random_instance(9)
    smallest, _ = find_budget_range(instance)
    rows = compare([instance], budgets=(smallest - 1,), solvers=("greedy", "keep-all", "ilp"))
    assert {row.status for row in rows} == {Status.INFEASIBLE}


def test_compare_calls_back_with_every_row() -> None:
    """Every row is handed over as soon as it is there; cancelled, the rows so far are returned."""
    seen: list[Result] = []
    instances = [random_instance(seed) for seed in (9, 31)]
    rows = compare(instances, solvers=("keep-all", "greedy"), budgets=("90%",), on_result=seen.append)
    assert [(row.instance, row.solver) for row in rows] == [(row.instance, row.solver) for row in seen]
    few: list[Result] = []
    rows = compare(
        instances, solvers=("keep-all",), budgets=("90%",), on_result=few.append, is_cancelled=lambda: bool(few)
    )
    assert len(rows) == len(few) == 1


def test_solve_bound_above_the_plan_is_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound above the simulated step time of the solver's own plan is an error, not a result."""
    instance, budget_bytes, plan = make_problem()
    step_seconds = simulate(instance, plan).step_seconds
    register(monkeypatch, Claim(plan, bound_seconds=step_seconds * 1.001))
    with pytest.raises(SolverError, match="liar contradicts the simulator"):
        solve(instance, solver="liar", budget=budget_bytes)
    register(monkeypatch, Claim(plan, is_infeasible=True))
    with pytest.raises(SolverError, match="liar contradicts the simulator"):
        solve(instance, solver="liar", budget=budget_bytes)


def test_compare_bound_above_anothers_plan_is_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound, or a proof that nothing fits, which another solver's plan disproves is an error, not a better gap."""
    instance, budget_bytes, plan = make_problem()
    step_seconds = simulate(instance, plan).step_seconds
    for claim in (Claim(None, bound_seconds=step_seconds * 1.01), Claim(None, is_infeasible=True)):
        register(monkeypatch, claim)
        with pytest.raises(SolverError, match="contradict"):
            compare([instance], budgets=(budget_bytes,), solvers=("ilp", "liar"))


def test_solve_plan_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan above the budget, or one that the simulator refuses, is the solver's error."""
    instance, budget_bytes, plan = make_problem()
    register(monkeypatch, Claim(plan))
    assert solve(instance, solver="liar", budget=budget_bytes).plan == plan
    with pytest.raises(SolverError, match="liar made a plan that does not fit"):
        solve(instance, solver="liar", budget=simulate(instance, plan).peak_bytes - 1)
    register(monkeypatch, Claim(Plan(instance=instance.name, activations={})))
    with pytest.raises(SolverError, match="liar made a plan that the simulator refuses"):
        solve(instance, solver="liar", budget=budget_bytes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "magic"}, "solver: must be one of .*ilp.*, got 'magic'"),
        ({"backend": "gurobi"}, "backend: must be one of highs, cbc, got 'gurobi'"),
        ({"gap": -0.1}, "gap: must be at least 0 and below 1, got -0.1"),
        ({"gap": 1.0}, "gap: must be at least 0 and below 1, got 1.0"),
        ({"gap": float("nan")}, "gap: must be at least 0 and below 1, got nan"),
        ({"time_limit_seconds": 0}, "time limit: must be a positive number of seconds, got 0"),
        ({"time_limit_seconds": float("nan")}, "time limit: must be a positive number of seconds, got nan"),
        ({"time_limit_seconds": float("inf")}, "time limit: must be a positive number of seconds, got inf"),
        ({"budget": "half"}, "budget: must be a share of the keep-all peak .*, got 'half'"),
        ({"budget": "0%"}, "budget"),
        ({"budget": 0}, "budget"),
        ({"budget": -1}, "budget"),
    ],
)
def test_options_are_refused(options: dict[str, Any], message: str) -> None:
    """An option that is off is refused, with its name, its value and what is allowed, by solve and compare."""
    instance = random_instance(9)
    with pytest.raises(OptionError, match=message):
        solve(instance, **options)
    listed: dict[str, Any] = dict(options)
    if "solver" in listed:
        listed["solvers"] = [listed.pop("solver")]
    if "budget" in listed:
        listed["budgets"] = [listed.pop("budget")]
    with pytest.raises(OptionError, match=message):
        compare([instance], **listed)


def test_budget_is_refused_where_static_bytes_fill_the_device() -> None:
    """Without a budget of its own, an instance needs room beside its static bytes."""
    content = random_instance(9).model_dump()
    full = Instance.model_validate({**content, "static_bytes": content["device"]["memory_bytes"]})
    with pytest.raises(OptionError, match=r"static_bytes .* fill the device"):
        solve(full)


def test_budget_forms_agree() -> None:
    """A share, a size, a number and a `Budget` of the same bytes are the same budget."""
    instance = random_instance(9)
    half = keep_all_peak(make_graph(instance)) // 2 + 5
    for budget in (half, str(half), f"{half} B", Budget(num_bytes=half)):
        assert solve(instance, solver="keep-all", budget=budget).budget_bytes == half
    assert solve(instance, solver="keep-all", budget="100%").status is not Status.UNKNOWN


@pytest.mark.parametrize("solver", ["greedy", "ilp", "swap-all", "recompute-all"])
def test_plan_file_replays_to_the_last_bit(solver: str, tmp_path: Path) -> None:
    """A plan written to a file and read again takes the step time of the result, to the last bit."""
    instance = generate("bert-large", layers=2)
    result = solve(instance, solver=solver, budget="80%")
    assert result.plan is not None
    write_plan(tmp_path / "plan.json", result.plan)
    again = read_plan(tmp_path / "plan.json")
    assert again == result.plan
    simulation = simulate(instance, again)
    assert simulation.step_seconds == result.step_seconds
    assert simulation.peak_bytes == result.peak_bytes


@pytest.mark.parametrize("solver", ["greedy", "ilp"])
def test_plans_are_the_same_in_every_process(solver: str, tmp_path: Path) -> None:
    """Two processes with different hash seeds write plans that are the same to the byte."""
    script = f"""
import sys
from slackswap_ilp import generate, solve, write_plan
result = solve(generate("bert-large", layers=2), solver={solver!r}, budget="80%", time_limit_seconds=None)
write_plan(sys.argv[1], result.plan)
"""
    written = []
    for seed in ("1", "12345"):
        path = tmp_path / f"{seed}.json"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], env=environment, capture_output=True, check=False, timeout=120
        )
        assert (done.returncode, done.stdout) == (0, b""), done.stderr
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_python_and_command_line_agree(tmp_path: Path) -> None:
    """`slackswap solve --json` prints what `solve` returns, but for the run time, and writes the same plan."""
    instance = generate("bert-large", layers=2)
    write_instance(tmp_path / "instance.json", instance)
    command = [sys.executable, "-m", "slackswap_ilp", "solve", str(tmp_path / "instance.json"), "--solver", "greedy"]
    command += ["--budget", "80%", "--json", "--output", str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    result = solve(instance, solver="greedy", budget="80%")
    expected = json.loads(result.model_dump_json())
    assert printed.pop("runtime_seconds") >= 0
    assert expected.pop("runtime_seconds") >= 0
    assert printed == expected
    assert read_plan(tmp_path / "plan.json") == result.plan


def test_optimum_never_gets_worse_with_more() -> None:
    """More budget, more bandwidth or less latency never makes the optimum worse, or infeasible."""
    for seed in range(600, 608):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        step_seconds = solve_to_the_end(instance, budget_bytes)
        assert step_seconds is not None
        device = instance.device.model_dump()
        richer = [(instance, budget_bytes + 1), (instance, budget_bytes + 5)]
        for field, factor in (
            ("swap_out_bytes_per_second", 1.7),
            ("swap_in_bytes_per_second", 1.7),
            ("transfer_latency_seconds", 0.4),
        ):
            changed = {**instance.model_dump(), "device": {**device, field: device[field] * factor}}
            richer.append((Instance.model_validate(changed), budget_bytes))
        for other, bytes_there in richer:
            found = solve_to_the_end(other, bytes_there)
            assert found is not None
            assert found <= step_seconds * (1 + TOLERANCE_RATIO), seed


def scale(instance: Instance, *, seconds: float = 1, num_bytes: int = 1) -> Instance:
    """Return an instance with all times and sizes multiplied, and bandwidths to match."""
    content = instance.model_dump()
    device = content["device"]
    for field in ("swap_out_bytes_per_second", "swap_in_bytes_per_second"):
        device[field] *= num_bytes / seconds
    device["transfer_latency_seconds"] *= seconds
    if device["host_memory_bytes"] is not None:
        device["host_memory_bytes"] *= num_bytes
    device["memory_bytes"] *= num_bytes
    for layer in content["layers"]:
        layer["forward_seconds"] *= seconds
        layer["backward_seconds"] *= seconds
        layer["forward_workspace_bytes"] *= num_bytes
        layer["backward_workspace_bytes"] *= num_bytes
        for output in layer["outputs"]:
            output["size_bytes"] *= num_bytes
            output["gradient_bytes"] *= num_bytes
    return Instance.model_validate(content)


@pytest.mark.parametrize(("seconds", "num_bytes"), [(1e-6, 1), (1e4, 1), (1, 999_983), (1e-3, 2**30)])
def test_optimum_scales_with_its_units(seconds: float, num_bytes: int) -> None:
    """Times and 1 / bandwidth times k: the step takes k times as long; bytes and bandwidth times k: as long."""
    for seed in range(620, 628):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        step_seconds = solve_to_the_end(instance, budget_bytes)
        assert step_seconds is not None
        scaled = solve_to_the_end(scale(instance, seconds=seconds, num_bytes=num_bytes), budget_bytes * num_bytes)
        assert scaled == pytest.approx(step_seconds * seconds, rel=TOLERANCE_RATIO), seed
