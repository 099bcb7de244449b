"""Engine-side changes: a newer version, another attention backend, full graphs, the V2 runner, async scheduling kept.

What each changes comes from the engine's mode, which is known by version; that kernels keep their speed is assumed.
"""

from collections.abc import Iterable, Iterator

from hwmodel.engine.backends import usable_backends
from hwmodel.engine.records import EngineMode
from hwmodel.engine.versions import Version, format_version, newest_version
from hwmodel.models import attention_kind
from simulator.deployment import apply_overrides
from simulator.options.build import SAME_ENGINE, Words, restart_experiment
from simulator.options.moves import Changes, Today, move_option
from simulator.options.record import Need, Option
from simulator.options.situation import Situation
from simulator.system import System, build_system

_BEST_GRAPHS = "FULL_AND_PIECEWISE"  # full ones in decode, piecewise elsewhere: no mode replays more of a step
_GRAPH_MODES_CAME: Version = (0, 10, 1)  # vllm PR 20059; before it there was full_cuda_graph
_PROBE_LENGTH = 3  # drafted tokens at which modes are compared
_RESTART = "one restart with it, and `draftcast measure` before and after"
_KERNELS = "engine changes: kernels keep their speed, only what the engine does around them changes"


def options(situation: Situation, today: Today) -> Iterable[Option]:
    """The engine-side changes that do something for this deployment."""
    for changes, name, needs in _changes(situation):
        difference = mode_difference(situation, changes, today)
        if not difference:
            continue
        words = Words(name, "engine", SAME_ENGINE, restart_experiment(situation, _RESTART), needs, (_KERNELS,))
        option = move_option(situation, changes, today, words._replace(notes=difference))
        if option is not None:
            yield option


def _changes(situation: Situation) -> Iterator[tuple[Changes, str, tuple[Need, ...]]]:
    """Overrides, a name and the needs of every engine-side change, whether it does anything here or not."""
    system, engine = situation.today.study.system, situation.deployment.engine
    mode, newest = system.mode(0), newest_version(engine.name)
    if mode.version < newest:
        text = f"{engine.name} {format_version(newest)}"
        need = Need("software", f"{text} instead of {format_version(mode.version)}", {})
        yield (f"engine.version={format_version(newest)}",), f"newer engine: {text}", (need,)
    if engine.enforce_eager:
        yield ("engine.enforce_eager=false",), "CUDA graphs", ()
    if engine.name != "vllm":
        return
    for backend in usable_backends(attention_kind(system.shape), system.gpu.sm_arch):
        if backend != mode.attention_backend:
            yield (f"engine.attention_backend={backend}",), f"attention backend {backend}", ()
    if engine.cudagraph_mode != _BEST_GRAPHS and mode.version >= _GRAPH_MODES_CAME:
        yield (f"engine.cudagraph_mode={_BEST_GRAPHS}",), f"cudagraph_mode {_BEST_GRAPHS}", ()
    if engine.model_runner != "v2":
        yield ("engine.model_runner=v2",), "model runner V2", ()
    if engine.async_scheduling is not True:
        yield ("engine.async_scheduling=true",), "async scheduling", ()


def mode_difference(situation: Situation, changes: Changes, today: Today) -> tuple[str, ...]:
    """What the engine does otherwise after `changes`, in words: without drafts and with the drafters in question."""
    found: dict[str, list[str]] = {}
    for drafter in ((), *today.drafters):
        before, after = (_system(situation, each) for each in (drafter, (*changes, *drafter)))
        if before is None or after is None:
            continue
        k = _PROBE_LENGTH if drafter else 0
        for text in _differences(before.mode(k), after.mode(k)):
            methods = found.setdefault(text, [])
            methods += [] if after.method in methods else [after.method]
    return tuple(text if "none" in methods else f"{text} with {', '.join(methods)}" for text, methods in found.items())


def _system(situation: Situation, changes: Changes) -> System | None:
    try:
        return build_system(apply_overrides(situation.deployment, changes or ("speculation.method=none",)))
    except ValueError:  # every stated error is one
        return None


def _differences(before: EngineMode, after: EngineMode) -> Iterator[str]:
    """What is otherwise in a mode, as far as it costs or saves time."""
    if after.async_scheduling != before.async_scheduling:
        yield f"async scheduling {'on' if after.async_scheduling else 'off'}"
    if after.uniform_decode_graph != before.uniform_decode_graph:
        yield f"{_graphs(after.uniform_decode_graph)} in decode"
    if after.mixed_decode_graph != before.mixed_decode_graph:
        yield f"{_graphs(after.mixed_decode_graph)} beside prompts"
    if after.multi_token_rows_as_prefill != before.multi_token_rows_as_prefill:
        yield "rows with drafts " + ("go" if after.multi_token_rows_as_prefill else "no longer go") + " through prefill"
    if after.attention_backend != before.attention_backend:
        yield f"attention by {after.attention_backend}"
    if after.capture_sizes and before.capture_sizes and after.capture_sizes[-1] != before.capture_sizes[-1]:
        yield f"graphs up to {after.capture_sizes[-1]} tokens instead of {before.capture_sizes[-1]}"
    if after.max_num_batched_tokens != before.max_num_batched_tokens:
        yield f"steps of up to {after.max_num_batched_tokens} tokens instead of {before.max_num_batched_tokens}"
    if after.ngram_variant != before.ngram_variant and after.ngram_variant:
        yield f"the n-gram search {after.ngram_variant}"


def _graphs(kind: str) -> str:
    return {"full": "full graphs", "piecewise": "piecewise graphs", "none": "no graphs"}[kind]
