"""The format of best-known plans, which stand beside instances; see instances/README.md."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from slackswap_ilp.files import format_plan
from slackswap_ilp.plan import Plan


class BestKnown(BaseModel):
    """A ``.best.json`` file: the best plan known for an instance's budget, its value and a bound."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal["slackswap-best"]
    version: Literal[1]
    instance: str
    budget_bytes: Annotated[int, Field(strict=True, gt=0)]
    step_seconds: Annotated[float, Field(strict=True, ge=0)]
    bound_seconds: Annotated[float, Field(strict=True, ge=0)]
    provenance: dict[str, JsonValue]
    plan: Plan


def read_best(path: Path) -> BestKnown:
    """Read a best-known plan."""
    return BestKnown.model_validate_json(path.read_bytes())


def format_best(best: BestKnown) -> str:
    """Return the canonical text of a best-known plan: the plan as `format_plan` writes it, indented."""
    head = json.dumps(best.model_dump(mode="json", exclude={"plan"}), indent=2, ensure_ascii=False)
    plan = format_plan(best.plan).rstrip("\n").replace("\n", "\n  ")
    return head.removesuffix("\n}") + f',\n  "plan": {plan}\n}}\n'
