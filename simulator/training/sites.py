"""Where a head can be trained: the GPUs that serve now, and rented nodes that the model fits on."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import DraftcastError, InputError
from hwmodel.records import dataclass
from hwmodel.units import HOUR
from simulator.closed_form import capacity
from simulator.deployment import Deployment, apply_overrides
from simulator.options.machine import machine_changes
from simulator.options.situation import NO_METHOD
from simulator.study import Study, build_study
from simulator.summary import quantiles
from simulator.training.facts import Recipe
from simulator.training.head import Head, head_of
from simulator.training.stages import Rates, rates, stage_seconds, volume

Array = NDArray[np.float64]

RENTED = ("h200", "b200", "b300")
NODE_GPUS = 8  # of one rented machine
_INTERVAL = ("p05", "p50", "p95")
_SCREEN_DRAWS = 100  # for a median that only says which layout to take
_SAME = 0.01  # layouts closer than that are as fast: the smaller one is taken
_SIZES = ("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size")


class Node(NamedTuple):
    """A kind of machine to train on."""

    gpu: str
    num_gpus: int


@dataclass(frozen=True, slots=True)
class Site:
    """One place and what each stage takes there, seconds `(num_draws,)`."""

    node: Node
    study: Study
    head: Head
    rates: Rates
    seconds: dict[str, Array]

    @property
    def total_s(self) -> Array:
        """Seconds of all stages, one after the other."""
        return np.asarray(sum(self.seconds.values()))

    @property
    def gpu_hours(self) -> Array:
        """GPU-hours of all stages."""
        return np.asarray(self.total_s * self.node.num_gpus / HOUR)

    def to_dict(self) -> dict[str, Any]:
        """Hours as JSON: of each stage and of all, the GPU-hours, and the rates behind them."""
        hours = {f"{name}_h": interval(seconds / HOUR) for name, seconds in self.seconds.items()}
        return {
            "gpu": self.node.gpu,
            "num_gpus": self.node.num_gpus,
            **hours,
            "total_h": interval(self.total_s / HOUR),
            "gpu_hours": interval(self.gpu_hours),
            "generated_tokens_per_s": interval(self.rates.generated_tokens_per_s),
            "read_tokens_per_s": interval(self.rates.read_tokens_per_s),
            "concurrency": self.rates.concurrency,
        }


def interval(draws: Array) -> dict[str, float | None]:
    """Median and ends of the 90 % interval."""
    figures = quantiles(draws)
    return {name: figures[name] for name in _INTERVAL}


def local_site(study: Study, recipe: Recipe) -> Site:
    """The GPUs of the deployment, all of them for the training: the service is down meanwhile."""
    deployment = study.deployment
    return _site(Node(deployment.hardware.gpu, deployment.num_gpus), study, recipe)


def rented_site(deployment: Deployment, node: Node, recipe: Recipe, seed: int) -> Site:
    """A rented machine, the model laid out to be done first, copies on the rest; InputError where none fit."""
    study = study_on(deployment, node, len(recipe.samples), seed)
    return _site(node, study, recipe)


def study_on(deployment: Deployment, node: Node, num_draws: int, seed: int) -> Study:
    """The deployment without speculation on another machine, in the layout that answers and reads the texts first.

    Of copies of every tensor-parallel size that fits, and of the deployment's own layout.
    """
    best, reasons = None, []
    for changes in _layout_changes(deployment, node):
        try:
            moved = apply_overrides(deployment, changes)
            study = build_study(moved, k_max=1, num_draws=_SCREEN_DRAWS, seed=seed)
        except DraftcastError as error:
            reasons.append(str(error))
            continue
        held = capacity(study.system, 0)
        if held.limited_by == "does_not_fit":
            reasons.append(held.reason)
            continue
        taken = _seconds_a_request(study, node)
        if best is None or taken < best[0] * (1.0 - _SAME):
            best = taken, moved
    if best is None:
        raise InputError(f"{node.num_gpus} x {node.gpu}: {reasons[-1]}")
    return build_study(best[1], k_max=1, num_draws=num_draws, seed=seed)


def _seconds_a_request(study: Study, node: Node) -> float:
    """Seconds of the whole machine for the answer and the hidden states of one request, median."""
    rate, workload = rates(study, _replicas(node, study)), study.deployment.workload
    read = workload.input_tokens + workload.output_tokens
    taken = workload.output_tokens / rate.generated_tokens_per_s + read / rate.read_tokens_per_s
    return float(np.median(taken))


def _layout_changes(deployment: Deployment, node: Node) -> Iterator[list[str]]:
    """Overrides of every layout to compare on a machine; the smallest first, the deployment's own last."""
    for tensor in _layouts(node.num_gpus):
        yield _overrides(node, tensor)
    if node.num_gpus % deployment.num_gpus_used == 0:
        engine = deployment.engine
        sizes = {name: getattr(engine, name) for name in _SIZES}
        yield [*_overrides(node, engine.tensor_parallel_size), *(f"engine.{name}={n}" for name, n in sizes.items())]


def _overrides(node: Node, tensor: int) -> list[str]:
    return [*NO_METHOD, *machine_changes(node.gpu, tensor), f"hardware.num_gpus={node.num_gpus}"]


def _replicas(node: Node, study: Study) -> int:
    return max(node.num_gpus // study.deployment.num_gpus_used, 1)


def _layouts(num_gpus: int) -> Iterator[int]:
    """Tensor-parallel sizes that divide a machine, ascending powers of two."""
    tensor = 1
    while tensor <= num_gpus:
        if num_gpus % tensor == 0:
            yield tensor
        tensor *= 2


def _site(node: Node, study: Study, recipe: Recipe) -> Site:
    head = head_of(study.system)
    rate = rates(study, _replicas(node, study))
    peak = node.num_gpus * study.system.gpu.bf16_flop_per_s
    seconds = stage_seconds(volume(study, recipe), recipe, rate, head, peak)
    return Site(node, study, head, rate, seconds)


def rented_sites(
    deployment: Deployment, nodes: Mapping[str, Node], recipe: Recipe, seed: int
) -> Iterator[tuple[str, Site | str]]:
    """Every rented machine by name, or in one line why the model cannot run on it."""
    for name, node in nodes.items():
        try:
            yield name, rented_site(deployment, node, recipe, seed)
        except DraftcastError as error:
            yield name, str(error)
