"""Published draft heads: which exist for a model, and what their figures say about acceptance in one's own traffic.

Facts in data/drafters.toml. A drafter belongs to a model by name, is a relative's by geometry (hidden size, layers,
vocabulary, and the experts where a card of its target ships), or does not fit at all. Equations in docs/options.md,
"Acceptance of published drafters".
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.models import load_model, model_names
from hwmodel.records import dataclass
from hwmodel.specs import ModelShape
from simulator.acceptance_priors import priors
from simulator.acceptance_shapes import Array, constant_conditional, decaying_conditional, unconditional
from simulator.deployment.keys import short

_FILE = Path(__file__).parent / "data" / "drafters.toml"
# Words of a model's name that do not tell one model from another: number formats, and "this is the tuned one".
_FORMATS = frozenset(
    ("bf16", "fp16", "fp32", "fp8", "fp4", "int8", "int4", "nvfp4", "mxfp4", "mxfp8", "awq", "gptq", "w4a16", "w8a8")
)
_FILLERS = frozenset({"instruct", "chat", "it", "hf", "meta"})
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_MAX_FIRST = 0.99  # acceptance of 1 has no logit
_DECAYS = np.linspace(0.7, 1.0, 31)
_TYPICAL_K = 4  # a figure is read at the draft length nearest to it: what vectors and scalars have in common

Relation = Literal["own", "sibling"]


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens per draft `length` (bonus included) by draft length `k`, on one data set."""

    dataset: str
    kind: str
    k: tuple[int, ...]
    length: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Rows of one source. `setting` is "benchmark" or "traffic"; `on` the model they were measured with, if another."""

    setting: str
    source: str
    rows: tuple[Row, ...]
    temperature: float | None = None
    on: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class PublishedDrafter:
    """One draft head or MTP layer."""

    name: str
    method: str
    target: str
    figures: tuple[Figures, ...]
    geometry: tuple[int, int, int] | None = None
    weights: bool = True  # False: only the figure is public
    grafted: bool = False  # an MTP layer for a model that has none
    samples: float | None = None
    note: str = ""

    @property
    def is_built_in(self) -> bool:
        """Whether it comes with the model: MTP layers of the checkpoint."""
        return self.method == "mtp" and not self.grafted

    @property
    def repository(self) -> str | None:
        """Where an engine loads it from; None where only figures are public, or it comes with the model."""
        separate = self.weights and not self.is_built_in
        return self.name if separate and _REPOSITORY.fullmatch(self.name) else None

    def relation(self, shape: ModelShape) -> Relation | None:
        """How the drafter belongs to a model: its own, a relative's, or None where it does not fit."""
        same_shape = self.geometry in (None, geometry(shape))
        if same_shape and name_words(self.target) == name_words(shape.name):
            return "own"
        return "sibling" if self.geometry is not None and same_shape and self._same_experts(shape) else None

    def _same_experts(self, shape: ModelShape) -> bool:
        """Whether the target has the experts of `shape`: tunes of one base do. True where no card of it ships."""
        card = _card_of(self.target, self.geometry)
        return card is None or _experts(card) == _experts(shape)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Acceptance of the first position on the logit scale, in traffic of kind "mixed" at temperature 1."""

    logit: float
    logit_sd: float
    decay: float | None  # c_i / c_(i-1) where figures at several draft lengths tell
    text: str


def geometry(shape: ModelShape) -> tuple[int, int, int]:
    """What a head must agree with: hidden size, layers, vocabulary."""
    return shape.hidden_size, shape.num_hidden_layers, shape.vocab_size


def _experts(shape: ModelShape) -> frozenset[tuple[int, int, int]]:
    """Of every kind of mixture layer: experts, experts a token, parameters of one."""
    blocks = [layer.moe for layer in shape.layers if layer.moe]
    return frozenset((moe.num_experts, moe.num_experts_per_tok, moe.expert_parameters) for moe in blocks)


@functools.cache
def _card_of(target: str, wanted: tuple[int, int, int] | None) -> ModelShape | None:
    """The shipped card of a model or of what it is a tune of: all words of its name are the target's, most of them
    first, with the geometry `wanted`; None where there is none."""
    words = name_words(target)
    named = [name for name in model_names() if name_words(name) <= words]
    for name in sorted(named, key=lambda name: -len(name_words(name))):
        card = load_model(name)
        if geometry(card) == wanted:
            return card
    return None


def name_words(name: str) -> frozenset[str]:
    """The words that tell models apart: without owner, number format and fillers.

    >>> sorted(name_words("moonshotai/Kimi-K2.5")), name_words("kimi-k2.5-int4") == name_words("Kimi_K2.5")
    (['k2.5', 'kimi'], True)
    """
    last = re.split(r"--|/", name.lower())[-1]
    return frozenset(re.split(r"[-_\s]+", last)) - _FORMATS - _FILLERS


@functools.cache
def drafter_facts() -> Mapping[str, Any]:
    """The tables of data/drafters.toml."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@functools.cache
def published_drafters() -> tuple[PublishedDrafter, ...]:
    """Every drafter of the table, in its order."""
    return tuple(_drafter(table) for table in drafter_facts()["drafter"])


def _drafter(table: Mapping[str, Any]) -> PublishedDrafter:
    rest = {key: value for key, value in table.items() if key not in ("figures", "geometry")}
    shape = tuple(table["geometry"]) if "geometry" in table else None
    figures = tuple(_figures(group) for group in table["figures"])
    return PublishedDrafter(**rest, geometry=shape, figures=figures)


def _figures(group: Mapping[str, Any]) -> Figures:
    rows = tuple(Row(row["dataset"], row["kind"], tuple(row["k"]), tuple(row["length"])) for row in group["rows"])
    return Figures(**{key: value for key, value in group.items() if key != "rows"}, rows=rows)


def published_drafter(name: str) -> PublishedDrafter:
    """The drafter of that name; `UnknownNameError` with the closest ones."""
    for drafter in published_drafters():
        if drafter.name.lower() == name.strip().lower():
            return drafter
    from difflib import get_close_matches  # only on the way to an error

    names = [drafter.name for drafter in published_drafters()]
    close = get_close_matches(name, names, n=3, cutoff=0.3)
    hint = f", closest: {', '.join(close)}" if close else ""
    raise UnknownNameError(f"no published drafter '{short(name)}'{hint}; `draftcast list drafters` has all")


def repository_of(name: str) -> str | None:
    """The repository of what `acceptance.published` names; None for a head yet to be trained, or without weights.

    >>> repository_of("AQ-MedAI/Kimi-K25-eagle3"), repository_of("new-head"), repository_of("deepseek-r1 MTP layer")
    ('AQ-MedAI/Kimi-K25-eagle3', None, None)
    """
    return None if new_head_samples(name) is not None else published_drafter(name).repository


def drafters_for(shape: ModelShape, methods: Iterable[str] | None = None) -> list[tuple[PublishedDrafter, Relation]]:
    """The drafters that fit a model, its own before those of relatives, in the order of the table."""
    wanted = None if methods is None else set(methods)
    fitting = [
        (drafter, relation)
        for drafter in published_drafters()
        if (wanted is None or drafter.method in wanted) and (relation := drafter.relation(shape))
    ]
    return sorted(fitting, key=lambda pair: pair[1] != "own")


def estimate(drafter: PublishedDrafter, shape: ModelShape | None) -> Estimate:
    """What the figures say about c1 in traffic: traffic figures as they are, benchmarks less the usual gap.

    Formula: logit c1 = mean over rows of (logit c1 - shift of the kind) + gap + sibling (docs/options.md, eq. A1).
    """
    facts = drafter_facts()
    usual = float(priors()["model"][drafter.method]["decay"])
    fitted = fitted_decay(drafter)
    decay = usual if fitted is None else fitted
    traffic = _logits(drafter, "traffic", decay)
    site = float(facts["site"]["logit_sd"])
    if traffic.size:
        mean, spread, gap, gap_sd = float(traffic.mean()), _standard_error(traffic), 0.0, 0.0
        text = f"{traffic.size} figure(s) from traffic"
    else:
        benchmark = _logits(drafter, "benchmark", decay)
        gap, gap_sd = traffic_gap(drafter)
        mean, spread = float(benchmark.mean()), _standard_error(benchmark)
        text = f"{benchmark.size} benchmark figure(s), {gap:+.2f} +- {gap_sd:.2f} for traffic on the logit scale"
    relative = shape is not None and drafter.relation(shape) != "own"
    sibling = facts["sibling"] if relative else {"logit": 0.0, "logit_sd": 0.0}
    if relative:
        text += f", {sibling['logit']:+.2f} +- {sibling['logit_sd']:.2f} because it was trained for {drafter.target}"
    spread = float(np.sqrt(spread**2 + gap_sd**2 + site**2 + sibling["logit_sd"] ** 2))
    return Estimate(mean + gap + sibling["logit"], spread, fitted, text)


def expected_accepted(drafter: PublishedDrafter, shape: ModelShape | None) -> float:
    """Tokens of a draft of the typical length that its figures let expect in traffic: what heads are ranked by."""
    found = estimate(drafter, shape)
    usual = float(priors()["model"][drafter.method]["decay"])
    first = np.array([1.0 / (1.0 + np.exp(-found.logit))])
    decay = np.array([usual if found.decay is None else found.decay])
    conditional = decaying_conditional(first, decay, _TYPICAL_K)
    return float(unconditional(conditional).sum())


def _standard_error(logits: Array) -> float:
    return float(logits.std(ddof=1) / np.sqrt(logits.size)) if logits.size > 1 else 0.0


def new_head(method: str, shape: ModelShape | None, samples: float | None = None) -> Estimate:
    """What a head that is trained now may reach: as the published ones did, those for the same geometry before others.

    Formula: mean = (n mean of the n relatives + mean of all) / (n + 1), spread: between heads, gap to traffic, site;
    with `samples` shifted by logit_per_ln * ln(samples / reference) (docs/options.md, eq. A3).
    """
    facts = drafter_facts()
    known = [drafter for drafter in published_drafters() if drafter.method == method and not drafter.is_built_in]
    logits = np.array([estimate(drafter, None).logit for drafter in known])
    if not logits.size:
        raise InputError(f"no published head drafts by {method}, so nothing tells what a new one would reach")
    near = [i for i, drafter in enumerate(known) if shape is not None and drafter.geometry and drafter.relation(shape)]
    mean = (logits[near].sum() + logits.mean()) / (len(near) + 1)
    between = float(logits.std(ddof=1)) if logits.size > 1 else float(priors()["model"][method]["c1_logit_sd"])
    variance = between**2 + facts["gap"]["heads"]["logit_sd"] ** 2 / (len(near) + 1) + facts["site"]["logit_sd"] ** 2
    decays = [decay for drafter in known if (decay := fitted_decay(drafter)) is not None]
    text = f"{logits.size} published {method} heads, {len(near)} of them for this geometry"
    shift = 0.0
    if samples is not None:
        volume = facts["data_volume"]
        doublings = float(np.log(samples / volume["reference_samples"]))
        shift, variance = volume["logit_per_ln"] * doublings, variance + (volume["logit_per_ln_sd"] * doublings) ** 2
        text += f", {shift:+.2f} on the logit scale for {samples:,.0f} samples"
    typical = float(np.exp(np.mean(np.log(decays)))) if decays else None
    return Estimate(float(mean) + shift, float(np.sqrt(variance)), typical, text)


def named_estimate(name: str, method: str, shape: ModelShape | None) -> tuple[Estimate, str]:
    """The estimate behind `acceptance.published` and what to call its source; InputError where it cannot apply.

    `name` is a drafter of the table, or "new-head", "new-head-300000" for one that is yet to be trained (on so many
    samples).
    """
    new = new_head_samples(name)
    if new is not None:
        return new_head(method, shape, new or None), "a head yet to be trained"
    drafter = published_drafter(name)
    where = "speculation.acceptance.published"
    if drafter.method != method:
        raise InputError(f"{where}: {drafter.name} drafts by {drafter.method}, but speculation.method is {method}")
    if shape is not None and drafter.relation(shape) is None:
        raise InputError(
            f"{where}: {drafter.name} was trained for {drafter.target}, which has another shape than {shape.name}"
        )
    return estimate(drafter, shape), f"published figures of {drafter.name}"


def new_head_samples(name: str) -> float | None:
    """Samples in the name of a head yet to be trained, 0 where it says none; None for any other name.

    >>> new_head_samples("new-head-300000"), new_head_samples("new-head"), new_head_samples("lmsys/x")
    (300000.0, 0.0, None)
    """
    match = re.fullmatch(r"new-head(?:-([1-9][0-9]{0,14}))?", name.strip().lower())
    return None if match is None else float(match.group(1) or 0)


def check_name(name: str) -> None:
    """`UnknownNameError` for what `acceptance.published` cannot name."""
    if new_head_samples(name) is None:
        published_drafter(name)


def traffic_gap(drafter: PublishedDrafter) -> tuple[float, float]:
    """The gap from benchmarks to traffic and its standard deviation, both on the logit scale.

    That of all drafters of the class, updated (normal with normal) by those for the same geometry that have both.
    """
    kind = "mtp" if drafter.is_built_in else "heads"
    table = drafter_facts()["gap"][kind]
    mean, variance = float(table["logit"]), float(table["logit_sd"]) ** 2
    own = drafter_facts()["site"]["pair_logit_sd"] ** 2
    for other in published_drafters():
        if other.geometry is None or other.geometry != drafter.geometry or other.is_built_in != drafter.is_built_in:
            continue
        found = measured_gap(other)
        if found is not None:
            weight = variance / (variance + own)
            mean, variance = mean + weight * (found - mean), variance * (1.0 - weight)
    return mean, float(np.sqrt(variance))


@functools.cache
def measured_gap(drafter: PublishedDrafter) -> float | None:
    """Logit of c1 in traffic less that on benchmarks, where a drafter has both; else None."""
    decay = fitted_decay(drafter) or float(priors()["model"][drafter.method]["decay"])
    both = [_logits(drafter, setting, decay) for setting in ("traffic", "benchmark")]
    return float(both[0].mean() - both[1].mean()) if all(each.size for each in both) else None


def _logits(drafter: PublishedDrafter, setting: str, decay: float) -> Array:
    """Logit of c1 of every row of that setting, kind of text and temperature taken out."""
    found = []
    for figures in drafter.figures:
        if figures.setting != setting:
            continue
        greedy = 1.0 if figures.temperature is None else min(figures.temperature, 1.0)
        factor = float(priors()["spread"]["temperature_factor"]) ** (1.0 - greedy)
        for row in figures.rows:
            first = min(first_acceptance(row, decay) * factor, _MAX_FIRST)
            found.append(float(np.log(first / (1.0 - first))) - priors()["kind_logit"][row.kind])
    return np.array(found)


def first_acceptance(row: Row, decay: float) -> float:
    """c1 of a row with c_i = c1 decay^(i-1), read at the draft length nearest to the typical one."""
    i = min(range(len(row.k)), key=lambda j: abs(row.k[j] - _TYPICAL_K))
    accepted = np.array([min(row.length[i] - 1.0, float(row.k[i]))])
    return float(np.clip(constant_conditional(accepted, row.k[i], np.array([decay]))[0], 1e-3, 1.0))


@functools.cache
def fitted_decay(drafter: PublishedDrafter) -> float | None:
    """The decay per position that the rows with several draft lengths agree on, geometric mean; None without any."""
    fits = [_decay_of(row) for figures in drafter.figures for row in figures.rows if len(row.k) > 1]
    return float(np.exp(np.mean(np.log(fits)))) if fits else None


def _decay_of(row: Row) -> float:
    """The decay whose curve through the longest draft comes nearest to the other lengths (least squares)."""
    longest = row.k[-1]
    accepted = np.full(len(_DECAYS), min(row.length[-1] - 1.0, float(longest)))
    first = constant_conditional(accepted, longest, _DECAYS)
    curve = 1.0 + np.cumsum(unconditional(decaying_conditional(first, _DECAYS, longest)), axis=1)
    misses = ((curve[:, np.array(row.k) - 1] - np.array(row.length)) ** 2).sum(axis=1)
    return float(_DECAYS[int(np.argmin(misses))])


_ENDS = {"p05": -1.645, "p50": 0.0, "p95": 1.645}  # standard normal quantiles


def listed() -> list[dict[str, Any]]:
    """Every drafter as JSON: what it is for, what is expected of it in traffic, and where its figures come from."""
    return [_listed(drafter) for drafter in published_drafters()]


def _listed(drafter: PublishedDrafter) -> dict[str, Any]:
    found = estimate(drafter, None)
    ends = {name: 1.0 / (1.0 + float(np.exp(-found.logit - z * found.logit_sd))) for name, z in _ENDS.items()}
    return {
        "name": drafter.name,
        "method": drafter.method,
        "target": drafter.target,
        "weights_published": drafter.weights,
        "first_acceptance": ends,
        "basis": found.text,
        "sources": [figures.source for figures in drafter.figures],
    }
