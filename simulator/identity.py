"""What a system is, as far as measurements of one say something about another."""

from hwmodel.specs import ModelShape
from simulator.profile import Identity
from simulator.system import System


def identity_of(system: System) -> Identity:
    """The identity of a system, for a profile."""
    engine, parallel = system.deployment.engine, system.parallel
    return Identity(
        model=system.shape.name,
        geometry=_geometry(system.shape),
        gpu=system.gpu.name,
        interconnect=system.machine.interconnect,
        engine=engine.name,
        engine_version=".".join(map(str, system.mode(0).version)),
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=parallel.data,
        expert_parallel=parallel.expert_parallel,
        decode_context=parallel.decode_context,
        attention_backend=system.machine.attention_backend,
        kv_cache_dtype=(engine.kv_cache_dtype or "auto").lower(),
    )


def _geometry(shape: ModelShape) -> tuple[int, ...]:
    """Layers, width, vocabulary, experts, experts per token: the same for every quantization of a model."""
    moes = [layer.moe for layer in shape.layers if layer.moe]
    experts = (moes[-1].num_experts, moes[-1].num_experts_per_tok) if moes else (0, 0)
    return (shape.num_hidden_layers, shape.hidden_size, shape.vocab_size, *experts)


def differences(ours: Identity, theirs: Identity) -> tuple[str, ...]:
    """What differs, as "gpu h200 instead of b200"; empty where all is the same."""
    named = [name for name in Identity.__slots__ if name != "geometry"]
    pairs = [(name, getattr(ours, name), getattr(theirs, name)) for name in named]
    return tuple(f"{name.replace('_', ' ')} {a} instead of {b}" for name, a, b in pairs if a != b)
