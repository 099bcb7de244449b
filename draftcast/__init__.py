"""The front door: Click commands and a small Python facade. No arithmetic.

>>> import draftcast
>>> deployment = draftcast.load("examples/kimi-k2.5-8x-rtx-pro-6000.toml")  # doctest: +SKIP
>>> draftcast.choose(deployment).to_dict()["recommendation"]  # doctest: +SKIP
"""

TYPE_CHECKING = False  # true to type checkers; the module `typing` would delay `draftcast.start`
if TYPE_CHECKING:
    from calibration.session import calibrate
    from draftcast.api import choose, load, predict, whatif
    from simulator.options.compare import compare_options
    from simulator.ranks.step import step
    from simulator.serving.run import simulate
    from simulator.training.report import train_cost

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "calibrate",
    "choose",
    "compare_options",
    "load",
    "predict",
    "simulate",
    "step",
    "train_cost",
    "whatif",
]
# Not in `api`: what only one command needs costs start-up time, the event kernel and scipy most.
_APART = {
    "calibrate": "calibration.session",
    "compare_options": "simulator.options.compare",
    "simulate": "simulator.serving.run",
    "step": "simulator.ranks.step",
    "train_cost": "simulator.training.report",
}


def __getattr__(name: str) -> object:
    """The facade's function of that name, imported on first use: `import draftcast` alone loads no numpy."""
    if name not in __all__:
        raise AttributeError(f"module 'draftcast' has no attribute {name!r}; it has {', '.join(__all__)}")
    import importlib

    value: object = getattr(importlib.import_module(_APART.get(name, "draftcast.api")), name)
    globals()[name] = value
    return value
