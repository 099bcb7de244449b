"""The model parameters as random variables: priors, what the deployment file says of them, and draws.

Every parameter is a function of one standard-normal variable, so that draws, medians and the conditioning on measured
facts (`simulator.posterior`) all work in the same coordinates.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.hf.fields import shown
from hwmodel.names import did_you_mean, nearest, vocabulary
from hwmodel.parameters import Parameters, fitted_values, prior_table, si_name
from hwmodel.records import dataclass

Array = NDArray[np.float64]

_FIXED_LOG_SD = 0.0
_KINDS = {"lognormal": "median", "normal": "mean", "switch": "probability"}  # kind -> its key in priors.toml


@dataclass(frozen=True, slots=True)
class Prior:
    """One parameter in file units, cut to [low, high].

    `kind` is "lognormal" (`center` is the median, `spread` the log-sd), "normal", or "switch": 1 with probability
    `center`, else 0.
    """

    name: str
    center: float
    spread: float
    kind: str
    low: float
    high: float
    source: str

    def values(self, z: Array) -> Array:
        """The parameter in SI units at standard-normal coordinates `z`, any shape."""
        factor = si_name(self.name)[1]
        if self.kind == "switch":
            return np.where(z < _quantile(self.center), 1.0, 0.0)
        raw = self.center * np.exp(self.spread * z) if self.kind == "lognormal" else self.center + self.spread * z
        return np.clip(raw, self.low, self.high) * factor


def _quantile(probability: float) -> float:
    """The standard-normal quantile, infinite at 0 and 1."""
    if 0.0 < probability < 1.0:
        return NormalDist().inv_cdf(probability)
    return np.inf if probability >= 1.0 else -np.inf


@dataclass(frozen=True, slots=True)
class PriorSet:
    """All parameters in a fixed order: column i of a coordinate matrix belongs to `priors[i]`."""

    priors: tuple[Prior, ...]

    def parameters(self, z: Array) -> Parameters:
        """Parameters at coordinates `z` of shape `(num_draws, num_parameters)`; each value is `(num_draws, 1)`."""
        columns: dict[str, Any] = {
            si_name(prior.name)[0]: prior.values(z[:, i : i + 1]) for i, prior in enumerate(self.priors)
        }
        return Parameters(**columns)

    def medians(self) -> Array:
        """The coordinates of the medians, shape `(1, num_parameters)`."""
        return np.zeros((1, len(self.priors)))

    def replaced(self, changes: Mapping[str, Prior]) -> "PriorSet":
        """The set with some priors exchanged by name."""
        return PriorSet(tuple(changes.get(p.name, p) for p in self.priors))

    def __getitem__(self, name: str) -> Prior:
        """The prior of one parameter by its file name."""
        return next(p for p in self.priors if p.name == name)


def prior_set(
    *, sm_arch: str, interconnect: str, engine: str, attention_backend: str, expert_format: str = ""
) -> PriorSet:
    """The priors for this kind of machine: the general table, medians replaced by what was fitted for its parts.

    `expert_format` is the number format of the routed experts, empty for a dense model.
    """
    fits = fitted_values()
    medians: dict[str, float] = {}
    for table, key in (
        ("gpu", sm_arch),
        ("interconnect", interconnect),
        ("engine", engine),
        ("backend", attention_backend),
        ("experts", f"{sm_arch} {expert_format}"),
    ):
        medians.update(fits.get(table, {}).get(key, {}))
    priors = []
    for name, row in prior_table().items():
        kind = next(k for k, key in _KINDS.items() if key in row)
        center, spread = row[_KINDS[kind]], row.get("log_sd", row.get("sd", 0.0))
        priors.append(Prior(name, medians.get(name, center), spread, kind, row["low"], row["high"], row["source"]))
    return PriorSet(tuple(priors))


def with_user_values(priors: PriorSet, table: Mapping[str, Any]) -> PriorSet:
    """Priors with the `[parameters]` table of the deployment file: a number fixes one, {median, log_sd} replaces it."""
    known = {p.name: p for p in priors.priors}
    changes = {}
    for name, value in table.items():
        if name not in known:
            hint, listed = did_you_mean(nearest(name, known)), vocabulary("parameters", known, "list parameters")
            raise UnknownNameError(f"no model parameter {shown(name)}{hint} {listed}")
        changes[name] = _user_prior(known[name], value)
    return priors.replaced(changes)


def _user_prior(prior: Prior, value: Any) -> Prior:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        center, spread = float(value), _FIXED_LOG_SD
    else:
        read = value if isinstance(value, Mapping) else {k: getattr(value, k) for k in ("median", "log_sd")}
        center, spread = float(read["median"]), float(read["log_sd"])
    if not prior.low <= center <= prior.high:
        raise InputError(f"parameters.{prior.name}: got {center:g}, allowed {prior.low:g} to {prior.high:g}")
    if prior.kind == "switch":
        return replace(prior, center=center, source="deployment file")
    if center <= 0.0 and spread > 0.0:
        raise InputError(f"parameters.{prior.name}: a median of {center:g} cannot have a log_sd; give the number alone")
    kind = "lognormal" if center > 0.0 else "normal"
    return replace(prior, center=center, spread=spread, kind=kind, source="deployment file")


def standard_draws(num_draws: int, num_parameters: int, rng: np.random.Generator) -> Array:
    """Standard-normal coordinates `(num_draws, num_parameters)` in mirrored pairs: their medians are the priors'."""
    half = rng.standard_normal(((num_draws + 1) // 2, num_parameters))
    return np.concatenate([half, -half])[:num_draws]
