"""The command ``simulate``."""

import json
from pathlib import Path

from slackswap_ilp.files import write_instance, write_plan
from slackswap_ilp.plan import KEEP, RECOMPUTE, Plan
from tests.cli.conftest import RunCli, make_chain

# The chain under the swap plan. F0 0-1, F1 1-2. x is copied out from 1 to 3, so B1 waits 1 s: B1 3-5. R0 is empty and
# the fetch starts with it at 5; the copy ends at 7, so B0 waits 2 s: B0 7-9. Ledger: F0 8, F1 16, R1 16, B1 8, R0 8,
# B0 8; y is last used by B1.


def test_simulate_prints_one_json_object(run_cli: RunCli, chain: Path, swap_plan: Path) -> None:
    """The figures of a plan that was replayed by hand, as one JSON object with the documented keys."""
    done = run_cli("simulate", chain, swap_plan, "--json")
    assert done.code == 0
    assert done.err == ""
    assert json.loads(done.out) == {
        "instance": "chain",
        "budget_bytes": 100,
        "fits": True,
        "peak_bytes": 16,
        "peak_slot": "F1",
        "peak_layer": "layer 1",
        "ideal_seconds": 6.0,
        "step_seconds": 9.0,
        "throughput_ratio": 6 / 9,
        "recompute_seconds": 0.0,
        "stall_seconds": 3.0,
        "swap_out_stall_seconds": 1.0,
        "swap_in_stall_seconds": 2.0,
        "swapped_bytes": 8,
        "num_kept": 1,
        "num_swapped": 1,
        "num_recomputed": 0,
    }


def test_simulate_names_peak_and_worst_stalls(run_cli: RunCli, chain: Path, swap_plan: Path) -> None:
    """The text says where the peak is, and what compute waits for, the longest wait first."""
    done = run_cli("simulate", chain, swap_plan)
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert done.code == 0
    assert "memory peak 16 B of 100 B budget (16.00 %), at F1 (layer 1)" in lines
    assert "host memory 8 B of 16 B" in lines
    worst = lines.index("2 s before B0 (layer 0), for the swap-in of x")
    assert lines[worst + 1] == "1 s before B1 (layer 1), for the swap-out of x"


def test_simulate_of_a_plan_that_does_not_fit(run_cli: RunCli, chain: Path, swap_plan: Path) -> None:
    """A plan above the budget exits with 1 and says by how much."""
    done = run_cli("simulate", chain, swap_plan, "--budget", "15")
    assert done.code == 1
    assert "no: the peak is 1 bytes (1 B) above the budget" in done.out
    assert json.loads(run_cli("simulate", chain, swap_plan, "--budget", "15", "--json").out)["fits"] is False


def test_simulate_takes_the_budget_of_the_plan(run_cli: RunCli, chain: Path, tmp_path: Path) -> None:
    """Without --budget the plan's own budget holds, even where the instance allows more."""
    plan = tmp_path / "keep.json"
    write_plan(plan, Plan(instance="chain", budget_bytes=15, activations={"x": KEEP, "y": KEEP}))
    done = run_cli("simulate", chain, plan, "--json")
    assert done.code == 1
    assert json.loads(done.out)["budget_bytes"] == 15


def test_simulate_says_when_host_memory_lacks(run_cli: RunCli, swap_plan: Path, tmp_path: Path) -> None:
    """A plan that swaps more than the host holds does not fit, and the text says by how much."""
    instance = make_chain()
    device = {**instance.device.model_dump(), "host_memory_bytes": 5}
    path = tmp_path / "poor-host.json"
    write_instance(path, type(instance).model_validate({**instance.model_dump(), "device": device}))
    done = run_cli("simulate", path, swap_plan)
    assert done.code == 1
    assert "no: host memory lacks 3 bytes" in done.out


def test_simulate_reads_either_file_from_stdin(run_cli: RunCli, chain: Path, swap_plan: Path) -> None:
    """Instance or plan may come from stdin, not both."""
    expected = run_cli("simulate", chain, swap_plan)
    assert run_cli("simulate", "-", swap_plan, stdin=chain.read_bytes()) == expected
    assert run_cli("simulate", chain, "-", stdin=swap_plan.read_bytes()) == expected
    done = run_cli("simulate", "-", "-", stdin=chain.read_bytes())
    assert done.code == 2
    assert done.err == "error: files: stdin ('-') can be read once, got '-' more than once\n"


def test_simulate_refuses_a_plan_for_another_instance(run_cli: RunCli, chain: Path, tmp_path: Path) -> None:
    """Every mismatch is one line that opens with the plan's file, and the exit code is 2."""
    plan = tmp_path / "other.json"
    write_plan(plan, Plan(instance="chain", activations={"x": KEEP, "z": RECOMPUTE}))
    done = run_cli("simulate", chain, plan)
    assert done.code == 2
    assert done.out == ""
    first, second = done.err.splitlines()
    assert first.startswith(f"error: {plan}: activations['z']: must be an activation of instance 'chain'")
    assert second.strip().startswith(f"{plan}: activations['y']: is missing")
