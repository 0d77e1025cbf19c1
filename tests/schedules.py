"""Transfer schedules that tests hold the project's own against."""

from collections.abc import Sequence

from slackswap_ilp.analysis import Closure, Graph, Schedule
from slackswap_ilp.plan import Action


def tightest_schedule(graph: Graph, actions: Sequence[Action], closure: Closure) -> Schedule:
    """Return the schedule that holds swapped activations as short as possible, whatever waiting it costs."""
    swapped = [number for number, action in enumerate(actions) if action is Action.SWAP]
    needs = {number: closure.need_slots[number] for number in swapped}
    return Schedule(
        release_slots={number: graph.last_forward_read[number] + 1 for number in swapped},
        fetch_slots={number: need - 1 for number, need in needs.items() if need is not None},
    )
