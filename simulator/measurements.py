"""Measurements that could be made before deciding: what each would show at every draw, how precisely, at what cost.

The same list as `draftcast calibrate` proposes (docs/calibration.md), as outcomes on draws instead of slopes of a fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.records import dataclass
from hwmodel.step import allreduce_time_s
from simulator.acceptance import AcceptanceDraws
from simulator.acceptance_priors import priors
from simulator.closed_form import capacity
from simulator.comparison import Comparison
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.deployment.tables import Measured
from simulator.facts import CURVE_NOISE, CURVE_SIZES_BYTES, RUN_NOISE, RUN_REQUESTS, SHARE_NOISE, predicted_fact
from simulator.information import Signal
from simulator.study import Study

Array = NDArray[np.float64]

# Minutes that each takes, an estimate: `draftcast measure` runs a load for 60 s after 10 s of warm-up.
LOAD_MIN, NCCL_MIN, PROFILE_MIN, REPLAY_MIN, LOG_MIN = 1.2, 3.0, 5.0, 1.0, 1.0
_SWITCH = "verify_path_applies"
_CERTAIN = 0.01  # noise of what is read rather than measured
_MOST_LOADS = 5
_SAME_LOAD = 1.2  # ratio within which a load counts as measured
_LONGER = 4.0  # times the present context
_LONGEST_SHARE = 0.8  # of what the model takes
_RATIO_NOISE = RUN_NOISE * 2**0.5  # of two runs


@dataclass(frozen=True)
class Measurement:
    """One measurement: what to do, how long it takes, restarts before its result, and what it would show.

    `leaves` is the choice that the server runs afterwards, (method, k); None: as before.
    """

    name: str
    text: str
    command: str | None
    minutes: float
    restarts: int
    signal: Signal
    leaves: tuple[str, int] | None = None


def measurements(comparisons: Sequence[Comparison], tested: Sequence[int]) -> list[Measurement]:
    """What could be measured, in no order: of the baseline once, and of each method with its draft length `tested`."""
    baseline = _Baseline(comparisons[0].study, comparisons[0].loads)
    found = [*baseline.sweep(), *baseline.longer_context(), *baseline.nccl_tests(), *baseline.profile()]
    if any(_backend_matters(c.study, k) for c, k in zip(comparisons, tested, strict=True)):
        found += baseline.engine_log()
    synchronous = [c for c, k in zip(comparisons, tested, strict=True) if _loses_async(c.study, k)]
    if synchronous:
        found += baseline.synchronous()
    for comparison, k in zip(comparisons, tested, strict=True):
        method = comparison.study.system.method
        if method in LOOKUP_METHODS and not _counted(comparison.study):
            found.append(_replay(comparison.study, k))
        found.append(_run(comparison, k))
    return found


def _backend_matters(study: Study, k: int) -> bool:
    """Whether it is open which attention backend verifies drafts, and the deduced one does it in its prefill branch."""
    return study.system.mode(k).multi_token_rows_as_prefill and 0.0 < study.system.priors[_SWITCH].center < 1.0


def _counted(study: Study) -> bool:
    """Whether the acceptance in use was replayed or counted, which another replay would only repeat."""
    stated = (study.speculation or study.deployment.speculation).acceptance
    return stated is not None and stated.form in ("replay", "counters")


def _loses_async(study: Study, k: int) -> bool:
    return study.system.mode(0).async_scheduling and not study.system.mode(k).async_scheduling


@dataclass(frozen=True)
class _Baseline:
    study: Study
    asked: tuple[int, ...]

    def _facts(self, facts: Sequence[Measured], study: Study | None = None) -> Array:
        """What the model says of the facts at every draw, on the scales of `observations_of`."""
        study = study or self.study
        with np.errstate(divide="ignore"):  # answers of one token have no throughput, which is not asked for
            return np.concatenate([predicted_fact(study.system, study.parameters, fact) for fact in facts], axis=1)

    def _loads(self) -> list[int]:
        """The loads asked about, as far as they run at once, a few of them."""
        held = max(capacity(self.study.system, 0, self.study.kv_cache_tokens).max_running, 1)
        every = sorted({min(c, held) for c in self.asked})
        index = np.unique(np.round(np.linspace(0, len(every) - 1, min(_MOST_LOADS, len(every)))).astype(int))
        return [every[i] for i in index]

    def sweep(self) -> Iterator[Measurement]:
        """Loads of the running baseline that were not measured."""
        told = [f.concurrency for f in self.study.deployment.measured_on.measured if f.tpot_ms or f.step_ms]
        new = [c for c in self._loads() if not any(1 / _SAME_LOAD < c / known < _SAME_LOAD for known in told)]
        if not new:
            return
        values = self._facts([Measured(concurrency=c, tpot_ms=1.0) for c in new])
        text = f"measure the running baseline at concurrency {_listed(new)}"
        command = f"draftcast measure URL -c {','.join(map(str, new))}"
        yield Measurement("baseline sweep", text, command, LOAD_MIN * len(new), 0, _signal(values, RUN_NOISE))

    def longer_context(self) -> Iterator[Measurement]:
        """The baseline at a context four times as long."""
        study = self.study
        context = round(study.system.context_tokens * _LONGER)
        longest = study.deployment.engine.max_model_len or study.system.shape.max_position_embeddings
        known = [f.context_tokens or study.system.context_tokens for f in study.deployment.measured_on.measured]
        if context > _LONGEST_SHARE * longest or any(tokens > context / 2 for tokens in known):
            return
        held = capacity(study.system, 0, study.kv_cache_tokens).memory.kv_cache_tokens * study.system.parallel.data
        loads = self._loads()
        fitting = [load for load in loads[: len(loads) // 2 + 1] if load * context <= held]
        if not fitting:
            return
        ends = sorted({fitting[0], fitting[-1]})
        values = self._facts([Measured(concurrency=c, tpot_ms=1.0, context_tokens=context) for c in ends])
        text = f"measure the running baseline at a context of {context:,} tokens, concurrency {_listed(ends)}"
        yield Measurement("longer context", text, None, LOAD_MIN * len(ends), 0, _signal(values, RUN_NOISE))

    def nccl_tests(self) -> Iterator[Measurement]:
        """The AllReduce curve."""
        system = self.study.system
        if system.parallel.tensor == 1 or system.machine.allreduce.kind == "user":
            return
        values = np.log(allreduce_time_s(system.machine, CURVE_SIZES_BYTES, self.study.parameters))
        ranks = system.parallel.tensor
        command = f"all_reduce_perf -b 4K -e 16M -f 2 -g {ranks}"
        text = f"run nccl-tests on the {ranks} GPUs, beside the idle server"
        yield Measurement("nccl-tests", text, command, NCCL_MIN, 0, _signal(np.asarray(values), CURVE_NOISE))

    def profile(self) -> Iterator[Measurement]:
        """The profiler's share of AllReduce."""
        system = self.study.system
        if system.parallel.tensor == 1 or any(f.allreduce_share for f in self.study.deployment.measured_on.measured):
            return
        values = self._facts([Measured(concurrency=1, allreduce_share=0.5)])
        text = "profile some decode steps at concurrency 1: AllReduce's share"
        yield Measurement("profiler", text, None, PROFILE_MIN, 0, _signal(values, SHARE_NOISE))

    def engine_log(self) -> Iterator[Measurement]:
        """Which attention backend the engine chose, as its log says at start-up."""
        backend = self.study.system.mode(0).attention_backend
        applies = np.array(np.broadcast_to(self.study.parameters.verify_path_applies, (len(self.study.z), 1)))
        text = (
            f"read the attention backend in the engine's log ({backend} is assumed) and state engine.attention_backend"
        )
        yield Measurement("engine log", text, None, LOG_MIN, 0, _signal(applies, _CERTAIN))

    def synchronous(self) -> Iterator[Measurement]:
        """The baseline without asynchronous scheduling, at the ends of the loads."""
        study, loads = self.study, self._loads()
        system = study.system
        mode = replace(system.mode(0), async_scheduling=False)
        changed = replace(study, system=replace(system, mode=lambda k: mode if k == 0 else system.mode(k)))
        ends = sorted({loads[0], loads[-1]})
        values = self._facts([Measured(concurrency=c, tpot_ms=1.0) for c in ends], changed)
        flag = "--no-async-scheduling" if mode.engine == "vllm" else "--disable-overlap-schedule"
        text = f"one restart of the baseline with {flag}, concurrency {_listed(ends)}"
        signal = _signal(values - self._facts([Measured(concurrency=c, tpot_ms=1.0) for c in ends]), _RATIO_NOISE)
        yield Measurement("synchronous baseline", text, None, LOAD_MIN * len(ends), 1, signal, ("synchronous", 0))


def _signal(values: Array, noise: float) -> Signal:
    return Signal(values, np.full(values.shape[1], noise))


def _replay(study: Study, k: int) -> Measurement:
    method = study.system.method
    text = f"replay {RUN_REQUESTS} recorded outputs: acceptance of {method} without a restart"
    command = f"draftcast replay FILE --method {'suffix' if method == 'suffix' else 'ngram'} -k {k}"
    signal = _acceptance(study.acceptance.for_length(k), k, method)
    return Measurement(f"replay ({method})", text, command, REPLAY_MIN, 0, signal)


def _run(comparison: Comparison, k: int) -> Measurement:
    """A restart with the method: speedups at the loads (model error included) and its acceptance counters."""
    study, method = comparison.study, comparison.study.system.method
    index = comparison.lengths.index(k)
    loads = np.unique(np.round(np.linspace(0, len(comparison.loads) - 1, _MOST_LOADS)).astype(int))
    speedups = np.log(comparison.gain[:, index, loads])
    counted = _acceptance(study.acceptance.for_length(k), k, method)
    signal = Signal(
        np.concatenate([speedups, counted.values], axis=1),
        np.concatenate([np.full(speedups.shape[1], _RATIO_NOISE), counted.noise]),
    )
    where = _listed([comparison.loads[i] for i in loads])
    text = f"one restart with {method} k={k}, concurrency {where}, acceptance counters kept"
    command = f"draftcast measure URL -c {','.join(str(comparison.loads[i]) for i in loads)}"
    return Measurement(f"run {method} k={k}", text, command, LOAD_MIN * len(loads), 1, signal, (method, k))


def _acceptance(acceptance: AcceptanceDraws, k: int, method: str) -> Signal:
    """Accepted share of the drafted tokens and, for text lookup, the share of steps with a draft, as counted.

    Noise: of a mean over `RUN_REQUESTS` requests that differ by a Beta with concentration kappa (docs/model.md,
    "Acceptance").
    """
    accepted = acceptance.survival[:, :k].mean(axis=1, keepdims=True)
    columns = [accepted, acceptance.draft_probability] if method in LOOKUP_METHODS else [accepted]
    kappa = float(priors()["spread"]["kappa_median"])
    means = np.array([float(np.clip(column.mean(), 0.01, 0.99)) for column in columns])
    noise = np.sqrt(means * (1.0 - means) / (kappa + 1.0) / RUN_REQUESTS)
    return Signal(np.concatenate(columns, axis=1), noise)


def _listed(loads: Sequence[int]) -> str:
    return ", ".join(map(str, loads))
