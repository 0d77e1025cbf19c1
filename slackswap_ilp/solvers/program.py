"""A linear or integer program, built row by row in PuLP."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pulp

Variable: TypeAlias = pulp.LpVariable
INTEGRALITY_TOLERANCE: Final = 1e-6
"""How far from a whole number an integer variable's value may be."""

Terms: TypeAlias = Iterable[tuple[pulp.LpVariable, float]]


@dataclass(slots=True)
class Program:
    """A program to minimise; units are those of `scale`, names those of docs/formulation.md.

    Attributes
    ----------
    name
        What it is, for people.
    problem
        The PuLP problem that holds it.
    integers
        The variables that must be whole numbers.
    """

    name: str
    problem: pulp.LpProblem = field(init=False)
    integers: list[pulp.LpVariable] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open an empty PuLP problem."""
        self.problem = pulp.LpProblem(self.name, pulp.LpMinimize)

    def variable(self, name: str, *, high: float | None = None) -> Variable:
        """Add a continuous variable from zero to `high`."""
        return self.problem.add_variable(name, 0.0, high)

    def binary(self, name: str) -> Variable:
        """Add a variable that is 0 or 1."""
        variable = self.problem.add_variable(name, 0.0, 1.0, pulp.LpInteger)
        self.integers.append(variable)
        return variable

    def fix_if_whole(self, variable: Variable, value: float) -> None:
        """Fix a binary variable at a value that is whole, within tolerance; leave it free otherwise."""
        whole = round(value)
        if abs(value - whole) <= INTEGRALITY_TOLERANCE:
            variable.lowBound = variable.upBound = float(whole)

    def at_most(self, name: str, terms: Terms, limit: float = 0.0) -> None:
        """Require the sum of variable x coefficient to be at most `limit`."""
        self._add(name, terms, pulp.LpConstraintLE, limit)

    def at_least(self, name: str, terms: Terms, limit: float = 0.0) -> None:
        """Require the sum of variable x coefficient to be at least `limit`."""
        self._add(name, terms, pulp.LpConstraintGE, limit)

    def equal(self, name: str, terms: Terms, value: float = 0.0) -> None:
        """Require the sum of variable x coefficient to be `value`."""
        self._add(name, terms, pulp.LpConstraintEQ, value)

    def minimise(self, terms: Terms) -> None:
        """Set what to minimise."""
        self.problem.setObjective(pulp.LpAffineExpression(_gather(terms)))

    def _add(self, name: str, terms: Terms, sense: int, limit: float) -> None:
        self.problem.addConstraint(pulp.LpConstraint(_gather(terms), sense, name, limit))


def _gather(terms: Terms) -> dict[pulp.LpVariable, float]:
    """Add up the coefficients of variables that stand in a row more than once."""
    row: dict[pulp.LpVariable, float] = {}
    for variable, coefficient in terms:
        row[variable] = row.get(variable, 0.0) + coefficient
    return row
