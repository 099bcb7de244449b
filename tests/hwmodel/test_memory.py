"""Whether it fits, and how many requests: by hand, and Kimi-K2.5 on the cards that are known to hold it."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.gpus import load_gpu
from hwmodel.memory import DraftMemory, MemoryBudget, MemoryPlan, max_running_requests, plan_memory
from hwmodel.models import load_model
from hwmodel.parameters import prior_table
from hwmodel.rank import CacheWork, Head, Parallelism, RankWork, rank_work, work_of_layers
from hwmodel.specs import Attention, DenseMlp, Layer
from hwmodel.units import GB

CACHE_BYTES_PER_TOKEN = 10


def toy_work() -> RankWork:
    """One dense layer and a head: 1000 bytes of weights, 10 cache bytes a token."""
    attention = Attention(
        kind="gqa",
        parameters=100,
        sharded_bytes=200.0,
        replicated_bytes=0.0,
        num_heads=1,
        num_kv_heads=1,
        qk_head_dim=1,
        v_head_dim=1,
        cache_elements_per_token=5,
    )
    layers = (Layer(1, attention, dense=DenseMlp(150, 300.0)),)
    return work_of_layers(layers, Parallelism(), 2.0, Head(10, 25, 500.0))


WORK = toy_work()


def plan(work: RankWork = WORK, **changes: float) -> MemoryPlan:
    """Half of 4000 bytes, 200 of them reserved, at a context of 10 tokens."""
    facts = {"gpu_memory_bytes": 4000.0, "gpu_memory_utilization": 0.5, "reserve_bytes": 200.0, "context_tokens": 10.0}
    facts |= changes
    budget = MemoryBudget(**{f.name: facts[f.name] for f in fields(MemoryBudget) if f.name in facts})
    draft = DraftMemory(facts.get("draft_bytes", 0.0), facts.get("draft_kv_bytes_per_token", 0.0))
    parallel = Parallelism(pipeline=int(facts.get("pipeline_parallel", 1)))
    return plan_memory(work, parallel, budget, facts["context_tokens"], draft)


def with_cache(**changes: float) -> RankWork:
    cache: CacheWork = replace(WORK.cache[0], **changes)
    return replace(WORK, cache=(cache,))


def test_what_weights_and_reserve_leave_holds_the_cache() -> None:
    # 2000 - 1000 - 200 = 800 bytes, 10 a token.
    p = plan()
    assert (p.budget_bytes, p.weight_bytes, p.kv_cache_bytes) == (2000, 1000, 800)
    assert (p.kv_bytes_per_token, p.kv_cache_tokens, p.fits) == (CACHE_BYTES_PER_TOKEN, 80, True)


def test_a_drafter_takes_its_weights_and_its_share_of_every_token() -> None:
    # 800 - 200 = 600 bytes, 10 + 5 a token.
    p = plan(draft_bytes=200.0, draft_kv_bytes_per_token=5.0)
    assert (p.draft_bytes, p.kv_cache_bytes, p.kv_cache_tokens) == (200, 600, 40)


def test_weights_beside_the_language_model_count() -> None:
    assert plan(extra_weight_bytes=300.0).kv_cache_tokens == 50


def test_nothing_left_does_not_fit_and_holds_no_token() -> None:
    p = plan(reserve_bytes=1000.0)
    assert (p.fits, p.kv_cache_bytes, p.kv_cache_tokens) == (False, 0, 0)
    assert plan(reserve_bytes=5000.0).kv_cache_bytes == 0


def test_pipeline_stages_split_weights_and_cache() -> None:
    # A stage holds 500 bytes of weights and 5 a token: (2000 - 500 - 200) / 5.
    assert plan(pipeline_parallel=2).kv_cache_tokens == 260


def test_a_window_makes_long_contexts_cheaper_a_token() -> None:
    work = with_cache(window_tokens=5.0)
    assert plan(work, context_tokens=5.0).kv_bytes_per_token == 10
    assert plan(work, context_tokens=50.0).kv_bytes_per_token == 1


def test_recurrent_state_is_spread_over_the_tokens_of_its_sequence() -> None:
    work = with_cache(bytes_per_token=0.0, state_bytes_per_sequence=100.0)
    assert plan(work, context_tokens=10.0).kv_cache_tokens == 80
    assert plan(work, context_tokens=100.0).kv_cache_tokens == 800


def test_a_model_without_any_cache_has_no_limit() -> None:
    assert plan(with_cache(bytes_per_token=0.0)).kv_cache_tokens == float("inf")


@pytest.mark.parametrize(
    ("tokens", "per_request", "max_num_seqs", "expected"),
    [
        (1000.0, 100.0, 8, (8, "max_num_seqs")),
        (1000.0, 100.0, 10, (10, "max_num_seqs")),
        (1000.0, 100.0, 11, (10, "kv_cache")),
        (1000.0, 300.0, 11, (3, "kv_cache")),
        (99.0, 100.0, 11, (0, "kv_cache")),
    ],
)
def test_requests_are_limited_by_the_engine_or_by_whole_contexts(
    tokens: float, per_request: float, max_num_seqs: int, expected: tuple[int, str]
) -> None:
    assert max_running_requests(tokens, per_request, max_num_seqs) == expected


def test_the_reference_case_holds_126_requests_of_1500_tokens() -> None:
    # docs/model.md, headline findings: 190 k BF16 tokens at 1.5 k context.
    assert max_running_requests(190_000, 1_500, 256) == (126, "kv_cache")


def test_kimi_on_eight_96_gb_cards_leaves_what_operators_report() -> None:
    # rtx6kpro: 190k to 219k BF16 tokens; vision encoder replicated, 0.95 of the memory.
    shape = load_model("kimi-k2.5-int4")
    memory_bytes = load_gpu("rtx-pro-6000-blackwell-server").memory_bytes
    budget = MemoryBudget(memory_bytes, 0.95, prior_table()["memory_reserve_gb"]["median"] * GB, shape.vision_bytes)
    parallel = Parallelism(tensor=8)
    p = plan_memory(rank_work(shape, parallel, 2.0), parallel, budget, 1_500)
    assert 190_000 < p.kv_cache_tokens < 219_000


def test_kimi_does_not_fit_on_four_of_these_cards() -> None:
    parallel = Parallelism(tensor=4)
    budget = MemoryBudget(load_gpu("rtx-pro-6000-blackwell-server").memory_bytes, 0.95, 0.0)
    p = plan_memory(rank_work(load_model("kimi-k2.5-int4"), parallel, 2.0), parallel, budget, 1_500)
    assert not p.fits


@given(st.floats(0, 3000), st.floats(0, 3000), st.floats(0, 1e3), st.floats(1, 1e6))
def test_a_plan_adds_up_and_a_drafter_never_adds_room(
    reserve: float, draft: float, draft_kv: float, context: float
) -> None:
    without = plan(reserve_bytes=reserve, context_tokens=context)
    drafting = plan(reserve_bytes=reserve, context_tokens=context, draft_bytes=draft, draft_kv_bytes_per_token=draft_kv)
    assert drafting.kv_cache_tokens <= without.kv_cache_tokens
    used = drafting.weight_bytes + drafting.draft_bytes + drafting.reserve_bytes + drafting.kv_cache_bytes
    assert used == pytest.approx(max(drafting.budget_bytes, used))
    assert drafting.fits == (drafting.kv_cache_bytes > 0)
