"""Profiles made by hand: what a calibration would have found, without running one."""

from typing import Any

import numpy as np

from hwmodel.residual import NUM_LOG_FACTORS
from simulator.deployment import Deployment, load_deployment
from simulator.identity import identity_of
from simulator.profile import Profile
from simulator.system import build_system

BOX: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 2},
    "speculation": {"method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"conditional": [0.6]}},
    "workload": {"concurrency": [1, 8]},
}


def box(**tables: dict[str, Any]) -> Deployment:
    """The box with keys of some tables changed."""
    return load_deployment({**BOX, **{name: {**BOX.get(name, {}), **keys} for name, keys in tables.items()}})


def profile_of(deployment: Deployment, moved: dict[str, float] | None = None, **changes: Any) -> Profile:
    """A profile of the deployment in which parameters are known well, at the priors' medians or `moved` from there.

    `log_factors` among the changes sets the residual coordinates.
    """
    system = build_system(deployment)
    priors = system.priors.priors
    mode = np.zeros(len(priors) + NUM_LOG_FACTORS)
    mode[len(priors) :] = changes.pop("log_factors", 0.0)
    for name, value in (moved or {}).items():
        mode[[prior.name for prior in priors].index(name)] = value
    spread = np.concatenate([np.full(len(priors), 0.1), np.full(NUM_LOG_FACTORS, 0.01)])
    known: dict[str, Any] = {
        "identity": identity_of(system),
        "priors": priors,
        "mode": mode,
        "covariance": np.diag(spread**2),
        "created": "2026-01-02T03:04:05+00:00",
        "versions": {"draftcast": "0.1.0", "numpy": np.__version__},
        "model_error": 0.05,
        "method": "none",
        "settings": {},
        "stated_acceptance": "",
    }
    return Profile(**{**known, **changes})
