"""Run files as `draftcast measure` writes them, made from stated figures, and a ledger with predictions in it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from simulator.deployment import Deployment
from simulator.predict import predict
from validate.ledger.entries import prediction_entry
from validate.ledger.store import Ledger, Row

AFTER = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")  # of whatever the tests record
BEFORE = "2020-01-01T00:00:00+00:00"


def cell(
    concurrency: int = 1, k: int = 5, tpot_s: float = 0.0138, tokens_per_step: float = 1.2, **changes: Any
) -> dict:
    """A cell that may be used: at k = 0 a baseline, else with counted drafts that fit the tokens per step."""
    share = 0.25 if k else None
    accepted = 0.0 if not k else (tokens_per_step - 1.0) / 0.25
    steps = 4000.0
    positions = [round(min(1.0, accepted / k) * share * steps) for _ in range(k)] if k and share else []
    counted = {"drafts": 0.25 * steps, "accepted_per_position": positions, "steps": steps, "draft_probability": share}
    record = {
        "concurrency": concurrency,
        "measured_concurrency": 0.998 * concurrency,
        "num_speculative_tokens": k,
        "method": "ngram" if k else "none",
        "complete": True,
        "refused_reason": None,
        "tpot_s": {"mean": tpot_s},
        "step_s": tpot_s * (tokens_per_step if k else 1.0),
        "tokens_per_step": tokens_per_step if k else 1.0,
        "throughput_tokens_per_s": 0.98 * concurrency / tpot_s,
        "input_tokens": 1000,
        "output_tokens": 1000,
        "relative_noise": 0.02,
        "acceptance": counted if k else None,
        "num_requests": 60,
        "started": AFTER,
    }
    return record | changes


def run_record(*cells: dict, started: str | None = AFTER, **server: Any) -> dict:
    """A run of these cells."""
    facts = {"url": "http://host", "model": "kimi", "engine": "vllm", "engine_version": "0.16.0"}
    return {
        "format": "draftcast run 1",
        "server": facts | {"num_speculative_tokens": cells[0]["num_speculative_tokens"] if cells else None} | server,
        "cells": list(cells),
        "load": {"temperature": None, "seed": 0},
        "provenance": {} if started is None else {"started": started},
    }


def write_run(path: Path, *cells: dict, **options: Any) -> Path:
    """The run as a file."""
    path.write_text(json.dumps(run_record(*cells, **options)))
    return path


def record(path: Path, deployment: Deployment, **question: Any) -> Row:
    """Puts a prediction on file."""
    answer = predict(deployment, num_draws=200, **question).to_dict()
    with Ledger(path, writable=True) as ledger:
        return ledger.append(prediction_entry("predict", "1", "x", deployment, answer))
