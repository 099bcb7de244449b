"""Measurements that could still be made, as questions to the model: what each would tell is computed, not assumed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.forward import Forward
from calibration.plan import Fitted, Plan
from calibration.questions import Quantity, Question, Setting
from hwmodel.step import allreduce_time_s
from simulator.closed_form import capacity
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.facts import CURVE_NOISE, CURVE_SIZES_BYTES, RUN_NOISE, RUN_REQUESTS, SHARE_NOISE
from simulator.study import Study
from simulator.system import build_system

Array = NDArray[np.float64]

_MOST_LOADS = 8
_LONGER = 4.0  # times the present context


@dataclass(frozen=True)
class Candidate:
    """A measurement: its name, what to do, and what the model says of it `(rows of coordinates) -> (rows, m)`."""

    name: str
    text: str
    restarts: int
    predict: Callable[[Array], Array]
    noise: Array
    counts_acceptance: bool = False


def candidates(plan: Plan, fitted: Fitted, study: Study, num_speculative_tokens: int) -> list[Candidate]:
    """What could be measured on this deployment and has not been, in no order."""
    asked = _Asked(plan, fitted, study, num_speculative_tokens)
    return [*asked.allreduce(), *asked.sweeps(), *asked.restarts(), *asked.replays()]


@dataclass(frozen=True)
class _Asked:
    plan: Plan
    fitted: Fitted
    study: Study
    k: int

    def allreduce(self) -> Iterator[Candidate]:
        """nccl-tests and the profiler's share."""
        system = self.plan.system
        if system.parallel.tensor == 1:
            return
        if system.machine.allreduce.kind != "user":

            def curve(y: Array) -> Array:
                p = self.fitted.forward.parameters(y)
                return np.asarray(np.log(allreduce_time_s(system.machine, CURVE_SIZES_BYTES, p)))

            text = f"run nccl-tests on the {system.parallel.tensor} GPUs (all_reduce_perf -b 4K -e 16M -f 2 -g N)"
            yield Candidate("nccl-tests", text, 0, curve, np.full(len(CURVE_SIZES_BYTES), CURVE_NOISE))
        if not any(q.quantity == "allreduce_share" for q in self.plan.questions):
            question = replace(self._question(1.0), quantity="allreduce_share", noise=SHARE_NOISE)
            yield self._of("profiler", "profile some decode steps at concurrency 1: AllReduce's share", [question])

    def sweeps(self) -> Iterator[Candidate]:
        """More loads of the running baseline, and a longer context."""
        loads = self._loads(self.k)
        told = [q.requests for q in self.plan.questions if not q.drafts and q.quantity != "allreduce_share"]
        new = [c for c in loads if not any(abs(np.log(c / known)) < np.log(1.2) for known in told)]
        if new:
            text = f"measure the running baseline at concurrency {_listed(new)}"
            yield self._of("wider sweep", text, [self._question(c) for c in new])
        context = self.study.system.context_tokens * _LONGER
        known = [q.context_tokens for q in self.plan.questions]
        longest = self.study.deployment.engine.max_model_len or self.study.system.shape.max_position_embeddings
        if context < longest and all(context > 1.5 * tokens for tokens in known):
            far = [loads[0], loads[len(loads) // 2]]
            text = f"measure the running baseline at a context of {context:,.0f} tokens, concurrency {_listed(far)}"
            yield self._of("longer context", text, [replace(self._question(c), context_tokens=context) for c in far])

    def restarts(self) -> Iterator[Candidate]:
        """The speculative run itself, and the baseline without async scheduling."""
        system, loads = self.plan.system, self._loads()
        method = system.method
        drafting = any(q.drafts and q.setting.method == method for q in self.plan.questions)
        setting = replace(self._question(1.0).setting, num_speculative_tokens=self.k)
        share = self.study.acceptance.for_length(self.k).median_draft_probability
        run = [replace(self._question(c), setting=setting, tokens_per_step=2.0, draft_probability=share) for c in loads]
        again = "another" if drafting else "one"
        text = f"{again} restart with {method} k={self.k} and a concurrency sweep ({_listed(loads)}), /metrics kept"
        yield replace(self._of("speculative run", text, run, restarts=1), counts_acceptance=True)
        if system.mode(0).async_scheduling and not system.mode(self.k).async_scheduling:
            engine = system.deployment.engine.changed(async_scheduling=False)
            changed = system.deployment.changed(engine=engine)
            synchronous = replace(build_system(changed, self.plan.curve), priors=system.priors)
            ends = [self._question(c) for c in (loads[0], loads[-1])]
            flag = "--no-async-scheduling" if engine.name == "vllm" else "--disable-overlap-schedule"
            text = f"one restart of the baseline with {flag}, concurrency {_listed([loads[0], loads[-1]])}"
            forward = Forward(synchronous, ends, self.fitted.forward.coordinates, self.plan.curve)
            yield Candidate("synchronous baseline", text, 1, forward.predict, _noises(ends))

    def replays(self) -> Iterator[Candidate]:
        """Acceptance from recorded outputs."""
        if self.plan.system.method in LOOKUP_METHODS:
            text = f"replay {RUN_REQUESTS} recorded outputs (draftcast replay): acceptance without a restart"
            nothing = np.zeros(0)
            yield Candidate("replay", text, 0, lambda y: np.zeros((len(y), 0)), nothing, counts_acceptance=True)

    def _loads(self, drafts: int = 0) -> list[float]:
        """The workload's concurrencies as far as they run at once, with powers of two up to `drafts` + 1 times them."""
        own = self.study.deployment.workload.concurrency
        held = max(capacity(self.study.system, 0, self.study.kv_cache_tokens).max_running, 1)
        loads = {float(min(c, held)) for c in own}
        if drafts:
            most = min(max(own) * (drafts + 1), held)
            loads |= {float(2**i) for i in range(17) if 2**i <= most}
        every = sorted(loads)
        chosen = np.unique(np.round(np.linspace(0, len(every) - 1, min(_MOST_LOADS, len(every)))).astype(int))
        return [every[i] for i in chosen]

    def _question(self, requests: float, quantity: Quantity = "tpot") -> Question:
        workload = self.study.deployment.workload
        return Question(
            source="proposed",
            quantity=quantity,
            value=1.0,
            noise=RUN_NOISE,
            setting=Setting(self.plan.system.method, 0, workload.input_tokens, max(workload.output_tokens, 2)),
            requests=requests,
            context_tokens=self.study.system.context_tokens,
            with_prompts=requests > 1,
        )

    def _of(self, name: str, text: str, questions: Sequence[Question], restarts: int = 0) -> Candidate:
        held = self.fitted.forward.fixed
        forward = Forward(self.plan.system, questions, self.fitted.forward.coordinates, self.plan.curve, held)
        return Candidate(name, text, restarts, forward.predict, _noises(questions))


def _noises(questions: Sequence[Question]) -> Array:
    return np.array([q.noise for q in questions])


def _listed(loads: Sequence[float]) -> str:
    return ", ".join(f"{load:g}" for load in loads)
