"""The plan: what its records take and refuse, apart from any instance."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from slackswap_ilp.errors import PlanError
from slackswap_ilp.files import format_plan, parse_plan
from slackswap_ilp.plan import KEEP, RECOMPUTE, Action, Keep, Plan, Recompute, Swap

SWAP = Swap(release_slot="F2", fetch_slot="R1")
DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_decisions_carry_their_action() -> None:
    """Every decision has the name of its action, and the three actions are all there are."""
    assert [decision.action for decision in (KEEP, SWAP, RECOMPUTE)] == [action.value for action in Action]


def test_decisions_are_equal_by_value() -> None:
    """Two decisions with the same fields are the same decision, whoever made them."""
    assert Keep() == KEEP
    assert Recompute() == RECOMPUTE
    assert Swap(release_slot="F2", fetch_slot="R1") == SWAP
    assert Swap(release_slot="F2", fetch_slot="B2") != SWAP


def test_plan_keeps_the_order_of_activations() -> None:
    """The activations of a plan stay in the order they were given, in files too."""
    activations: dict[str, Any] = {"z": KEEP, "a": SWAP, "m": RECOMPUTE}
    plan = Plan(instance="net", activations=activations)
    assert list(plan.activations) == list(parse_plan(format_plan(plan)).activations) == ["z", "a", "m"]


def test_plan_of_an_instance_without_activations_is_empty() -> None:
    """A plan for an instance without activations is legal, and so is its file."""
    plan = Plan(instance="net", activations={})
    assert parse_plan(format_plan(plan)) == plan


@pytest.mark.parametrize("record", [KEEP, RECOMPUTE, SWAP])
def test_decisions_are_frozen(record: BaseModel) -> None:
    """No field of a decision can be set."""
    with pytest.raises(ValidationError, match="frozen"):
        record.action = "keep"  # type: ignore[attr-defined]


def test_plan_is_frozen() -> None:
    """No field of a plan can be set."""
    plan = Plan(instance="net", activations={})
    with pytest.raises(ValidationError, match="frozen"):
        plan.instance = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Swap(release_slot="F2"), "fetch_slot\n  Field required"),  # type: ignore[call-arg]
        (lambda: Swap(release_slot="f2", fetch_slot="R1"), "release_slot\n  String should match pattern"),
        (lambda: Swap(release_slot="F2", fetch_slot="B1\n"), "fetch_slot\n  String should match pattern"),
        (lambda: Swap(release_slot="F-1", fetch_slot="B1"), "release_slot\n  String should match pattern"),
        (lambda: Swap(release_slot=2, fetch_slot="B1"), "release_slot\n  Input should be a valid string"),  # type: ignore[arg-type]
        (lambda: Keep(action="swap"), "Input should be 'keep'"),  # type: ignore[arg-type]
        (lambda: Keep(release_slot="F2"), "Extra inputs are not permitted"),  # type: ignore[call-arg]
        (lambda: Plan(instance="", activations={}), "at least 1 character"),
        (lambda: Plan(instance="net", activations={"": KEEP}), "at least 1 character"),
        (lambda: Plan(instance="net", activations={"x": "keep"}), "activations.x"),  # type: ignore[dict-item]
        (lambda: Plan(instance="net", activations={}, budget_bytes=-1), "greater than 0"),
        (lambda: Plan(instance="net", activations={}, budget_bytes=True), "valid integer"),
        (lambda: Plan(instance="net", activations={}, instance_digest=DIGEST[:-1]), "should match pattern"),
        (lambda: Plan(instance="net", activations={}, instance_digest=DIGEST.upper()), "should match pattern"),
    ],
)
def test_plan_refuses_bad_values(build: Callable[[], object], message: str) -> None:
    """What a file may not say, Python code may not build."""
    with pytest.raises(ValidationError, match=message):
        build()


def test_plan_takes_a_digest_or_none() -> None:
    """A plan from elsewhere needs no digest."""
    plans = [Plan(instance="net", activations={}, instance_digest=digest) for digest in (DIGEST, None)]
    assert [plan.instance_digest for plan in plans] == [DIGEST, None]


@pytest.mark.parametrize("name", ["swap", "keep", "action", "[key]", "a.b", "a['b']", "activations"])
def test_parse_plan_finds_the_decision_whatever_its_name(name: str) -> None:
    """An error in a decision is located under its activation, also if that is called like a field or an action."""
    text = format_plan(Plan(instance="net", activations={name: SWAP})).replace("F2", "X2")
    with pytest.raises(PlanError, match="must be a slot") as caught:
        parse_plan(text)
    where = f"activations[{name!r}].release_slot"
    assert str(caught.value) == f"plan: {where}: must be a slot such as F12, R7 or B7, got 'X2'"


def test_parse_plan_reports_all_errors_at_once() -> None:
    """One message has every wrong decision."""
    activations: dict[str, Any] = {"x": KEEP, "y": SWAP, "z": RECOMPUTE}
    text = format_plan(Plan(instance="net", activations=activations))
    text = text.replace('"keep"', '"drop"').replace('"R1"', "1").replace('"recompute"', "null")
    with pytest.raises(PlanError, match=r"\Aplan: activations\['x'\]\.action: .*'drop'\n") as caught:
        parse_plan(text)
    assert str(caught.value).splitlines() == [
        "plan: activations['x'].action: must be 'keep', 'swap' or 'recompute', got 'drop'",
        "plan: activations['y'].fetch_slot: must be a text, got 1",
        "plan: activations['z'].action: must be 'keep', 'swap' or 'recompute', got null",
    ]
