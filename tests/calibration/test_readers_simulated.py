"""A closed loop simulated by hand, written as each tool would: all of them must lead back to its parameters."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.readers.read import read_evidence


def _closed_loop(users, rounds, step_s, survival, seed):
    """Requests of a closed loop in which every step takes `step_s` and yields 1 + the accepted drafts."""
    random = np.random.default_rng(seed)
    requests, counts, drafts = [], np.zeros(len(survival)), 0
    for user in range(users):
        clock = user * 1e-3
        for _ in range(rounds):
            tokens, gaps = 1, []
            while tokens < 400:
                accepted = int(np.sum(random.random() < np.array(survival)))
                counts[:accepted] += 1
                drafts += 1
                tokens += 1 + accepted
                gaps.append(step_s)
            latency = 0.02 + sum(gaps)
            requests.append((clock, 0.02, latency, tokens, gaps))
            clock += latency
    return requests, counts, drafts


def _bench(users, requests, counts, drafts, *, detailed):
    tpots = np.array([(latency - ttft) / (tokens - 1) for _, ttft, latency, tokens, _ in requests])
    gaps = np.concatenate([gaps for *_, gaps in requests])
    duration = max(start + latency for start, _, latency, _, _ in requests)
    record = {
        "max_concurrency": users,
        "request_rate": "inf",
        "completed": len(requests),
        "failed": 0,
        "duration": duration,
        "total_input_tokens": 50 * len(requests),
        "total_output_tokens": sum(tokens for *_, tokens, _ in requests),
        "request_throughput": len(requests) / duration,
        "mean_ttft_ms": 20.0,
        "mean_tpot_ms": tpots.mean() * 1e3,
        "median_tpot_ms": float(np.median(tpots)) * 1e3,
        "std_tpot_ms": tpots.std() * 1e3,
        "mean_itl_ms": gaps.mean() * 1e3,
        "median_itl_ms": float(np.median(gaps)) * 1e3,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafts * len(counts),
        "spec_decode_accepted_tokens": counts.sum(),
        "spec_decode_per_position_acceptance_rates": list(counts / drafts),
    }
    if detailed:
        record |= {
            "start_times": [item[0] for item in requests],
            "ttfts": [item[1] for item in requests],
            "latencies": [item[2] for item in requests],
            "output_lens": [item[3] for item in requests],
            "itls": [item[4] for item in requests],
            "input_lens": [50] * len(requests),
        }
    return record


@pytest.mark.parametrize("detailed", [False, True])
@settings(max_examples=25)
@given(
    users=st.integers(1, 6),
    step_s=st.floats(0.003, 0.08),
    first=st.floats(0.2, 0.95),
    later=st.floats(0.3, 0.95),
    k=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_step_time_tokens_per_step_and_acceptance_come_back(tmp_path_factory, detailed, **drawn):
    survival = [drawn["first"] * drawn["later"] ** index for index in range(drawn["k"])]
    users, step_s = drawn["users"], drawn["step_s"]
    requests, counts, drafts = _closed_loop(users, 12, step_s, survival, drawn["seed"])
    path = tmp_path_factory.mktemp("run") / "result.json"
    path.write_text(json.dumps(_bench(users, requests, counts, drafts, detailed=detailed)))
    evidence = read_evidence([path])
    assert not evidence.refused
    cell = evidence.cells[0]
    assert cell.concurrency == users
    assert cell.num_speculative_tokens == drawn["k"]
    assert cell.step_s == pytest.approx(step_s, rel=0.02)
    assert cell.tokens_per_step == pytest.approx(1 + counts.sum() / drafts, rel=0.03)
    assert np.array(cell.acceptance.accepted_per_position) == pytest.approx(counts)
    assert cell.draft_probability == pytest.approx(1.0, abs=0.05)
