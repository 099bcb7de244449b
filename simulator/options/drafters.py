"""Drafters: text lookup, the model's own MTP layers, published heads, separate draft models, trees."""

from collections.abc import Iterable, Iterator, Sequence

from hwmodel.models import load_model, model_names
from hwmodel.percent import percent
from hwmodel.specs import ModelShape
from hwmodel.units import GB
from simulator.closed_form import memory_plan
from simulator.deployment import Deployment
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.options.build import EXACT, Words, one_restart, option_of, weights_needs
from simulator.options.moves import Changes, lengths_of
from simulator.options.record import Experiment, Need, Option
from simulator.options.situation import Outcome, Situation
from simulator.published_drafters import PublishedDrafter, drafters_for, expected_accepted, name_words

OWN_PER_METHOD = 2  # published heads of one method that are worth comparing
MAX_DRAFT_MODELS = 2
SMALLER = 0.1  # a draft model has at most this share of the parameters that the target computes with
REPLAY = Experiment(
    "`draftcast replay` on recorded answers: the acceptance of text lookup without any restart",
    0.0,
    "draftcast replay FILE... --method {method} -k 1-8 -o replay.json",
)
TREES = {3: 5, 4: 7}  # branches a node: draft steps, of the trees that were published beside chains (SpecBundle)
_WIDE_LOOKUP = ("speculation.prompt_lookup_min=2", "speculation.prompt_lookup_max=4")


def options(situation: Situation) -> Iterable[Option]:
    """Every drafter that exists for the model and that this engine can run, at its best draft length."""
    return usable_options(situation, list(candidates(situation))).values()


def usable_options(situation: Situation, found: Sequence[tuple[Changes, Words]]) -> dict[Changes, Option]:
    """The options of candidates by their overrides; those that the engine refuses or that do not fit are left out."""
    usable_ones = {}
    for candidate, words in found:
        outcome = situation.possible(candidate, lengths_of(situation, candidate))
        if isinstance(outcome, Outcome) and usable(outcome):
            usable_ones[candidate] = drafter_option(outcome, words)
    return usable_ones


def usable(outcome: Outcome) -> bool:
    """Whether the engine accepts any draft length of it and the model still fits."""
    return any(k and outcome.scores.allowed[i].any() for i, k in enumerate(outcome.scores.lengths))


def drafter_option(outcome: Outcome, words: Words) -> Option:
    """The option of a drafter at its best length over the traffic, its weights and memory among the needs."""
    k = outcome.pick.best_enabled
    needs = (*words.needs, *weights_needs(outcome), *memory_needs(outcome))
    experiment = words.next_experiment
    if not experiment.text:
        experiment = one_restart(outcome.situation, outcome, k)
    said = (*words.assumptions, acceptance_sentence(outcome, words.name, k))
    return option_of(outcome, k, words._replace(needs=needs, assumptions=said, next_experiment=experiment))


def acceptance_sentence(outcome: Outcome, name: str, k: int) -> str:
    """What is assumed about acceptance at draft length `k`, and where it comes from."""
    drawn = outcome.study.acceptance
    own = drawn.for_length(k)
    length, share = 1.0 + float(own.median_survival[0, :k].sum()), own.median_draft_probability
    often = "" if share >= 1.0 else f", a draft on {percent(share)} of the steps"
    basis = drawn.basis or ("prior by method and kind of text" if drawn.is_prior else drawn.source)
    return f"{name}: {length:.2f} tokens per draft at k={k}{often} ({basis})"


def memory_needs(outcome: Outcome) -> Iterator[Need]:
    """Bytes of the drafter on every GPU, and the cached tokens that it displaces."""
    system, logged = outcome.study.system, outcome.study.kv_cache_tokens
    held = system.drafter.weight_bytes
    if held:
        before = memory_plan(system, False, logged).kv_cache_tokens
        after = memory_plan(system, True, logged).kv_cache_tokens
        share = 1.0 - after / before if before > 0 else 0.0
        yield Need(
            "memory",
            f"{held / GB:.2f} GB on each GPU and {percent(share)} of the KV cache",
            {"bytes_per_gpu": held, "kv_cache_share": share},
        )


def candidates(situation: Situation) -> Iterator[tuple[tuple[str, ...], Words]]:
    """Overrides of every drafter in question, with what is to be said about it."""
    yield from _lookup(situation)
    yield from _mtp(situation)
    yield from _heads(situation)
    yield from _draft_models(situation)
    yield from _trees(situation)


_SETTLE = Experiment("")  # filled in with the restart of the option itself


def _lookup(situation: Situation) -> Iterator[tuple[tuple[str, ...], Words]]:
    spec = situation.deployment.speculation
    for method in LOOKUP_METHODS:
        own, replay = spec.method == method, situation.replays.get(method)
        measured = replay is not None or (own and spec.acceptance is not None)
        experiment = _SETTLE if measured else REPLAY._replace(command=(REPLAY.command or "").format(method=method))
        label = {"ngram": "n-gram", "ngram_gpu": "n-gram on the GPU", "suffix": "suffix decoding"}[method]
        name = f"{label}, as in the file" if own else label
        words = Words(name, "drafter", EXACT, experiment, _packages(method))
        told = (f"speculation.acceptance.replay={replay}",) if replay else ()
        yield (f"speculation.method={method}", *told), words
        low, high = spec.lookup_range
        if own and method != "suffix" and not measured and low == high:
            yield (
                (f"speculation.method={method}", *_WIDE_LOOKUP),
                words._replace(name=f"{label}, matches from 2 tokens on"),
            )


def _packages(method: str) -> tuple[Need, ...]:
    return (Need("software", "the package arctic-inference", {}),) if method == "suffix" else ()


def _mtp(situation: Situation) -> Iterator[tuple[tuple[str, ...], Words]]:
    """The model's own layers: only where its configuration has any."""
    shape = situation.today.study.system.shape
    if not shape.mtp_layers:
        return
    words = Words("own MTP layers", "drafter", EXACT, _SETTLE)
    if _file_says(situation, "mtp"):
        yield ("speculation.method=mtp",), words
        return
    known = [drafter for drafter, relation in drafters_for(shape, ("mtp",)) if relation == "own"]
    told = (f"speculation.acceptance.published={known[0].name}",) if known else ()
    yield ("speculation.method=mtp", *told, *as_chain(situation.deployment)), words


def _file_says(situation: Situation, method: str) -> bool:
    """Whether the deployment drafts by this method and says how well."""
    spec = situation.deployment.speculation
    return spec.method == method and spec.acceptance is not None


def _heads(situation: Situation) -> Iterator[tuple[tuple[str, ...], Words]]:
    """Published heads: the model's own, and a relative's where there is none; first what the file says of its own."""
    spec = situation.deployment.speculation
    if spec.acceptance is not None and spec.method not in (*LOOKUP_METHODS, "none", "mtp", "draft_model"):
        yield (f"speculation.method={spec.method}",), Words(f"{spec.method}, as in the file", "drafter", EXACT, _SETTLE)
    for drafter, relation in published_heads(situation.today.study.system.shape):
        relative = f" (trained for {drafter.target})" if relation == "sibling" else ""
        changes = (f"speculation.method={drafter.method}", f"speculation.acceptance.published={drafter.name}")
        yield (*changes, *as_chain(situation.deployment)), Words(f"{drafter.name}{relative}", "drafter", EXACT, _SETTLE)


def as_chain(deployment: Deployment) -> Changes:
    """Overrides that take the file's draft tree back, where it has one: a drafter stands for its chain."""
    spec = deployment.speculation
    tree = {"sglang_topk": spec.sglang_topk, "sglang_num_draft_tokens": spec.sglang_num_draft_tokens}
    return tuple(f"speculation.{key}=" for key, value in tree.items() if value is not None)


def published_heads(shape: ModelShape) -> list[tuple[PublishedDrafter, str]]:
    """The published heads worth comparing: per method the best own ones by their figures, else a relative's best."""
    chosen: list[tuple[PublishedDrafter, str]] = []
    fitting = [(drafter, relation) for drafter, relation in drafters_for(shape) if _is_head(drafter)]
    fitting.sort(key=lambda pair: -expected_accepted(pair[0], shape))
    for method in dict.fromkeys(drafter.method for drafter, _ in fitting):
        of_method = [pair for pair in fitting if pair[0].method == method]
        own = [pair for pair in of_method if pair[1] == "own"]
        chosen += own[:OWN_PER_METHOD] or of_method[:1]
    return chosen


def _is_head(drafter: PublishedDrafter) -> bool:
    return drafter.weights and drafter.method != "mtp"


def _trees(situation: Situation) -> Iterator[tuple[tuple[str, ...], Words]]:
    """SGLang's draft trees of the published shapes, on the best chain that drafts from the target's states."""
    if situation.deployment.engine.name != "sglang":
        return
    chains = [*_mtp(situation), *_heads(situation)]
    found = [(situation.screened(changes, situation.lengths), words) for changes, words in chains]
    best = max(((each, words) for each, words in found if each), key=lambda pair: pair[0].gain, default=None)
    if best is None:
        return
    chain = [change for change in best[0].changes if change not in as_chain(situation.deployment)]
    for name, (topk, nodes, steps) in _tree_shapes(situation.deployment).items():
        shape = (f"speculation.sglang_topk={topk}", f"speculation.sglang_num_draft_tokens={nodes}")
        words = best[1]._replace(name=f"{best[1].name}, {name}")
        yield (*chain, *shape, f"speculation.num_speculative_tokens={steps}"), words


def _tree_shapes(deployment: Deployment) -> dict[str, tuple[int, int, int]]:
    """(branches, verified nodes, draft steps) of the trees to compare: the published ones, and the file's own."""
    found = {f"tree with topk {topk}": (topk, steps + 1, steps) for topk, steps in TREES.items()}
    spec = deployment.speculation
    topk, nodes, steps = spec.sglang_topk or 1, spec.sglang_num_draft_tokens, spec.num_speculative_tokens
    if topk > 1 and nodes and steps and (topk, nodes, steps) not in found.values():
        found["tree as in the file"] = (topk, nodes, steps)
    return found


def _draft_models(situation: Situation) -> Iterator[tuple[tuple[str, ...], Words]]:
    """Separate small models of the family, each on one GPU and split as the target is; the better one is kept."""
    target = situation.today.study.system.shape
    own_tensor = situation.deployment.engine.tensor_parallel_size
    spec = situation.deployment.speculation
    named = [spec.draft_model] if spec.method == "draft_model" and spec.draft_model else []
    for name in [*named, *small_relatives(target)]:
        best = None
        for tensor in sorted({1, own_tensor}):
            changes = (
                "speculation.method=draft_model",
                f"speculation.draft_model={name}",
                f"speculation.draft_tensor_parallel_size={tensor}",
            )
            found = situation.screened(changes, situation.lengths)
            if found and (best is None or found.gain > best.gain):
                best = found
        if best is not None:
            yield best.changes, Words(f"draft model {name}", "drafter", EXACT, _SETTLE)


def small_relatives(target: ModelShape) -> list[str]:
    """Shipped cards that can draft for `target`: same family word and vocabulary, a tenth of its computed size at most.

    The smallest first, one number format each.
    """
    family = sorted(name_words(target.name))
    found: dict[frozenset[str], tuple[int, str]] = {}
    for name in model_names():
        words = name_words(name)
        if name == target.name or not _same_family(target.name, name):
            continue
        shape = load_model(name)
        size = active_parameters(shape)
        if shape.vocab_size == target.vocab_size and size <= SMALLER * active_parameters(target):
            found.setdefault(words, (size, name))
    assert family, "a model has a name"
    return [name for _, name in sorted(found.values())][:MAX_DRAFT_MODELS]


def _same_family(one: str, other: str) -> bool:
    """Whether two names begin with the same word, owner left out: qwen3, llama, kimi."""
    first = [name.lower().replace("/", "--").split("--")[-1].split("-")[0] for name in (one, other)]
    return first[0] == first[1]


def active_parameters(shape: ModelShape) -> int:
    """Parameters that one token is computed with, embedding left out."""
    total = shape.vocab_size * shape.hidden_size
    for layer in shape.layers:
        own = layer.attention.parameters + (layer.dense.parameters if layer.dense else 0)
        if layer.moe:
            own += layer.moe.num_experts_per_tok * layer.moe.expert_parameters + layer.moe.shared_parameters
        total += layer.count * own
    return total
