"""The solvers: each takes an instance and a budget and claims a plan and a bound."""
