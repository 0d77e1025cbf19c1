"""The names that the package promises."""

import importlib.metadata
import importlib.resources

import slackswap_ilp

PUBLIC_NAMES = (
    "Activation",
    "Budget",
    "Device",
    "InputError",
    "Instance",
    "InstanceError",
    "Keep",
    "Layer",
    "OptionError",
    "Plan",
    "PlanError",
    "Recompute",
    "Result",
    "Simulation",
    "SlackSwapError",
    "SolverError",
    "Status",
    "Swap",
    "compare",
    "generate",
    "read_instance",
    "read_plan",
    "simulate",
    "solve",
    "write_instance",
    "write_plan",
)


def test_public_names_are_those_promised() -> None:
    """No public name comes or goes unnoticed."""
    assert tuple(slackswap_ilp.__all__) == PUBLIC_NAMES


def test_public_names_exist_and_are_documented() -> None:
    """Each public name is there and has a docstring."""
    for name in PUBLIC_NAMES:
        assert getattr(slackswap_ilp, name).__doc__, name


def test_package_is_marked_as_typed() -> None:
    """Type checkers find the marker file in the package."""
    assert importlib.resources.files(slackswap_ilp).joinpath("py.typed").is_file()


def test_command_is_installed() -> None:
    """The distribution installs the command ``slackswap``, which calls the package's command line."""
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="slackswap")
    assert command.value == "slackswap_ilp.cli:main"
