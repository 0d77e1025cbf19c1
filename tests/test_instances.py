"""The files of instances/: every malformed one is refused in the right words, every best plan is what it claims."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from benchmarks.best_known import format_best, read_best
from slackswap_ilp.errors import InstanceError, PlanError
from slackswap_ilp.files import format_instance, read_instance, read_plan
from slackswap_ilp.instance import Instance
from slackswap_ilp.simulator import simulate
from tests.oracle import best_by_enumeration, enumerate_scheduled, find_smallest_budget, replay

FOLDER: Final = Path(__file__).parent.parent / "instances"
MALFORMED: Final = sorted((FOLDER / "malformed").glob("*.json"))
MALFORMED_PLANS: Final = sorted((FOLDER / "malformed" / "plans").glob("*.json"))
BEST: Final = sorted(FOLDER.glob("*/*.best.json"))
INSTANCES: Final = sorted(
    path for path in FOLDER.glob("*/*.json") if path.parent.name != "malformed" and path not in BEST
)
MOST_PLANS: Final = 10**6

# Worked out by hand in the descriptions of the files: ideal, recompute, stall and step seconds; swapped; recomputed.
TINY: Final[Mapping[str, tuple[float, float, float, float, str, str]]] = {
    "little_host_memory": (41.0, 4.0, 0.0, 45.0, "a", "b"),
    "mixing_wins": (23.0, 2.0, 0.0, 25.0, "a", "b"),
    "must_stall": (21.0, 0.0, 5.0, 26.0, "a", ""),
    "recompute_chain": (15.0, 2.0, 0.0, 17.0, "", "ab"),
    "residual_branch": (22.0, 2.0, 0.0, 24.0, "x", "h"),
    "slow_link": (12.0, 1.0, 0.0, 13.0, "", "a"),
    "swap_for_free": (32.0, 0.0, 0.0, 32.0, "a", ""),
}
# Best step seconds if only swaps, or only recomputes, are allowed; None if nothing fits then.
ALONE: Final[Mapping[str, tuple[float | None, float | None]]] = {
    "mixing_wins": (32.0, 33.0),
    "must_stall": (26.0, 31.0),
    "recompute_chain": (None, 17.0),
    "swap_for_free": (32.0, 36.0),
}
INFEASIBLE: Final = "infeasible"
SMALLEST_BUDGET: Final = 15

# What the refusal of each file says: how its lines begin. JSON syntax errors are in the words of Python's parser,
# which differ between versions.
INSTANCE_MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "blank_file": ("must be JSON: is empty",),
    "boolean_bandwidth": ("device.swap_out_bytes_per_second: must be a number, got true",),
    "boolean_seconds": ("layers[0] ('embed').forward_seconds: must be a number, got true",),
    "boolean_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got true",),
    "boolean_version": ("version: must be 1, got true",),
    "budget_with_unit": ("budget_bytes: must be an integer, got '12GiB'",),
    "comment": ("must be JSON: ",),
    "cycle": ("layers[0] ('embed').inputs[0]: must be produced by an earlier layer, 'y' is an output of layers[1]",),
    "duplicate_activation_name": (
        "layers[1] ('matmul').outputs[0].name: must be unique, 'x' is already an output of layers[0]",
    ),
    "duplicate_input": ("layers[1] ('matmul').inputs[1]: must be listed once, got 'x' again",),
    "duplicate_key": ("'version' must stand once in an object, found it twice",),
    "duplicate_key_in_layer": ("'forward_seconds' must stand once in an object, found it twice",),
    "duplicate_layer_name": ("layers[1] ('embed').name: must be unique, layers[0] has the same name",),
    "duplicate_saved": ("layers[2] ('loss').saved[1]: must be listed once, got 'y' again",),
    "empty_activation_name": ("layers[0] ('embed').outputs[0].name: must not be empty, got ''",),
    "empty_file": ("must be JSON: is empty",),
    "empty_graph": ("layers: must not be empty, got []",),
    "empty_layer_name": ("layers[1] ('').name: must not be empty, got ''",),
    "empty_name": ("name: must not be empty, got ''",),
    "forward_reference": (
        "layers[1] ('matmul').inputs[0]: must be produced by an earlier layer, 'z' is an output of layers[2]",
    ),
    "four_graph_errors_at_once": (
        "layers[1] ('matmul').inputs[0]: must name an output of this instance, got unknown activation 'ex'",
        "layers[2] ('embed').name: must be unique, layers[0] has the same name",
        "layers[2] ('embed').saved[1]: must name an output of this instance, got unknown activation 'why'",
        "layers[2] ('embed').saved[2]: must be listed once, got 'x' again",
    ),
    "fractional_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got 4.5",),
    "fractional_version": ("version: must be 1, got 1.0",),
    "infinite_bandwidth": ("device.swap_out_bytes_per_second: must be a finite number, got Infinity",),
    "infinite_seconds": ("layers[0] ('embed').forward_seconds: must be a finite number, got Infinity",),
    "integral_float_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got 4.0",),
    "list_for_file": ("the file: must be an object, got []",),
    "list_for_provenance": ("provenance: must be an object, got []",),
    "list_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got [4]",),
    "minus_infinite_seconds": ("layers[0] ('embed').forward_seconds: must be a finite number, got -Infinity",),
    "missing_bandwidth": ("device.swap_in_bytes_per_second: is missing",),
    "missing_format": ("format: is missing",),
    "missing_layer_name": ("layers[1].name: is missing",),
    "missing_layers": ("layers: is missing",),
    "missing_name": ("name: is missing",),
    "missing_output_name": ("layers[0] ('embed').outputs[0].name: is missing",),
    "missing_seconds": ("layers[0] ('embed').forward_seconds: is missing",),
    "missing_size": ("layers[0] ('embed').outputs[0].size_bytes: is missing",),
    "missing_version": ("version: is missing",),
    "name_with_half_a_surrogate_pair": ("must be JSON: ",),
    "nan_bandwidth": ("device.swap_out_bytes_per_second: must be a finite number, got NaN",),
    "nan_in_provenance": ("provenance.measured[1]: must be a finite number, got NaN",),
    "nan_seconds": ("layers[0] ('embed').forward_seconds: must be a finite number, got NaN",),
    "nan_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got NaN",),
    "negative_bandwidth": ("device.swap_out_bytes_per_second: must be at least 1e-06, got -1.0",),
    "negative_gradient": ("layers[0] ('embed').outputs[0].gradient_bytes: must not be negative, got -1",),
    "negative_host_memory": ("device.host_memory_bytes: must not be negative, got -1",),
    "negative_latency": ("device.transfer_latency_seconds: must not be negative, got -1e-06",),
    "negative_seconds": ("layers[0] ('embed').forward_seconds: must not be negative, got -1.0",),
    "negative_size": ("layers[0] ('embed').outputs[0].size_bytes: must be positive, got -4",),
    "negative_static": ("static_bytes: must not be negative, got -1",),
    "negative_workspace": ("layers[0] ('embed').backward_workspace_bytes: must not be negative, got -1",),
    "nested_too_deeply": ("must be JSON: ",),
    "not_json": ("must be JSON: Expecting value at line 1, column 1",),
    "not_utf8": ("must be UTF-8 text: ",),
    "null_for_file": ("the file: must be an object, got null",),
    "null_layer": ("layers[2]: must be an object, got null",),
    "null_seconds": ("layers[0] ('embed').forward_seconds: must be a number, got null",),
    "null_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got null",),
    "number_for_description": ("description: must be a text, got 7",),
    "number_for_name": ("layers[1].name: must be a text, got 7",),
    "number_for_swappable": ("layers[0] ('embed').outputs[0].swappable: must be true or false, got 1",),
    "number_in_inputs": ("layers[1] ('matmul').inputs[0]: must be a text, got 0",),
    "object_for_layers": ("layers: must be a list, got {}",),
    "overflowing_seconds": ("layers[0] ('embed').forward_seconds: must be a finite number, got Infinity",),
    "overflowing_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got Infinity",),
    "provenance_too_deep": ("must be JSON: ",),
    "saved_from_later_layer": (
        "layers[0] ('embed').saved[0]: must be produced by this or an earlier layer, 'y' is an output of layers[1]",
    ),
    "seconds_beyond_limit": ("layers[0] ('embed').forward_seconds: must be at most 1000000000.0, got 10000000000.0",),
    "self_reading_layer": (
        "layers[1] ('matmul').inputs[0]: must be produced by an earlier layer, 'y' is an output of layers[1]",
    ),
    "seven_errors_at_once": (
        "device.memory_bytes: must be an integer, got '40GB'",
        "layers[0] ('embed').forward_seconds: must be a finite number, got NaN",
        "layers[0] ('embed').outputs[0].size_bytes: must be positive, got -1",
        "layers[1] ('matmul').forward_seconds: must be a finite number, got NaN",
        "layers[1] ('matmul').outputs[0].size_bytes: must be positive, got -1",
        "layers[2] ('loss').forward_seconds: must be a finite number, got NaN",
        "colour: is not a known field",
    ),
    "single_quotes": ("must be JSON: ",),
    "size_beyond_64_bits": (
        "layers[0] ('embed').outputs[0].size_bytes: must be at most 1152921504606846976, got 18446744073709551616",
    ),
    "size_beyond_limit": (
        "layers[0] ('embed').outputs[0].size_bytes: must be at most 1152921504606846976, got 1152921504606846977",
    ),
    "size_of_5000_digits": ("must be JSON: it has a number of too many digits",),
    "sizes_beyond_limit_together": (
        "layers: sizes and gradients must add up to at most 1152921504606846976 bytes, got 1152921504606846978",
    ),
    "text_for_device": ("device: must be an object, got 'a100-40gb'",),
    "text_for_inputs": ("layers[1] ('matmul').inputs: must be a list, got 'x'",),
    "text_for_recomputable": ("layers[0] ('embed').recomputable: must be true or false, got 'yes'",),
    "text_seconds": ("layers[0] ('embed').forward_seconds: must be a number, got '1.0'",),
    "text_size": ("layers[0] ('embed').outputs[0].size_bytes: must be an integer, got '4'",),
    "text_version": ("version: must be 1, got '1'",),
    "trailing_comma": ("must be JSON: ",),
    "trailing_text": ("must be JSON: ",),
    "truncated": ("must be JSON: ",),
    "unknown_duplex": ("device.duplex: must be 'full' or 'half', got 'both'",),
    "unknown_field": ("speed: is not a known field",),
    "unknown_field_in_device": ("device.bandwidth: is not a known field",),
    "unknown_field_in_layer": ("layers[0] ('embed').forward_ms: is not a known field",),
    "unknown_field_in_output": ("layers[0] ('embed').outputs[0].dtype: is not a known field",),
    "unknown_input": (
        "layers[1] ('matmul').inputs[0]: must name an output of this instance, got unknown activation 'ex'",
    ),
    "unknown_saved": (
        "layers[2] ('loss').saved[0]: must name an output of this instance, got unknown activation 'why'",
    ),
    "utf16": ("must be UTF-8 text: ",),
    "wrong_format": ("format: must be 'slackswap-instance', got 'slackswap-plan'",),
    "wrong_version": ("version: must be 1, got 2",),
    "vanishing_bandwidth": ("device.swap_out_bytes_per_second: must be at least 1e-06, got 1e-300",),
    "control_character_in_name": ("layers[0] ('em\\x1bbed').name: must not have control characters, got 'em\\x1bbed'",),
    "zero_bandwidth": ("device.swap_out_bytes_per_second: must be at least 1e-06, got 0.0",),
    "zero_budget": ("budget_bytes: must be positive, got 0",),
    "zero_device_memory": ("device.memory_bytes: must be positive, got 0",),
    "zero_size": ("layers[0] ('embed').outputs[0].size_bytes: must be positive, got 0",),
}
# The plans are for instances/tiny/residual_branch.json, these two for must_stall.json.
PLANS_FOR_MUST_STALL: Final = ("recompute_of_what_must_not_run_again", "swap_of_what_is_not_swappable")
PLAN_MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "action_in_upper_case": ("activations['h'].action: must be 'keep', 'swap' or 'recompute', got 'RECOMPUTE'",),
    "boolean_version": ("version: must be 1, got true",),
    "duplicate_activation": ("'g' must stand once in an object, found it twice",),
    "empty_activation_name": ("activations['']: must not be empty, got ''",),
    "empty_file": ("must be JSON: is empty",),
    "fetch_after_need": ("activations['x'].fetch_slot: must be before the slot that needs it (R2), got B2",),
    "fetch_at_need": ("activations['x'].fetch_slot: must be before the slot that needs it (R2), got R2",),
    "fetch_before_release": ("activations['x'].fetch_slot: must not be before its release slot (R4), got F5",),
    "fetches_out_of_order": (
        "activations['x'].fetch_slot: must not be before the fetch slot of 'y' (B5), which is needed first, got R5",
    ),
    "five_errors_at_once": (
        "activations['x'].release_slot: must be after its last forward read (F3), got F3",
        "activations['x'].fetch_slot: must be before the slot that needs it (R2), got B2",
        "activations['g'].action: must be 'keep' or 'recompute', nothing needs it in backward, got 'swap'",
        "activations['y'].release_slot: must be a slot of layers 0 to 5, got 'F9'",
        "activations['y'].fetch_slot: must be a slot of layers 0 to 5, got 'F9'",
    ),
    "fractional_budget": ("budget_bytes: must be an integer, got 12.5",),
    "list_for_activations": ('activations: must be an object, got ["x"]',),
    "list_for_file": ("the file: must be an object, got []",),
    "malformed_digest": ("instance_digest: must be 'sha256:' and 64 hexadecimal digits, got 'md5:0'",),
    "missing_action": ("activations['h'].action: is missing",),
    "missing_activation": ("activations['g']: is missing; a plan names every activation",),
    "missing_activations": ("activations: is missing",),
    "missing_fetch_slot": ("activations['x'].fetch_slot: is missing",),
    "missing_format": ("format: is missing",),
    "missing_instance": ("instance: is missing",),
    "missing_release_slot": ("activations['x'].release_slot: is missing",),
    "negative_budget": ("budget_bytes: must be positive, got -1",),
    "negative_slot": ("activations['x'].fetch_slot: must be a slot such as F12, R7 or B7, got 'R-4'",),
    "not_json": ("must be JSON: Expecting value at line 1, column 1",),
    "null_decision": ("activations['h']: must be an object, got null",),
    "null_slot": ("activations['x'].fetch_slot: must be a text, got null",),
    "number_for_action": ("activations['h'].action: must be 'keep', 'swap' or 'recompute', got 1",),
    "number_for_slot": ("activations['x'].fetch_slot: must be a text, got 12",),
    "recompute_of_what_must_not_run_again": (
        "activations['b'].action: must be 'keep' or 'swap', backward needs it and layers[1] ('layer1') is not",
    ),
    "release_at_last_forward_read": (
        "activations['x'].release_slot: must be after its last forward read (F3), got F3",
    ),
    "release_before_production": ("activations['x'].release_slot: must be after its last forward read (F3), got F0",),
    "slot_in_lower_case": ("activations['x'].fetch_slot: must be a slot such as F12, R7 or B7, got 'r4'",),
    "slot_of_no_layer": ("activations['x'].fetch_slot: must be a slot of layers 0 to 5, got 'R6'",),
    "slot_of_unknown_kind": ("activations['x'].fetch_slot: must be a slot such as F12, R7 or B7, got 'C4'",),
    "slot_with_leading_zero": ("activations['x'].fetch_slot: must be a slot such as F12, R7 or B7, got 'R04'",),
    "slot_without_number": ("activations['x'].fetch_slot: must be a slot such as F12, R7 or B7, got 'R'",),
    "slots_for_keep": ("activations['g'].release_slot: is not a known field",),
    "swap_of_what_is_not_swappable": (
        "activations['b'].action: must be 'keep' or 'recompute', the activation is not swappable, got 'swap'",
    ),
    "swap_of_what_nothing_needs": (
        "activations['g'].action: must be 'keep' or 'recompute', nothing needs it in backward, got 'swap'",
    ),
    "text_for_decision": ("activations['h']: must be an object, got 'recompute'",),
    "truncated": ("must be JSON: ",),
    "unknown_action": ("activations['h'].action: must be 'keep', 'swap' or 'recompute', got 'offload'",),
    "unknown_activation": (
        "activations['q']: must be an activation of instance 'residual_branch', got an unknown name",
    ),
    "unknown_field": ("solver: is not a known field",),
    "unknown_field_in_swap": ("activations['x'].stream: is not a known field",),
    "wrong_digest": ("instance_digest: must be sha256:",),
    "wrong_format": ("format: must be 'slackswap-plan', got 'slackswap-instance'",),
    "wrong_instance": ("instance: must be 'residual_branch', got 'must_stall': the plan is for another instance",),
    "wrong_version": ("version: must be 1, got 2",),
}


def instance_path(best_path: Path) -> Path:
    """Return the instance that a best-known plan stands beside."""
    return best_path.with_name(best_path.name.replace(".best.json", ".json"))


def read_tiny(name: str) -> Instance:
    """Read an instance of instances/tiny."""
    return read_instance(FOLDER / "tiny" / f"{name}.json")


def budget_of(instance: Instance) -> int:
    """Return the budget that an instance file sets."""
    assert instance.budget_bytes is not None
    return instance.budget_bytes


def match_lines(path: Path, beginnings: tuple[str, ...]) -> str:
    """Return the pattern of a message of exactly these lines, with or without the file before each."""
    lines = (f"({re.escape(str(path))}: )?{re.escape(beginning)}[^\n]*" for beginning in beginnings)
    return r"\A" + "\n".join(lines) + r"\Z"


def name_of(path: Path) -> str:
    """Return the test id of a file."""
    return path.name.removesuffix(".json")


def test_malformed_files_and_messages_are_one_to_one() -> None:
    """Every malformed file has its message here, and every message its file."""
    assert {path.stem for path in MALFORMED} == set(INSTANCE_MESSAGES)
    assert {path.stem for path in MALFORMED_PLANS} == set(PLAN_MESSAGES)


@pytest.mark.parametrize("path", MALFORMED, ids=name_of)
def test_read_instance_refuses_malformed_file(path: Path) -> None:
    """A malformed instance is refused; the message has the file, the field, the value and what is allowed."""
    with pytest.raises(InstanceError, match=match_lines(path, INSTANCE_MESSAGES[path.stem])) as caught:
        read_instance(path)
    assert all(line.startswith(f"{path}: ") for line in str(caught.value).splitlines())


@pytest.mark.parametrize("path", MALFORMED_PLANS, ids=name_of)
def test_malformed_plan_is_refused(path: Path) -> None:
    """A malformed plan is refused when it is read, one that breaks the semantics when it is simulated."""
    instance = read_tiny("must_stall" if path.stem in PLANS_FOR_MUST_STALL else "residual_branch")
    with pytest.raises(PlanError, match=match_lines(path, PLAN_MESSAGES[path.stem])):
        simulate(instance, read_plan(path))


@pytest.mark.parametrize("path", INSTANCES, ids=name_of)
def test_instance_file_is_canonical(path: Path) -> None:
    """Every instance is named like its file, says what it is, sets a budget, and is written in canonical form."""
    instance = read_instance(path)
    assert path.read_text(encoding="utf-8") == format_instance(instance)
    assert instance.name == path.stem
    assert instance.description
    assert instance.provenance
    assert instance.budget_bytes is not None


@pytest.mark.parametrize("path", BEST, ids=name_of)
def test_best_file_is_canonical(path: Path) -> None:
    """Every best-known plan stands beside its instance, is for its budget, and is written in canonical form."""
    best, instance = read_best(path), read_instance(instance_path(path))
    assert path.read_text(encoding="utf-8") == format_best(best)
    assert (best.instance, best.plan.instance) == (instance.name, instance.name)
    assert best.plan.instance_digest == instance.digest
    assert best.budget_bytes == best.plan.budget_bytes == instance.budget_bytes


@pytest.mark.parametrize("path", BEST, ids=name_of)
def test_best_plan_takes_what_it_claims(path: Path) -> None:
    """Every best-known plan fits its budget, takes exactly the claimed time, and no less than the claimed bound."""
    best, instance = read_best(path), read_instance(instance_path(path))
    simulation = simulate(instance, best.plan)
    assert simulation.fits(best.budget_bytes)
    assert simulation.step_seconds == best.step_seconds
    assert best.bound_seconds <= best.step_seconds
    assert best.bound_seconds >= simulation.ideal_seconds * (1 - 1e-12)


def test_every_solvable_instance_has_a_best_plan() -> None:
    """A best-known plan stands beside every instance but the one that no plan fits."""
    solvable = {path for path in INSTANCES if path.stem != INFEASIBLE}
    assert {instance_path(path) for path in BEST} == solvable
    assert {path.stem for path in INSTANCES if path.parent.name == "tiny"} == {*TINY, INFEASIBLE}


@pytest.mark.parametrize("name", TINY)
def test_tiny_best_plan_is_the_one_worked_out_by_hand(name: str) -> None:
    """The best plan of a tiny instance swaps, recomputes and waits as its description works out, optimally."""
    ideal, recompute, stall, step, swapped, recomputed = TINY[name]
    instance, best = read_tiny(name), read_best(FOLDER / "tiny" / f"{name}.best.json")
    simulation = simulate(instance, best.plan)
    assert 2 <= len(instance.layers) <= 6
    assert simulation.ideal_seconds == ideal
    assert (simulation.recompute_seconds, simulation.stall_seconds) == (recompute, stall)
    assert (best.bound_seconds, best.step_seconds) == (step, step)
    actions = {name: decision.action for name, decision in best.plan.activations.items()}
    assert [name for name, action in actions.items() if action == "swap"] == list(swapped)
    assert [name for name, action in actions.items() if action == "recompute"] == list(recomputed)


@pytest.mark.parametrize("name", TINY)
def test_tiny_best_plan_is_best_of_all(name: str) -> None:
    """No plan of a tiny instance that fits is faster than its best plan, and none fits into less than the budget."""
    instance = read_tiny(name)
    best = best_by_enumeration(instance, budget_of(instance), MOST_PLANS)
    assert best is not None
    assert best.step_seconds == TINY[name][3]
    assert find_smallest_budget(instance) == instance.budget_bytes


@pytest.mark.parametrize("name", ALONE)
def test_tiny_swap_or_recompute_alone(name: str) -> None:
    """Swaps alone and recomputes alone reach what the description says, and no less."""
    instance = read_tiny(name)
    seconds: dict[str, list[float]] = {"swap": [], "recompute": []}
    for plan in enumerate_scheduled(instance, budget_of(instance)):
        actions = {decision.action for decision in plan.activations.values()} - {"keep"}
        if len(actions) == 1:
            seconds[actions.pop()].append(replay(instance, plan).step_seconds)
    assert (min(seconds["swap"], default=None), min(seconds["recompute"], default=None)) == ALONE[name]


def test_tiny_infeasible_budget_is_one_byte_too_small() -> None:
    """No plan fits the infeasible budget, and with one more byte there is one."""
    instance = read_tiny(INFEASIBLE)
    assert budget_of(instance) == SMALLEST_BUDGET - 1
    assert find_smallest_budget(instance) == SMALLEST_BUDGET
    assert best_by_enumeration(instance, SMALLEST_BUDGET - 1, MOST_PLANS) is None
    assert best_by_enumeration(instance, SMALLEST_BUDGET, MOST_PLANS) is not None
