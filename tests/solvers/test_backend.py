"""HiGHS and CBC behind one function: same answers, honest endings, nothing on stdout."""

import random
import subprocess
import sys
import threading
import time

import pytest

from slackswap_ilp.errors import SolverError
from slackswap_ilp.solvers import backend as backend_module
from slackswap_ilp.solvers.backend import Answer, Limits, Outcome, solve_program
from slackswap_ilp.solvers.program import Program, Variable

BACKENDS = ("highs", "cbc")


def make_knapsack(seed: int, num_items: int, *, num_rows: int = 1) -> tuple[Program, list[list[int]], list[int]]:
    """Return a program that covers demands at least cost, its weights (the last row is the cost) and its demands."""
    rng = random.Random(seed)
    program = Program("cover")
    take = [program.binary(f"take[{item}]") for item in range(num_items)]
    weights = [[rng.randint(1, 30) for _ in take] for _ in range(num_rows + 1)]
    demands = [sum(row) * 6 // 13 for row in weights[:-1]]
    for number, (row, demand) in enumerate(zip(weights, demands, strict=False)):
        program.at_least(f"demand[{number}]", zip(take, row, strict=True), demand)
    program.minimise(zip(take, weights[-1], strict=True))
    return program, weights, demands


def find_cheapest(weights: list[list[int]], demands: list[int]) -> int:
    """Return the least cost by trying every subset."""
    num_items = len(weights[0])
    costs = []
    for subset in range(1 << num_items):
        chosen = [item for item in range(num_items) if subset >> item & 1]
        if all(sum(row[item] for item in chosen) >= demand for row, demand in zip(weights, demands, strict=False)):
            costs.append(sum(weights[-1][item] for item in chosen))
    return min(costs)


def make_hard() -> Program:
    """Return a program that no solver finishes in the time a test has."""
    return make_knapsack(1, 120, num_rows=30)[0]


def make_small(limit: float) -> tuple[Program, Variable]:
    """Return: minimise -x - 2 y over x <= 1.5, x + y <= 2 + y / 2, whole y <= 3, x + y >= `limit`."""
    program = Program("small")
    x, y = program.variable("x", high=1.5), program.variable("y")
    program.at_most("both", ((x, 1), (y, 1), (y, -0.5)), 2)
    program.at_least("enough", ((x, 1), (y, 1)), limit)
    program.minimise(((x, -1), (y, -2)))
    return program, y


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_finds_the_cheapest_cover(backend: str) -> None:
    """The optimum of a small integer program is that of trying every subset, the bound meets it, values are whole."""
    for seed in range(4):
        program, weights, demands = make_knapsack(seed, 10, num_rows=2)
        answer = solve_program(program, backend=backend, limits=Limits())
        cheapest = find_cheapest(weights, demands)
        assert answer.outcome is Outcome.SOLVED
        assert answer.objective == pytest.approx(cheapest)
        assert answer.bound is not None
        assert answer.bound == pytest.approx(cheapest, rel=1e-5)
        assert answer.bound <= cheapest + 1e-6
        assert all(abs(value - round(value)) <= 1e-6 for value in answer.values.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_relaxes(backend: str) -> None:
    """Relaxed, a program's optimum is that of its linear relaxation: one item of 2 taken to two thirds of 3."""
    program = Program("relaxed")
    item = program.binary("item")
    program.at_least("demand", [(item, 3)], 2)
    program.minimise([(item, 1)])
    answer = solve_program(program, backend=backend, limits=Limits(), relax=True)
    assert answer.outcome is Outcome.SOLVED
    assert answer.objective == pytest.approx(2 / 3)
    assert answer.bound == pytest.approx(2 / 3)
    assert answer.values[item] == pytest.approx(2 / 3)
    assert solve_program(program, backend=backend, limits=Limits()).objective == pytest.approx(1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("relax", [False, True])
def test_backend_solves_linear_programs(backend: str, *, relax: bool) -> None:
    """A program without integers is solved: y = 4 by x = 0 costs -8, which x = 1.5, y = 1 at -3.5 does not."""
    program, y = make_small(1.0)
    answer = solve_program(program, backend=backend, limits=Limits(), relax=relax)
    assert answer.outcome is Outcome.SOLVED
    assert answer.objective == pytest.approx(-8)
    assert answer.bound == pytest.approx(-8)
    assert answer.values[y] == pytest.approx(4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("relax", [False, True])
def test_backend_tells_infeasible_programs(backend: str, *, relax: bool) -> None:
    """No solution, no values and no bound for a program that has none, with and without integers."""
    program, _ = make_small(100.0)
    covering, _, _ = make_knapsack(1, 6)
    take = covering.integers
    covering.at_least("too much", ((variable, 1) for variable in take), len(take) + 1)
    for infeasible in (program, covering):
        answer = solve_program(infeasible, backend=backend, limits=Limits(), relax=relax)
        assert answer == Answer(Outcome.INFEASIBLE, None, None, {})


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_infeasible_by_integrality_only(backend: str) -> None:
    """2 x + 2 y = 3 has a relaxed solution and no whole one."""
    program = Program("odd")
    x, y = program.binary("x"), program.binary("y")
    program.equal("odd", ((x, 2), (y, 2)), 3)
    program.minimise([(x, 1)])
    assert solve_program(program, backend=backend, limits=Limits()).outcome is Outcome.INFEASIBLE
    assert solve_program(program, backend=backend, limits=Limits(), relax=True).outcome is Outcome.SOLVED


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_stopped_by_its_deadline(backend: str) -> None:
    """A run that its deadline stops is not called solved; objective and bound, where there are any, are in order."""
    answer = solve_program(make_hard(), backend=backend, limits=Limits(deadline=time.monotonic() + 0.7))
    assert answer.outcome is Outcome.STOPPED
    assert (answer.objective is None) == (not answer.values)
    if answer.objective is not None and answer.bound is not None:
        assert answer.bound < answer.objective


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("relax", [False, True])
def test_backend_without_any_time(backend: str, *, relax: bool) -> None:
    """A deadline in the past stops a run at once, or lets it finish what is trivial; it proves no infeasibility."""
    program, weights, demands = make_knapsack(3, 12, num_rows=2)
    answer = solve_program(program, backend=backend, limits=Limits(deadline=time.monotonic() - 1), relax=relax)
    cheapest = find_cheapest(weights, demands)
    assert answer.outcome is not Outcome.INFEASIBLE
    if answer.bound is not None:
        assert answer.bound <= cheapest + 1e-6
    if answer.objective is not None and not relax:
        assert answer.objective >= cheapest - 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_stops_when_cancelled(backend: str) -> None:
    """Cancelled, a run that would take hours comes back, and is not called solved or infeasible."""
    begun = threading.Event()

    def is_cancelled() -> bool:
        begun.set()
        return True

    answer = solve_program(make_hard(), backend=backend, limits=Limits(is_cancelled=is_cancelled))
    assert begun.is_set()
    assert answer.outcome is Outcome.STOPPED


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_gap_is_absolute(backend: str) -> None:
    """With a gap, solved means: objective and bound are within it, in the program's unit."""
    program, weights, demands = make_knapsack(5, 14, num_rows=3)
    answer = solve_program(program, backend=backend, limits=Limits(gap=8.0))
    assert answer.outcome is Outcome.SOLVED
    assert answer.objective is not None
    assert answer.bound is not None
    assert answer.objective - answer.bound <= 8.0 + 1e-3
    assert answer.bound <= find_cheapest(weights, demands) + 1e-6 <= answer.objective + 2e-6


def test_backend_start_is_no_worse_than_itself() -> None:
    """HiGHS, given a solution and stopped at once, answers with one that is no worse."""
    program, weights, _ = make_knapsack(7, 60, num_rows=10)
    everything = dict.fromkeys(program.integers, 1.0)
    answer = solve_program(program, backend="highs", limits=Limits(is_cancelled=lambda: True), start=everything)
    assert answer.objective is None or answer.objective <= sum(weights[-1]) + 1e-6


def test_backend_reports_progress() -> None:
    """HiGHS tells objectives that fall and bounds that rise while it runs."""
    seen: list[tuple[float | None, float | None]] = []
    solve_program(
        make_hard(),
        backend="highs",
        limits=Limits(deadline=time.monotonic() + 0.7),
        on_progress=lambda objective, bound: seen.append((objective, bound)),
    )
    bounds = [bound for _, bound in seen if bound is not None]
    objectives = [objective for objective, _ in seen if objective is not None]
    assert bounds == sorted(bounds)
    assert objectives == sorted(objectives, reverse=True)
    assert objectives


def test_backend_refuses_unknown_names() -> None:
    """An unknown back end is refused by name."""
    with pytest.raises(SolverError, match="must be 'highs' or 'cbc', got 'gurobi'"):
        solve_program(make_small(1.0)[0], backend="gurobi", limits=Limits())


def test_backend_says_how_to_install_cbc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CBC the message says what to install; no other solver takes its place."""
    monkeypatch.setitem(sys.modules, "cbcbox", None)
    with pytest.raises(SolverError, match=r"CBC is missing: install it with .*pulp\[cbc\]"):
        solve_program(make_small(1.0)[0], backend="cbc", limits=Limits())


def test_backend_reports_a_failing_cbc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CBC that cannot be run is a failure of the solver, never an answer."""
    monkeypatch.setattr(backend_module, "_find_cbc", lambda: "/nowhere/cbc")
    with pytest.raises(SolverError, match="CBC"):
        solve_program(make_small(1.0)[0], backend="cbc", limits=Limits())


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_prints_nothing(backend: str) -> None:
    """Nothing reaches the process's stdout or stderr, not even HiGHS's banner, which C code prints."""
    script = f"""
from slackswap_ilp.solvers.backend import Limits, solve_program
from slackswap_ilp.solvers.program import Program
program = Program("p")
x = program.binary("x")
program.at_least("row", [(x, 3)], 2)
program.minimise([(x, 1)])
for relax in (True, False):
    answer = solve_program(program, backend={backend!r}, limits=Limits(), relax=relax)
    assert answer.objective is not None
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_backend_without_highs_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing HiGHS is a solver's error that names the package, not a Python traceback."""
    monkeypatch.setattr(backend_module, "highspy", None)
    program = Program("missing")
    program.minimise([(program.binary("item"), 1)])
    with pytest.raises(SolverError, match="HiGHS is missing: install it with  pip install highspy"):
        solve_program(program, backend="highs", limits=Limits())
