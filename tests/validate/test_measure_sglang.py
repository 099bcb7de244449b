"""An SGLang server measured and watched: its recorded /metrics, with counters that follow the load."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from fault_server import FaultServer

from calibration.readers.prometheus_text import scrapes_of
from validate.client.scrapes import Counted, window_between
from validate.client.target import Target
from validate.measure.load_run import LoadRun, Plan
from validate.measure.passive import PassivePlan, PassiveRun
from validate.measure.prompts import Prompt, PromptSet
from validate.measure.settings import Limits, Load

SAMPLE = (Path(__file__).parents[1] / "data/measurements/sglang_metrics.txt").read_text()
PROMPTS = PromptSet((Prompt(text="a b c", kind="any"),), "test", "0" * 64)
STEPS, PER_STEP, OUTPUT = 3, 2, 41
INFO = {"version": "0.5.5", "tp_size": 1, "speculative_algorithm": "EAGLE3", "speculative_num_steps": STEPS,
        "speculative_eagle_topk": 1}  # fmt: skip


def sample_with(**values: float) -> str:
    """The recorded text with other values, and the counters of requests that the recording left out."""
    text = SAMPLE
    for name, value in values.items():
        text, found = re.subn(rf"(?m)^(sglang:{name}\{{.*\}}) .*$", rf"\g<1> {value!r}", text)
        if not found:
            text += f'sglang:{name}{{engine_type="unified",model_name="org/m"}} {value!r}\n'
    return text


class SglangServer(FaultServer):
    """The stream of the toy server under SGLang's metrics: times between tokens are per token, not per step."""

    def metrics_text(self) -> str:
        counters = self.counters
        with counters.lock:
            values, running = dict(counters.values), float(counters.running)
        tokens, first = values["generation_tokens_total"], values["time_to_first_token_seconds_count"]
        return sample_with(
            num_running_reqs=running,
            spec_accept_length=float(PER_STEP),
            generation_tokens_total=tokens,
            prompt_tokens_total=values["prompt_tokens_total"],
            num_requests_total=values["request_success_total"],
            time_to_first_token_seconds_count=first,
            time_to_first_token_seconds_sum=values["time_to_first_token_seconds_sum"],
            inter_token_latency_seconds_count=tokens - first,
            inter_token_latency_seconds_sum=values["inter_token_latency_seconds_sum"],
        )


def run_on(server: FaultServer) -> dict:
    limits = Limits(precision=1.0, min_requests=4, cell_s=5.0, warmup_s=0.0, observe_s=0.02, gauge_s=0.05, settle_s=1.0)
    found = LoadRun(Plan(Target(server.url), Load((2,), output_tokens=OUTPUT), limits, PROMPTS))
    found.run()
    return found.result()


def test_a_load_run_on_sglang_counts_by_usage_and_takes_the_steps_of_the_client() -> None:
    with SglangServer(k=STEPS, tokens_per_step=PER_STEP, pace_s=0.005) as server:
        server.ids = False
        server.pages = {
            "/get_server_info": INFO,
            "/version": {},
            "/v1/models": {"data": [{"id": "toy", "owned_by": "sglang", "max_model_len": 4096}]},
        }
        result = run_on(server)
    cell = result["cells"][0]
    facts = result["server"]
    assert (facts["engine"], facts["engine_version"], facts["method"]) == ("sglang", "0.5.5", "eagle3")
    assert facts["num_speculative_tokens"] == STEPS
    assert (cell["complete"], cell["refused_reason"]) == (True, None)
    assert cell["client"]["counted_by"] == "usage"
    assert cell["tokens_per_step"] == pytest.approx(PER_STEP, rel=0.06)
    assert cell["tpot_s"]["mean"] == pytest.approx(cell["step_s"] / PER_STEP, rel=0.3)
    sides = {check["name"]: check for check in cell["checks"]}
    assert sides["tokens"]["client"] == sides["tokens"]["server"] > 0
    assert sides["requests"]["client"] == sides["requests"]["server"]
    assert cell["server"]["tpot_s"] == pytest.approx(cell["client"]["tpot_s"]["mean"], rel=0.3)


def snapshot(seconds: float, running: float = 4.0, per_token_s: float = 0.01) -> Counted:
    """The recorded server after so many seconds of one load."""
    tokens = running * seconds / per_token_s
    text = sample_with(
        num_running_reqs=running,
        generation_tokens_total=59757.0 + tokens,
        prompt_tokens_total=120000.0 + tokens,
        inter_token_latency_seconds_sum=410.2 + per_token_s * tokens,
        inter_token_latency_seconds_count=59700.0 + tokens,
        time_to_first_token_seconds_count=100.0 + tokens / 200,
        time_to_first_token_seconds_sum=20.0 + tokens / 1000,
    )
    (scrape,) = scrapes_of(text, "/metrics")
    scrape.time_s = seconds
    return Counted(seconds, scrape)


def test_traffic_of_sglang_is_watched_without_load() -> None:
    run = PassiveRun(PassivePlan(Target("http://127.0.0.1:9"), 1.0))
    scrapes = [snapshot(10.0 * n) for n in range(6)]
    for before, after in pairwise(scrapes):
        found, reason = window_between(before, after)
        assert reason is None
        run.traffic.add(found)
    (cell,) = run.result()["cells"]
    assert cell["measured_concurrency"] == pytest.approx(4.0)
    assert cell["tpot_s"]["mean"] == pytest.approx(0.01)
    assert cell["tokens_per_step"] == pytest.approx(2.8)  # the gauge of the recording
    assert cell["step_s"] == pytest.approx(0.028)
