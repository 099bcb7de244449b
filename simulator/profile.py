"""The profile: what `draftcast calibrate` learned about one machine, as a record and as a JSON document.

numpy only: `predict` reads it at every start. Coordinates are the prior coordinates of `simulator.parameters` (one
standard normal a parameter), then the log factors of `hwmodel.residual`. Format: docs/calibration.md.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.files import read_bounded
from hwmodel.residual import NUM_LOG_FACTORS
from simulator.deployment.keys import short
from simulator.json_table import JsonTable
from simulator.misfit import Misfit, misfit_of
from simulator.parameters import Prior

Array = NDArray[np.float64]

FORMAT, SCHEMA = "draftcast-profile", 1
# Of the error of a predicted speedup, standard deviation 10 %: one constant of a deployment 8 %, scatter within it 6 %
# (docs/model.md, spec section 10). The constant is the last residual coordinate, `model_error` keeps the scatter.
CONSTANT_SHARE, SCATTER_SHARE = 0.8, 0.6
_ALLOWED = "what draftcast calibrate -o wrote"
_MAX_BYTES = 8_000_000  # a thousand times what a fit writes without its report
_MAX_PARAMETERS = 200
_SYMMETRIC = 1e-6  # relative: JSON carries every digit
_KINDS = ("lognormal", "normal", "switch")
_SETTINGS: dict[str, tuple[type, ...]] = {"allreduce_algorithm": (str,), "allreduce_one_shot_max_kib": (int, float)}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a profile was measured on, as far as figures depend on it."""

    model: str
    geometry: tuple[int, ...]  # layers, width, vocabulary, experts, experts per token
    gpu: str
    interconnect: str
    engine: str
    engine_version: str
    tensor: int
    pipeline: int
    data: int
    expert_parallel: bool
    decode_context: int
    attention_backend: str
    kv_cache_dtype: str


@dataclass(frozen=True, slots=True)
class PooledAcceptance:
    """Drafts counted in all sources of one method and draft length; positions never increase."""

    method: str
    num_speculative_tokens: int
    drafts: float
    accepted_per_position: tuple[float, ...]
    steps: float | None = None
    num_requests: float | None = None


@dataclass(frozen=True, slots=True)
class Anchor:
    """A baseline step that was measured: requests per replica, mean context, seconds at the mode.

    `noise` is that of the measurement, `spread` what the fit leaves of the step's log.
    """

    sequences: float
    context_tokens: float
    step_s: float
    noise: float
    spread: float


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """AllReduce times of this machine: sizes increasing."""

    sizes_bytes: tuple[float, ...]
    times_s: tuple[float, ...]
    num_gpus: int
    source: str


@dataclass(frozen=True)
class Profile:
    """One calibration. `mode` `(n + NUM_LOG_FACTORS,)` and `covariance` belong to `priors` and then the residuals."""

    identity: Identity
    priors: tuple[Prior, ...]
    mode: Array
    covariance: Array
    created: str  # ISO 8601
    versions: Mapping[str, str]
    model_error: float  # tau, relative
    method: str  # of the runs with drafts behind the last residual; "none" without any
    settings: Mapping[str, Any]  # keys of [hardware] that the fit found
    stated_acceptance: str  # hash of the acceptance that the deployment stated then; "" for none
    measurements: tuple[Mapping[str, Any], ...] = ()  # what was fitted, for a fit that continues this one
    anchors: tuple[Anchor, ...] = ()
    acceptance: tuple[PooledAcceptance, ...] = ()
    curve: MeasuredCurve | None = None
    kv_cache_tokens: float | None = None
    misfit: Misfit | None = None  # where the model error had to be raised
    data: tuple[Mapping[str, str], ...] = ()  # files: path, format, sha256
    cells_sha256: tuple[str, ...] = ()
    facts_sha256: tuple[str, ...] = ()
    sha256: str = ""  # of the file that it was read from

    def to_document(self) -> dict[str, Any]:
        """The JSON object that `parse_profile` reads."""
        return {
            "format": FORMAT,
            "schema": SCHEMA,
            "created": self.created,
            "versions": dict(self.versions),
            "identity": asdict(self.identity),
            "data": [dict(item) for item in self.data],
            "settings": dict(self.settings),
            "priors": [asdict(prior) for prior in self.priors],
            "mode": self.mode.tolist(),
            "covariance": self.covariance.tolist(),
            "model_error": self.model_error,
            "method": self.method,
            "stated_acceptance": self.stated_acceptance,
            "measurements": [dict(item) for item in self.measurements],
            "anchors": [asdict(anchor) for anchor in self.anchors],
            "acceptance": [asdict(counted) for counted in self.acceptance],
            "curve": None if self.curve is None else asdict(self.curve),
            "kv_cache_tokens": self.kv_cache_tokens,
            "misfit": None if self.misfit is None else asdict(self.misfit),
            "cells_sha256": list(self.cells_sha256),
            "facts_sha256": list(self.facts_sha256),
        }


def read_profile(path: str | Path) -> Profile:
    """The profile in a file; `InputError` in one line where it is none."""
    shown = short(str(path), 200)
    content = read_bounded(
        path,
        _MAX_BYTES,
        unreadable=f"profile {shown}: cannot be read: {{reason}}; allowed: {_ALLOWED}",
        too_large=f"profile {shown}: larger than {_MAX_BYTES} bytes; allowed: {_ALLOWED}",
    )
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"profile {shown}: not JSON; allowed: {_ALLOWED}") from None
    try:
        return parse_profile(document, hashlib.sha256(content).hexdigest())
    except InputError as error:
        raise InputError(f"profile {shown}: {error}") from None


def parse_profile(document: Any, sha256: str = "") -> Profile:
    """The profile of a JSON document, every value checked."""
    tree = JsonTable(document, "")
    if tree.get("format") != FORMAT:
        raise InputError(f"got no {FORMAT}; allowed: {_ALLOWED}")
    schema = tree.get("schema")
    if schema != SCHEMA:
        raise InputError(f"got schema {short(str(schema), 20)}, allowed: {SCHEMA}; calibrate again with this version")
    priors = tuple(_prior(item) for item in tree.items("priors", _MAX_PARAMETERS))
    if len({prior.name for prior in priors}) < len(priors):
        raise InputError("priors: a parameter stands twice; allowed: once")
    size = len(priors) + NUM_LOG_FACTORS
    return Profile(
        identity=_identity(tree.table("identity")),
        priors=priors,
        mode=tree.vector("mode", size),
        covariance=_covariance(tree, size),
        created=tree.text("created"),
        versions=tree.table("versions").texts(),
        model_error=tree.number("model_error", 0.0, 1.0),
        method=tree.text("method"),
        settings=_settings(tree.table("settings")),
        stated_acceptance=tree.text("stated_acceptance"),
        measurements=tuple(dict(item.value) for item in tree.items("measurements")),
        anchors=tuple(_anchor(item) for item in tree.items("anchors")),
        acceptance=tuple(_acceptance(item) for item in tree.items("acceptance")),
        curve=None if tree.get("curve") is None else _curve(tree.table("curve")),
        kv_cache_tokens=tree.optional("kv_cache_tokens", 1.0, 1e12),
        misfit=None if tree.get("misfit") is None else misfit_of(tree.table("misfit")),
        data=tuple(item.texts() for item in tree.items("data")),
        cells_sha256=tree.words("cells_sha256"),
        facts_sha256=tree.words("facts_sha256"),
        sha256=sha256,
    )


def _identity(tree: JsonTable) -> Identity:
    return Identity(
        model=tree.text("model"),
        geometry=tuple(int(x) for x in tree.vector("geometry", 5)),
        gpu=tree.text("gpu"),
        interconnect=tree.text("interconnect"),
        engine=tree.text("engine"),
        engine_version=tree.text("engine_version"),
        tensor=tree.whole("tensor", 1, 100_000),
        pipeline=tree.whole("pipeline", 1, 100_000),
        data=tree.whole("data", 1, 100_000),
        expert_parallel=tree.truth("expert_parallel"),
        decode_context=tree.whole("decode_context", 1, 100_000),
        attention_backend=tree.text("attention_backend"),
        kv_cache_dtype=tree.text("kv_cache_dtype"),
    )


def _prior(tree: JsonTable) -> Prior:
    kind = tree.text("kind")
    if kind not in _KINDS:
        raise tree.refuse("kind", ", ".join(_KINDS))
    prior = Prior(
        name=tree.text("name"),
        center=tree.number("center", -1e12, 1e12),
        spread=tree.number("spread", 0.0, 100.0),
        kind=kind,
        low=tree.number("low", -1e12, 1e12),
        high=tree.number("high", -1e12, 1e12),
        source=tree.text("source"),
    )
    if not prior.low <= prior.center <= prior.high:
        raise tree.refuse("center", f"{prior.low:g} to {prior.high:g}")
    return prior


def _covariance(tree: JsonTable, size: int) -> Array:
    rows = tree.rows("covariance", size)
    if len(rows) != size:
        raise tree.refuse("covariance", f"{size} rows")
    matrix = np.array([JsonTable({"row": row}, f"covariance[{i}]").vector("row", size) for i, row in enumerate(rows)])
    largest = float(np.max(np.abs(matrix)))
    if np.max(np.abs(matrix - matrix.T)) > _SYMMETRIC * max(largest, 1.0):
        raise InputError("covariance: not symmetric; allowed: a covariance matrix")
    symmetric: Array = 0.5 * (matrix + matrix.T)
    try:
        np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        raise InputError("covariance: not positive definite; allowed: a covariance matrix") from None
    return symmetric


def _settings(tree: JsonTable) -> dict[str, Any]:
    for key, value in tree.value.items():
        if key not in _SETTINGS or isinstance(value, bool) or not isinstance(value, _SETTINGS[key]):
            raise InputError(f"settings: got {short(str(key), 40)}, allowed: {', '.join(_SETTINGS)}")
    if "allreduce_one_shot_max_kib" in tree.value:
        tree.number("allreduce_one_shot_max_kib", 0.0, 1e9)
    return dict(tree.value)


def _anchor(tree: JsonTable) -> Anchor:
    return Anchor(
        sequences=tree.number("sequences", 1.0, 1e6),
        context_tokens=tree.number("context_tokens", 0.0, 1e9),
        step_s=tree.number("step_s", 1e-9, 1e6),
        noise=tree.number("noise", 1e-6, 10.0),
        spread=tree.number("spread", 0.0, 10.0),
    )


def _acceptance(tree: JsonTable) -> PooledAcceptance:
    accepted = tree.vector("accepted_per_position")
    drafts = tree.number("drafts", 0.0, 2.0**53)
    chain = [drafts, *accepted.tolist()]
    if not len(accepted) or len(accepted) > 64 or min(chain) < 0 or any(np.diff(chain) > 0):
        raise tree.refuse("accepted_per_position", "1 to 64 counts that never increase, at most drafts")
    return PooledAcceptance(
        method=tree.text("method"),
        num_speculative_tokens=tree.whole("num_speculative_tokens", 1, 64),
        drafts=drafts,
        accepted_per_position=tuple(accepted.tolist()),
        steps=tree.optional("steps", drafts, 2.0**53),
        num_requests=tree.optional("num_requests", 0.0, 2.0**53),
    )


def _curve(tree: JsonTable) -> MeasuredCurve:
    sizes = tree.vector("sizes_bytes")
    times = tree.vector("times_s", len(sizes))
    if not len(sizes) or min(sizes[0], *times) <= 0 or any(np.diff(sizes) <= 0):
        raise tree.refuse("sizes_bytes", "increasing sizes above 0, with times above 0")
    return MeasuredCurve(
        tuple(sizes.tolist()), tuple(times.tolist()), tree.whole("num_gpus", 2, 100_000), tree.text("source")
    )
