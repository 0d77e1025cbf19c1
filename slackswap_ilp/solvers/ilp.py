"""x."""


def solve_ilp(problem, options, monitor): ...
