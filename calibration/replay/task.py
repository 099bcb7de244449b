"""The whole job of `draftcast replay`: options checked, files read, one pass, the result as plain values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from calibration.replay.ngram import Lookup
from calibration.replay.report import report
from calibration.replay.run import Counted, Settings, replay
from calibration.replay.sources.files import Reading
from calibration.replay.suffix import SuffixSettings
from calibration.replay.versions import METHODS, EngineRules, check_variant, engine_version, variant_of
from hwmodel.engine.versions import format_version
from hwmodel.errors import InputError, UnknownNameError
from simulator.deployment.speculation import DEFAULT_LOOKUP_TOKENS, MAX_DRAFT_TOKENS

_MAX_LOOKUP_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says, unchecked."""

    method: str = "ngram"
    num_speculative_tokens: tuple[int, ...] = tuple(range(1, 9))
    prompt_lookup_min: int | None = None
    prompt_lookup_max: int | None = None
    max_model_len: int | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    variant: str | None = None
    suffix: SuffixSettings = field(default_factory=SuffixSettings)
    seed: int = 0


def replay_files(paths: Sequence[str], reading: Reading, options: Options) -> dict[str, Any]:
    """The result of `draftcast replay`: `inputs`, `results` by k, what was replayed, `warnings` and `notes`."""
    settings, inputs, notes = _settings(options)
    counted = replay(reading.recordings(paths), settings)
    if counted.recorded.too_long and not counted.recorded.requests:
        raise InputError(
            f"--max-model-len: got {options.max_model_len}, but every prompt is as long; allowed: the limit of the"
            " engine that is asked about"
        )
    if not counted.recorded.requests:
        noticed = "; ".join(reading.notes()) or "the files are empty"
        raise InputError(f"no recorded output in {len(paths)} file(s): {noticed}; allowed: at least one request")
    notes += tuple(reading.notes()) + _undrafted(counted, settings)
    return {
        "inputs": {"files": list(paths), **inputs},
        **report(counted, options.seed, options.max_model_len),
        "notes": list(notes),
    }


def _settings(options: Options) -> tuple[Settings, dict[str, Any], tuple[str, ...]]:
    """What is replayed, the same as plain values, and notes on what was assumed."""
    if options.method not in METHODS:
        raise UnknownNameError(f"--method: '{options.method}' cannot be replayed; known: {', '.join(METHODS)}")
    lengths, notes = _lengths(options.num_speculative_tokens)
    version, version_notes = engine_version(options.engine, options.engine_version)
    found, variant_notes = variant_of(options.method, version)
    drafter, inputs = (
        _suffix(options)
        if options.method == "suffix"
        else _lookup(options, check_variant(options.variant or found or ""))
    )
    if options.variant is None:
        notes += variant_notes
    notes += version_notes
    rules = EngineRules(version, options.max_model_len)
    described = {
        "method": options.method,
        "num_speculative_tokens": list(lengths),
        **inputs,
        "max_model_len": options.max_model_len,
        "engine": options.engine,
        "engine_version": None if version is None else format_version(version),
        "seed": options.seed,
    }
    return Settings(drafter, lengths, rules), described, notes


def _lengths(asked: Sequence[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Draft lengths, ascending; 0 is the baseline, which needs no replay."""
    lengths = tuple(sorted({k for k in asked if k}))
    if not lengths or lengths[-1] > MAX_DRAFT_TOKENS:
        raise InputError(f"-k: got {', '.join(map(str, asked))}, allowed: 1 to {MAX_DRAFT_TOKENS}")
    return lengths, (("k = 0 drafts nothing and is left out",) if 0 in asked else ())


def _lookup(options: Options, variant: str) -> tuple[Lookup, dict[str, Any]]:
    """The n-gram search; one bound alone sets the other, none sets both to 5, as vLLM 0.8.5 to 0.33 does."""
    low, high = options.prompt_lookup_min, options.prompt_lookup_max
    shortest = low or high or DEFAULT_LOOKUP_TOKENS
    longest = high or shortest
    if shortest > longest:
        raise InputError(f"--prompt-lookup-min: got {shortest}, allowed: up to --prompt-lookup-max, {longest}")
    if longest > _MAX_LOOKUP_TOKENS:
        raise InputError(f"--prompt-lookup-max: got {longest}, allowed: up to {_MAX_LOOKUP_TOKENS}")
    lookup = Lookup(variant, shortest, longest, options.max_model_len)
    return lookup, {"variant": variant, "prompt_lookup_min": shortest, "prompt_lookup_max": longest}


def _suffix(options: Options) -> tuple[SuffixSettings, dict[str, Any]]:
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("prompt_lookup_min", "prompt_lookup_max", "variant")
        if getattr(options, name) is not None
    ]
    if given:
        raise InputError(f"{given[0]}: got it for suffix, allowed: with --method ngram")
    for name in ("max_spec_factor", "min_token_prob"):
        if math.isnan(getattr(options.suffix, name)):
            raise InputError(f"--suffix-{name.replace('_', '-')}: got nan, allowed: a number")
    settings = replace(options.suffix, max_model_len=options.max_model_len)
    names = [item.name for item in fields(settings) if item.name != "max_model_len"]
    return settings, {f"suffix_{name}": getattr(settings, name) for name in names}


def _undrafted(counted: Counted, settings: Settings) -> tuple[str, ...]:
    """What this version does with requests whose sampling parameters it cannot draft for."""
    found = counted.recorded.undraftable
    if not found or not settings.rules.needs_plain_sampling:
        return ()
    total, names = sum(found.values()), ", ".join(sorted(found))
    return (f"{total} requests set {names}: vLLM up to 0.13 drafts nothing for them, and so does this replay",)
