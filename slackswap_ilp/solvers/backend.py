"""Solving a program with HiGHS or CBC: the only place that reads the solvers' own words.

PuLP's status words are not used: a run that its time limit or gap stopped reads "Optimal" there. What counts is the
solver's own bound and the values it leaves.
"""

import ctypes
import functools
import importlib
import math
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pulp

from slackswap_ilp.errors import SolverError
from slackswap_ilp.solvers.program import Program, Variable

try:
    import highspy
except ImportError:  # a broken installation: CBC, and what needs no solver, still work
    highspy = None  # type: ignore[assignment]

BOUND_MARGIN: Final = 1e-7
"""Share by which a proven bound is lowered, because solvers prove it to a tolerance only."""

BOUND_TOLERANCE: Final = 1e-6
"""Units of a program by which a proven bound is lowered besides: solvers' tolerances are absolute."""

_POLL_SECONDS: Final = 0.05
_LEAST_SECONDS: Final = 0.01
_GRACE_SECONDS: Final = 2.0
_CBC_DIGITS: Final = 1e-5
"""Relative error of the numbers in CBC's log, which have six digits."""


class Outcome(StrEnum):
    """How a run of a solver ended."""

    SOLVED = "solved"
    """To the gap asked for."""
    STOPPED = "stopped"
    """By a limit or an interruption; there may be values and a bound."""
    INFEASIBLE = "infeasible"
    """The program has no solution."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver says of a program.

    Attributes
    ----------
    objective
        Value of the best solution found, None if none was.
    bound
        A value that no solution is below, None if none is known.
    values
        Value by variable of the best solution; empty if none was found.
    """

    outcome: Outcome
    objective: float | None
    bound: float | None
    values: Mapping[Variable, float] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends, beside success.

    Attributes
    ----------
    gap
        Absolute gap between objective and bound that counts as solved, in the program's unit.
    deadline
        Reading of `time.monotonic` at which it stops, None for no limit.
    is_cancelled
        Asked again and again during the run; True stops it.
    """

    gap: float = 0.0
    deadline: float | None = None
    is_cancelled: Callable[[], bool] = bool

    def remaining_seconds(self) -> float | None:
        """Return what is left until the deadline, None for no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def is_overdue(self) -> bool:
        """Whether the deadline has passed by more than a solver may need to wind up."""
        return self.deadline is not None and time.monotonic() > self.deadline + _GRACE_SECONDS


Progress = Callable[[float | None, float | None], None]
"""Called with objective and bound so far whenever the solver tells."""


def solve_program(
    program: Program,
    *,
    backend: str,
    limits: Limits,
    relax: bool = False,
    start: Mapping[Variable, float] | None = None,
    on_progress: Progress | None = None,
    presolve: bool = True,
    max_nodes: int | None = None,
) -> Answer:
    """Minimise a program.

    Parameters
    ----------
    backend
        ``"highs"`` or ``"cbc"``.
    relax
        Whether to let integer variables take any value in their range.
    limits
        When to end, beside success.
    start
        Values of a known solution to start from (HiGHS only; CBC runs without it).
    on_progress
        Called, in the caller's thread, with objective and bound whenever they change (HiGHS only).
    presolve
        Whether the solver may simplify the program first. HiGHS 1.16's presolve of integer programs was seen to cut
        off solutions: where a proof counts, it has to be off.
    max_nodes
        How many nodes the search for whole solutions may open; None for any number.

    Raises
    ------
    SolverError
        If the solver is missing or fails.
    """
    if backend == "highs":
        options: dict[str, Any] = {} if presolve else {"presolve": "off", "mip_allow_restart": False}
        if max_nodes is not None:
            options["mip_max_nodes"] = max_nodes
        return _solve_with_highs(program, limits, options, relax=relax, start=start, on_progress=on_progress)
    if backend == "cbc":
        switches = [] if presolve else ["-presolve", "off", "-preprocess", "off"]
        if max_nodes is not None:
            switches += ["-maxNodes", str(max_nodes)]
        return _solve_with_cbc(program, limits, switches, relax=relax)
    raise SolverError(f"backend: must be 'highs' or 'cbc', got {backend!r}")


@functools.cache
def _print_banner_unseen() -> None:
    """Let HiGHS print its banner, which no option stops, to nowhere, so that stdout stays the caller's.

    For that moment, once in a process, all of the process's standard output goes nowhere.
    """
    flush = ctypes.CDLL(None).fflush
    flush(None)
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        model = highspy.Highs()
        model.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS takes it by position only
        model.addVar(0.0, 1.0)
        model.run()
        flush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _solve_with_highs(
    program: Program,
    limits: Limits,
    options: Mapping[str, Any],
    *,
    relax: bool,
    start: Mapping[Variable, float] | None,
    on_progress: Progress | None,
) -> Answer:
    if highspy is None:
        raise SolverError("HiGHS is missing: install it with  pip install highspy")
    _print_banner_unseen()
    problem = program.problem
    solver = pulp.HiGHS(
        mip=not relax,
        msg=False,
        gapRel=0.0,
        gapAbs=limits.gap,
        threads=1,
        random_seed=0,
        **options,
    )
    solver.createAndConfigureSolver(problem)
    solver.buildSolverModel(problem)
    model = problem.solverModel
    variables = problem.variables()
    if start is not None and not relax:
        solution = highspy.HighsSolution()
        solution.col_value = [start.get(variable, 0.0) for variable in variables]
        model.setSolution(solution)
    seconds = limits.remaining_seconds()
    if seconds is not None:
        model.setOptionValue("time_limit", seconds)
    _run_highs(model, limits, on_progress if not relax else None)
    return _read_highs(model, variables, is_integer=bool(program.integers) and not relax)


def _run_highs(model: Any, limits: Limits, on_progress: Progress | None) -> None:
    """Run HiGHS in a thread of its own, so that Ctrl-C and cancellation reach it."""
    stop = threading.Event()
    told: list[tuple[float | None, float | None]] = [(None, None)]

    def react(event: Any) -> None:
        if stop.is_set():
            event.interrupt()
        if event.data_out is not None:
            told[0] = _finite(event.data_out.mip_primal_bound), _finite(event.data_out.mip_dual_bound)

    def interrupt(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    model.cbMipInterrupt.subscribe(react)
    model.cbSimplexInterrupt.subscribe(interrupt)
    model.cbIpmInterrupt.subscribe(interrupt)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            if model.run() == highspy.HighsStatus.kError:
                failures.append(SolverError("HiGHS reported an error"))
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=work, name="highs", daemon=True)
    thread.start()
    passed_on = told[0]
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            if limits.is_cancelled():
                stop.set()
            if on_progress is not None and told[0] != passed_on:
                passed_on = told[0]
                on_progress(*passed_on)
    except BaseException:
        stop.set()
        thread.join(2.0)
        raise
    if failures:
        raise SolverError(f"HiGHS failed: {failures[0]}") from failures[0]


def _read_highs(model: Any, variables: list[Variable], *, is_integer: bool) -> Answer:
    """Translate what HiGHS says."""
    status = highspy.HighsModelStatus
    said = model.getModelStatus()
    if said in (status.kInfeasible, status.kUnboundedOrInfeasible):
        return Answer(Outcome.INFEASIBLE, None, None, {})
    info = model.getInfo()
    has_solution = info.primal_solution_status == 2
    is_solved = said in (status.kOptimal, status.kObjectiveBound, status.kObjectiveTarget)
    stopped = (status.kTimeLimit, status.kInterrupt, status.kIterationLimit, status.kSolutionLimit)
    if not is_solved and said not in stopped:
        raise SolverError(f"HiGHS gave up: {model.modelStatusToString(said)}")
    objective = info.objective_function_value if has_solution else None
    bound = _finite(info.mip_dual_bound) if is_integer else (objective if is_solved else None)
    values: dict[Variable, float] = {}
    if has_solution:
        values = dict(zip(variables, model.getSolution().col_value, strict=True))
    return Answer(Outcome.SOLVED if is_solved else Outcome.STOPPED, objective, bound, values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) < 1e30 else None


def _solve_with_cbc(program: Program, limits: Limits, switches: list[str], *, relax: bool) -> Answer:
    with tempfile.TemporaryDirectory(prefix="slackswap-") as folder:
        model, solution = str(Path(folder) / "program.mps"), Path(folder) / "program.sol"
        variables, names, rows, _ = program.problem.writeMPS(model, rename=1, mip=not relax)
        command = [_find_cbc(), model, "-randomSeed", "1", "-randomCbcSeed", "1", *switches]
        seconds = limits.remaining_seconds()
        if seconds is not None:
            command += ["-timeMode", "elapsed", "-sec", f"{max(seconds, _LEAST_SECONDS):.3f}"]
        command += ["-initialSolve"] if relax else ["-allow", repr(limits.gap), "-ratio", "0", "-solve"]
        command += ["-printingOptions", "all", "-solution", str(solution)]
        log = _run_cbc(command, limits)
        if log is None or not solution.exists():
            return Answer(Outcome.STOPPED, None, None, {})
        verdict = solution.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        answer = pulp.COIN_CMD(msg=False).readsol_MPS(str(solution), program.problem, variables, names, rows)
        return _read_cbc(
            verdict, log, dict(zip(variables, (answer[1][v.name] for v in variables), strict=True)), relax=relax
        )


def _run_cbc(command: list[str], limits: Limits) -> str | None:
    """Run CBC to its end and return its log, or None if it was cancelled or did not keep its time."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that comes with PuLP, on files of ours
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise SolverError(f"CBC cannot be run: {error}") from error
    with process:
        try:
            while True:
                try:
                    log, _ = process.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if limits.is_cancelled() or limits.is_overdue():
                        process.kill()
                        return None
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise SolverError(f"CBC failed with exit code {process.returncode}: {log[-200:]!r}")
    return log.decode("utf-8", errors="replace")


def _find_cbc() -> str:
    """Return the path of the CBC program that comes with PuLP."""
    try:
        cbcbox = importlib.import_module("cbcbox")
    except ImportError as error:
        raise SolverError("CBC is missing: install it with  pip install 'pulp[cbc]'") from error
    return str(cbcbox.cbc_bin_path())


def _read_cbc(verdict: str, log: str, values: dict[Variable, float], *, relax: bool) -> Answer:
    """Translate the first line of CBC's solution file and what its log says of the bound."""
    if verdict.startswith(("Infeasible", "Integer infeasible")) or "infeasibility proved" in log:
        return Answer(Outcome.INFEASIBLE, None, None, {})
    objective = _find_number(verdict, "objective value")
    if verdict.startswith("Optimal"):
        found = objective if relax or "Lower bound:" not in log else _find_bound(log)
        bound = found if objective is None or found is None else min(found, objective)
        return Answer(Outcome.SOLVED, objective, bound, values)
    has_solution = "Objective value:" in log and "No feasible solution found" not in log
    if not verdict.startswith("Stopped") or not has_solution or relax:
        return Answer(Outcome.STOPPED, None, None if relax else _find_bound(log), {})
    return Answer(Outcome.STOPPED, objective, _find_bound(log), values)


def _find_bound(log: str) -> float | None:
    """Return the bound that CBC's log ends with, less what its six digits may have rounded up."""
    bound = _find_number(log, "Lower bound:")
    return None if bound is None else bound - _CBC_DIGITS * abs(bound)


def _find_number(text: str, label: str) -> float | None:
    """Return the number after the last `label` in a text."""
    found = re.findall(rf"{re.escape(label)}\s*(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)", text)
    return _finite(float(found[-1])) if found else None
