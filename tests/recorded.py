"""Results of benchmark tools small enough to work out by hand."""

# Four users, 40 requests of 100 + 101 tokens: TPOT 10 ms, TTFT 50 ms, so 1.05 s each and 10.5 s in ten rounds.
RESULT = {
    "date": "20260101-000000",
    "backend": "vllm",
    "model_id": "org/m",
    "num_prompts": 40,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 4,
    "duration": 10.5,
    "completed": 40,
    "failed": 0,
    "total_input_tokens": 4000,
    "total_output_tokens": 4040,
    "request_throughput": 3.81,
    "output_throughput": 384.8,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 10.0,
    "median_tpot_ms": 10.0,
    "std_tpot_ms": 0.5,
    "mean_itl_ms": 10.0,
    "median_itl_ms": 10.0,
}
SPECULATIVE = {  # a draft of two tokens on every step: 40 requests x 50 steps, 1.2 + 0.8 tokens each
    "mean_itl_ms": 20.0,
    "median_itl_ms": 20.0,
    "spec_decode_acceptance_rate": 50.0,
    "spec_decode_acceptance_length": 2.0,
    "spec_decode_num_drafts": 2000,
    "spec_decode_draft_tokens": 4000,
    "spec_decode_accepted_tokens": 2000,
    "spec_decode_per_position_acceptance_rates": [0.6, 0.4],
}
