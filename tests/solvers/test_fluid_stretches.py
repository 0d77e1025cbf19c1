"""Stretches of triggers relax: two graphs on which counting them too strictly refuted a plan that fits."""

from collections.abc import Sequence

import pytest

from slackswap_ilp.analysis import make_graph
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.pipeline import solve
from slackswap_ilp.solvers.backend import Limits, solve_program
from slackswap_ilp.solvers.fluid import make_fluid_program


def make_layer(
    name: str,
    *,
    forward: float = 1.0,
    backward: float = 1.0,
    inputs: Sequence[str] = (),
    outputs: Sequence[Activation] = (),
    saved: Sequence[str] = (),
    forward_workspace: int = 0,
    backward_workspace: int = 0,
    recomputable: bool = True,
) -> Layer:
    """Return a layer, a second each way unless told otherwise."""
    return Layer(
        name=name,
        forward_seconds=forward,
        backward_seconds=backward,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        saved=tuple(saved),
        forward_workspace_bytes=forward_workspace,
        backward_workspace_bytes=backward_workspace,
        recomputable=recomputable,
    )


def make_activation(name: str, size: int, *, gradient: int = 0, swappable: bool = False) -> Activation:
    """Return an activation that may not be swapped unless told otherwise."""
    return Activation(name=name, size_bytes=size, gradient_bytes=gradient, swappable=swappable)


DEVICE = Device(name="toy", memory_bytes=1000, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=1.0)

HIDDEN_SWAP_IN = Instance(
    name="the swap-in of d hides behind layer 0, which runs again at R2 but may at R3; B3 has no room for d",
    device=DEVICE,
    budget_bytes=32,
    layers=(
        make_layer("0", forward=10.0, backward=0.1, outputs=[make_activation("a", 10)], saved=["a"]),
        make_layer(
            "1",
            forward=0.1,
            backward=0.1,
            outputs=[make_activation("d", 10, swappable=True)],
            saved=["d"],
            recomputable=False,
        ),
        make_layer("2", forward=0.1, backward=0.1, inputs=["a"], outputs=[make_activation("c", 10)], saved=["c"]),
        make_layer(
            "3",
            forward=20.0,
            backward=0.1,
            inputs=["a", "c"],
            outputs=[make_activation("b", 1)],
            saved=["b"],
            backward_workspace=31,
        ),
    ),
)

TWO_OUTPUTS = Instance(
    name="layer 0 runs again at R3 for x; its workspace has no room at R2, where its other output y is first saved",
    device=DEVICE,
    budget_bytes=34,
    layers=(
        make_layer("0", outputs=[make_activation("x", 10), make_activation("y", 1)], saved=["x"], forward_workspace=20),
        make_layer("1", outputs=[make_activation("g", 1, gradient=20)]),
        make_layer("2", saved=["y"]),
        make_layer("3", inputs=["x", "g"], outputs=[make_activation("z", 1)], saved=["z"]),
        make_layer("4", forward_workspace=34),
    ),
)


@pytest.mark.parametrize("window", [None, 1, 2, 3])
@pytest.mark.parametrize(
    ("instance", "best_seconds"), [(HIDDEN_SWAP_IN, 40.7), (TWO_OUTPUTS, 13.0)], ids=["swap-in", "two outputs"]
)
def test_stretches_do_not_refute_the_best_plan(instance: Instance, best_seconds: float, window: int | None) -> None:
    """Whatever the window, the fluid program's optimum is not above the best plan's step time."""
    graph = make_graph(instance)
    fluid = make_fluid_program(graph, budget_bytes=instance.available_bytes, window=window)
    answer = solve_program(fluid.program, backend="highs", limits=Limits())
    assert answer.bound is not None
    assert graph.ideal_seconds + answer.bound * fluid.scale.seconds_per_unit <= best_seconds * (1 + 1e-7)
    assert solve(instance).step_seconds == pytest.approx(best_seconds)
