"""Instances whose numbers differ by orders of magnitude, where solvers' absolute tolerances could pass for proofs."""

import itertools
import random

import pytest

from slackswap_ilp.analysis import Graph, keep_all_peak, make_graph
from slackswap_ilp.errors import OptionError
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.pipeline import compare, solve
from slackswap_ilp.plan import Action
from slackswap_ilp.result import Status
from slackswap_ilp.solvers.evaluate import evaluate


def make_chain(
    seconds: list[float],
    sizes: list[int],
    *,
    bandwidth: float = 1.0,
    workspaces: tuple[int, int] = (0, 0),
    host_memory_bytes: int | None = None,
    recomputable: bool = True,
    half_duplex: bool = False,
) -> Instance:
    """Return a chain in which every layer reads the one before and saves what it makes."""
    forward_workspace_bytes, backward_workspace_bytes = workspaces
    return Instance(
        name="extreme",
        device=Device(
            name="toy",
            memory_bytes=2**55,
            swap_out_bytes_per_second=bandwidth,
            swap_in_bytes_per_second=bandwidth,
            host_memory_bytes=host_memory_bytes,
            duplex="half" if half_duplex else "full",
        ),
        layers=tuple(
            Layer(
                name=f"l{number}",
                forward_seconds=time,
                backward_seconds=time,
                inputs=(f"a{number - 1}",) if number else (),
                outputs=(Activation(name=f"a{number}", size_bytes=size),),
                saved=(f"a{number}",),
                forward_workspace_bytes=forward_workspace_bytes,
                backward_workspace_bytes=backward_workspace_bytes,
                recomputable=recomputable,
            )
            for number, (time, size) in enumerate(zip(seconds, sizes, strict=True))
        ),
    )


def find_least_seconds(graph: Graph, budget_bytes: int) -> float | None:
    """Return the least step time over all actions with scheduled transfers, None if none fits."""
    found = (
        evaluate(graph, actions, budget_bytes=budget_bytes)
        for actions in itertools.product(Action, repeat=graph.num_activations)
    )
    return min((one.step_seconds for one in found if one is not None and one.step_seconds is not None), default=None)


def assert_holds(seed: int) -> None:
    """Solve one extreme chain and hold the result against all actions."""
    rng = random.Random(seed)
    num_layers = rng.randint(3, 5)
    workspace = int(10 ** rng.uniform(6, 10))
    sizes = [rng.randint(5, 40) for _ in range(num_layers)]
    instance = make_chain(
        [rng.choice([1.0, 0.001, 3.0]) for _ in sizes],
        sizes,
        bandwidth=10 ** rng.uniform(-6, 1),
        workspaces=(rng.choice([0, workspace]), workspace),
        host_memory_bytes=rng.choice([None, sum(sizes) // 2]),
        recomputable=rng.random() < 0.6,
        half_duplex=rng.random() < 0.5,
    )
    graph = make_graph(instance)
    budget_bytes = keep_all_peak(graph) - rng.randint(1, sum(sizes) // 2)
    least_seconds = find_least_seconds(graph, budget_bytes)
    if least_seconds is None:
        return
    result = solve(instance, budget=budget_bytes, gap=0, time_limit_seconds=None)
    assert result.step_seconds is not None
    assert result.bound_seconds is not None
    assert result.bound_seconds <= least_seconds * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(60))
def test_solve_holds_where_workspaces_dwarf_activations(seed: int) -> None:
    """Workspaces of gigabytes beside activations of bytes, and links of any speed, make no bound false."""
    assert_holds(seed)


@pytest.mark.slow
def test_solve_holds_where_workspaces_dwarf_activations_on_many_graphs() -> None:
    """The claim of the test above, on 600 graphs."""
    for seed in range(1000, 1600):
        assert_holds(seed)


def test_solve_finds_the_plan_beside_a_workspace_of_gigabytes() -> None:
    """A swap that a slow link can make is found although the backward workspace is 10**8 times as large."""
    instance = make_chain(
        [0.001] * 3, [29, 7, 22], bandwidth=3.855, workspaces=(0, 4650293191), host_memory_bytes=29, recomputable=False
    )
    result = solve(instance, budget=4650293228)
    assert result.status is Status.OPTIMAL


def test_nothing_is_optimal_without_a_bound() -> None:
    """Where layers take no time, the ideal step proves nothing, and a plan that waits is not called optimal for it."""
    instance = make_chain([0.0] * 4, [10] * 4)
    result = solve(instance, solver="swap-all", budget="60%")
    assert result.step_seconds is not None
    assert result.step_seconds > 0
    assert (result.status, result.gap_ratio) == (Status.FEASIBLE, None)


def test_host_memory_counts_to_the_byte() -> None:
    """One byte less than two activations of gigabytes holds one of them, whatever a solver's tolerance says."""
    size = 4 * 10**9
    instance = make_chain([1.0] * 4, [size] * 4, bandwidth=1e9, host_memory_bytes=2 * size - 1, recomputable=False)
    with_room = solve(instance, budget=3 * size)
    assert (with_room.status, with_room.num_swapped) == (Status.OPTIMAL, 1)
    assert solve(instance, budget=2 * size + size // 2).plan is None


@pytest.mark.parametrize("budget", [True, 0.5, b"50%"])
def test_budget_of_a_wrong_type_is_refused(budget: object) -> None:
    """A budget is whole bytes, a text, or a `Budget`; anything else is an option's error."""
    with pytest.raises(OptionError, match="budget: must be whole bytes, a text such as"):
        solve(make_chain([1.0], [10]), budget=budget)  # type: ignore[arg-type]


def test_compare_refuses_a_bad_budget_before_it_solves() -> None:
    """No row is solved if a later one cannot be."""
    rows: list[object] = []
    with pytest.raises(OptionError, match="budget"):
        compare([make_chain([1.0] * 3, [10] * 3)], budgets=["60%", "-5"], solvers=["greedy"], on_result=rows.append)
    assert rows == []
