"""The plan: one action per activation, and when swapped memory is released and fetched. See docs/formats.md."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from slackswap_ilp.slots import SLOT_PATTERN
from slackswap_ilp.units import Name, PositiveBytes

SlotName = Annotated[str, Field(strict=True, pattern=SLOT_PATTERN)]


class Action(StrEnum):
    """What happens to an activation between forward and backward."""

    KEEP = "keep"
    SWAP = "swap"
    RECOMPUTE = "recompute"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Keep(_Record):
    """The activation stays on the device through its last use.

    An activation that backward needs in no way is dropped after its last forward read all the same.
    """

    action: Literal["keep"] = "keep"


class Recompute(_Record):
    """The activation is dropped after its last forward read and its layer runs again when backward needs it."""

    action: Literal["recompute"] = "recompute"


class Swap(_Record):
    """The activation is copied to host memory and back.

    Attributes
    ----------
    release_slot
        First slot that no longer holds it; later than its last forward read. Compute waits there for the copy.
    fetch_slot
        First slot that holds it again; not before `release_slot`, before the slot that needs it.
    """

    action: Literal["swap"] = "swap"
    release_slot: SlotName
    fetch_slot: SlotName


Decision = Annotated[Keep | Recompute | Swap, Field(discriminator="action")]


class Plan(_Record):
    """What to do with every activation of one instance.

    Attributes
    ----------
    instance
        Name of the instance.
    instance_digest
        `Instance.digest` of the instance it was made for; None in a plan from elsewhere skips that check.
    budget_bytes
        The budget it was made for, if any.
    activations
        A decision for every activation, by name.
    """

    format: Literal["slackswap-plan"] = "slackswap-plan"
    version: Literal[1] = 1
    instance: Name
    instance_digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    budget_bytes: PositiveBytes | None = None
    activations: dict[Name, Decision]


KEEP = Keep()
RECOMPUTE = Recompute()
