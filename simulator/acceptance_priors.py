"""Acceptance where nothing was measured: wide priors by drafting method and kind of text, from a data file."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.records import dataclass
from simulator.acceptance_shapes import Array, MatchShape, decaying_conditional, scaled_match, unconditional
from simulator.deployment.speculation import NGRAM_METHODS, Speculation
from simulator.deployment.tables import Workload

_FILE = Path(__file__).parent / "data" / "acceptance_priors.toml"  # importlib.resources costs start-up time
_CONTEXT_RANGE = (64.0, 131_072.0)  # where the logarithmic growth of matches with context is believed
_MEDIAN_SHIFT = 1 / 3  # median of a Beta: (a - 1/3) / (a + b - 2/3) for a, b > 1 (Kerman 2011, arXiv 1111.0433)


@dataclass(frozen=True, slots=True)
class PriorDraws:
    """Draws with their point value in the last row: survival (num_draws + 1, k), draft probability (num_draws + 1,)."""

    survival: Array
    probability: Array
    notes: tuple[str, ...]


@cache
def priors() -> dict[str, Any]:
    """The tables of data/acceptance_priors.toml, parsed once."""
    return tomllib.loads(_FILE.read_text("utf-8"))


def match_shape() -> tuple[MatchShape, int]:
    """The two-state match mixture of text lookup, and the k at which its accepted tokens are stated."""
    table = priors()["match_shape"]
    return MatchShape(table["w"], table["high"], table["low"]), table["at_k"]


class ModelCurve(NamedTuple):
    """c_i = c1 decay^(i-1) of a drafter that is a model, on text of kind "mixed" at temperature 1."""

    logit: float  # of c1
    logit_sd: float
    decay: float
    decay_log_sd: float


def method_curve(method: str) -> ModelCurve:
    """What is assumed of a method's drafters in general."""
    table = priors()["model"][method]
    return ModelCurve(_logit(table["c1"]), table["c1_logit_sd"], table["decay"], table["decay_log_sd"])


def model_prior(curve: ModelCurve, workload: Workload, k: int, num_draws: int, rng: np.random.Generator) -> PriorDraws:
    """Draws of a drafter that is a model, on the workload's kind of text: a draft on every step."""
    normals = _normals(rng, num_draws)
    factor, notes = _temperature_factor(workload)
    logit = curve.logit + priors()["kind_logit"][workload.kind]
    first = _expit(logit + curve.logit_sd * normals[0]) * factor
    decay = np.minimum(curve.decay * np.exp(curve.decay_log_sd * normals[1]), priors()["spread"]["decay_max"])
    rows = unconditional(decaying_conditional(first, decay, k))
    return PriorDraws(rows, np.ones(num_draws + 1), notes)


def as_tree(draws: PriorDraws, topk: int, rng: np.random.Generator) -> PriorDraws:
    """The draws of a chain turned into those of a draft tree with as many nodes (docs/options.md, eq. A4).

    All positions are scaled alike, up to 1: what a step emits is what counts, and nothing tells the depths apart.
    """
    trees = priors()["tree"]
    nearest = trees[min(trees, key=lambda name: abs(int(name) - topk))]
    rate = draws.survival.mean(axis=1, keepdims=True)
    noise = np.append(rng.standard_normal(len(rate) - 1), 0.0)[:, None]
    factor = np.exp(nearest["at_zero"] + nearest["per_rate"] * rate + nearest["log_sd"] * noise)
    note = f"draft tree with topk {topk}: acceptance of the chain x {factor[-1, 0]:.2f}, from pairs with as many nodes"
    return PriorDraws(np.minimum(draws.survival * factor, 1.0), draws.probability, (*draws.notes, note))


def lookup_probability(
    speculation: Speculation, workload: Workload, context_tokens: float, num_draws: int, rng: np.random.Generator
) -> Array:
    """Prior of the share of decode steps that carry a draft, (num_draws + 1,), the point value last.

    More with a shorter shortest match and, like the logarithm, with context; both shift the logit.
    """
    table = _lookup_table(speculation.method)
    alpha, beta = table["probability_alpha"], table["probability_beta"]
    median = (alpha - _MEDIAN_SHIFT) / (alpha + beta - 2 * _MEDIAN_SHIFT)
    share = np.append(rng.beta(alpha, beta, num_draws), median)
    context = min(max(context_tokens, _CONTEXT_RANGE[0]), _CONTEXT_RANGE[1])
    shift = (
        table["logit_per_min_token"] * _fewer_tokens(speculation, table)
        + table["logit_per_log_context"] * np.log(context / table["context_tokens"])
        + priors()["lookup_kind"][workload.kind][0]
    )
    odds = share / (1.0 - share) * np.exp(shift)
    return np.asarray(odds / (1.0 + odds))


def lookup_survival(
    speculation: Speculation, workload: Workload, k: int, num_draws: int, rng: np.random.Generator
) -> Array:
    """Prior of S_1..S_k of a text-lookup draft, (num_draws + 1, k), the point value last."""
    table = _lookup_table(speculation.method)
    shape, at_k = match_shape()
    shift = priors()["lookup_kind"][workload.kind][1]
    shift -= table["accepted_log_per_min_token"] * _fewer_tokens(speculation, table)
    drawn = table["accepted_mean"] + table["accepted_sd"] * _normals(rng, num_draws)[0]
    accepted = np.maximum(drawn, table["accepted_min"]) * np.exp(shift)
    return scaled_match(np.minimum(accepted, at_k), at_k, shape, k)


def _lookup_table(method: str) -> dict[str, Any]:
    table: dict[str, Any] = priors()["lookup"]["ngram" if method in NGRAM_METHODS else method]
    return table


def _fewer_tokens(speculation: Speculation, table: dict[str, Any]) -> float:
    """How many tokens fewer the shortest match needs than in the prior's replay."""
    if speculation.method not in NGRAM_METHODS:
        return 0.0
    return float(table["min_tokens"] - speculation.lookup_range[0])


def _temperature_factor(workload: Workload) -> tuple[float, tuple[str, ...]]:
    """Factor on c: the priors are of live traffic, taken as temperature 1; greedy sampling accepts more."""
    if workload.temperature is None or workload.temperature >= 1:
        return 1.0, ()
    factor = priors()["spread"]["temperature_factor"] ** (workload.temperature - 1)
    return factor, (f"acceptance prior x {factor:.2f} for temperature {workload.temperature:g} (assumption)",)


def _normals(rng: np.random.Generator, num_draws: int) -> Array:
    """Two rows of standard normals, the point value 0 last."""
    return np.concatenate((rng.standard_normal((2, num_draws)), np.zeros((2, 1))), axis=1)


def _logit(share: float) -> float:
    return float(np.log(share / (1.0 - share)))


def _expit(value: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-value))
