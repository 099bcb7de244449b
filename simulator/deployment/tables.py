"""The tables of the deployment file: names, types and bounds of every key, units as in the key.

Types and single-key bounds are declared here once; the checker, the key list of `draftcast list keys`, the error texts
and the reading of `--set` values are generated from these declarations.
What concerns several keys at once is in `checks`. Contract: docs/guide.md, "The deployment file".
"""

from typing import TYPE_CHECKING, Annotated, Literal, get_args

from simulator.deployment.schema import Field, Table
from simulator.deployment.speculation import NonNegative, Share, Speculation

if TYPE_CHECKING:
    from simulator.profile import Profile

MAX_CONCURRENCY = 100_000  # far above any max_num_seqs in use; catches a token count in the wrong key
MAX_TOKENS = 100_000_000  # ten times the longest context any engine advertises
MAX_GPUS = 16_384

Interconnect = Literal[
    "pcie-switch",
    "pcie-two-switches",
    "pcie-root",
    "pcie-dual-socket",
    "pcie-no-p2p",
    "nvlink",
    "nvswitch",
    "none",
]
INTERCONNECTS: tuple[str, ...] = get_args(Interconnect)
Kind = Literal["chat", "code", "reasoning", "agent", "mixed"]
KINDS: tuple[str, ...] = get_args(Kind)
LENGTH_DISTRIBUTIONS = ("fixed", "lognormal")

# Ends far beyond any device, service or price: what lies outside is a slip of unit or keyboard, and would turn the
# answer round or overflow rather than fail.
MAX_STEP_MS = 600_000  # ten minutes for one token
MAX_TOKENS_PER_S = 100_000_000
MAX_MINUTES = 100_000  # seventy days
MAX_LIMIT_MS = 10_000_000
MAX_PRICE = 1_000_000
MAX_TRAINING_TOKENS = 10**15  # a hundred times the longest pre-training

Gpus = Annotated[int, Field(ge=1, le=MAX_GPUS)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Users = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]
StepMs = Annotated[float, Field(ge=0.001, le=MAX_STEP_MS)]
LimitMs = Annotated[float, Field(ge=0.001, le=MAX_LIMIT_MS)]
Weight = Annotated[float, Field(ge=0, le=10**9)]
Minutes = Annotated[float, Field(ge=0, le=MAX_MINUTES)]


class Model(Table):
    """Which model is served."""

    config: str = Field(description="a shipped card's name, or the path of a Hugging Face config.json", min_length=1)
    weights_gb: Annotated[float, Field(ge=0.001, le=100_000)] | None = Field(
        None, description="size of all weights, in place of the computed size"
    )


class Hardware(Table):
    """What it runs on. Times and rates of the AllReduce are for a message of hidden_size x 2 bytes."""

    gpu: str = Field(description="a card's name, or the path of a TOML card", min_length=1)
    num_gpus: Gpus | None = Field(None, description="GPUs of the machine; default: as many as the parallel sizes need")
    interconnect: Interconnect | None = Field(None, description="how the GPUs reach each other; default from the card")
    nccl_tests: str | None = Field(None, description="path of the output of all_reduce_perf")
    topology: str | None = Field(None, description="path of the text of nvidia-smi topo -m")
    allreduce_latency_us: Annotated[float, Field(gt=0, le=100_000)] | None = Field(
        None, description="one AllReduce of hidden_size x 2 bytes"
    )
    allreduce_busbw_gb_per_s: Annotated[float, Field(ge=0.001, le=100_000)] | None = Field(
        None, description="bus bandwidth of large AllReduces"
    )
    allreduce_algorithm: str = Field("auto", description="auto, nccl, one-shot, ...: what the engine uses")
    allreduce_one_shot_max_kib: NonNegative | None = Field(
        None, description="largest message that the one-shot kernel takes; default: where NCCL gets faster"
    )
    host_overhead_ms: Annotated[float, Field(ge=0, le=1000)] | None = Field(
        None, description="host time per engine step, in place of its prior"
    )


class Engine(Table):
    """How the engine was launched; what is absent is as that version of the engine does it."""

    launch: str | None = Field(None, description="launch command, or path of a unit, compose file or manifest")
    name: Literal["vllm", "sglang"] = Field("vllm", description="the serving engine")
    version: str | None = Field(None, description='release, such as "0.16.0"; default: the newest known', max_length=64)
    tensor_parallel_size: Gpus = Field(1, description="GPUs that share each layer")
    pipeline_parallel_size: Gpus = Field(1, description="groups of layers")
    data_parallel_size: Gpus = Field(1, description="replicas of the attention part")
    expert_parallel: bool = Field(False, description="experts whole on one rank instead of split over all")
    decode_context_parallel_size: Gpus = Field(1, description="ranks that share the cached context; divides TP")
    max_model_len: Tokens | None = Field(None, description="longest prompt plus output")
    max_num_seqs: Users | None = Field(None, description="requests in one step at most")
    max_num_batched_tokens: Tokens | None = Field(None, description="tokens in one step at most")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="share of GPU memory that the engine takes"
    )
    block_size: Annotated[int, Field(ge=1, le=4096)] | None = Field(None, description="tokens of a KV cache block")
    kv_cache_dtype: str | None = Field(None, description="auto, bfloat16, fp8, ...", max_length=64)
    attention_backend: str | None = Field(None, description="the engine's name of the backend", max_length=64)
    cudagraph_mode: Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"] | None = Field(
        None, description="which steps replay a captured graph"
    )
    cudagraph_capture_sizes: tuple[Tokens, ...] | None = Field(
        None, description="captured token counts", max_length=1024
    )
    max_cudagraph_capture_size: Tokens | None = Field(
        None, description="largest captured token count, the others as by default; not beside cudagraph_capture_sizes"
    )
    async_scheduling: bool | None = Field(None, description="the next step is scheduled while one runs")
    model_runner: Literal["v0", "v1", "v2"] | None = Field(
        None, description="vLLM's GPU model runner; v0 is the first engine, up to 0.10"
    )
    enforce_eager: bool = Field(False, description="no captured graphs at all")


class Workload(Table):
    """What the users send. Mean context in decode is input_tokens + output_tokens / 2."""

    concurrency: tuple[Users, ...] = Field(
        (1, 4, 16, 64),
        description="requests in flight, each to be predicted",
        min_length=1,
        max_length=64,
    )
    weights: tuple[Weight, ...] | None = Field(None, description="how much each concurrency counts; default: equal")
    input_tokens: Tokens = Field(1000, description="mean prompt length")
    output_tokens: Tokens = Field(1000, description="mean output length")
    length_distribution: str = Field("fixed", description="fixed, lognormal, or the path of a file of lengths")
    length_log_sd: Annotated[float, Field(ge=0, le=3)] = Field(0.5, description="spread of ln(length) for lognormal")
    prefix_cache_hit_share: Share = Field(0.0, description="share of prompt tokens found in the prefix cache")
    acceptance_time_correlation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="how long good and bad stretches of acceptance last"
    )
    temperature: Annotated[float, Field(ge=0, le=10)] | None = Field(None, description="sampling temperature")
    kind: Kind = Field("mixed", description="kind of text, for priors")

    @property
    def context_tokens(self) -> float:
        """Mean context of a decode step, in tokens: the prompt and half of the output."""
        return self.input_tokens + self.output_tokens / 2


class Objective(Table):
    """What counts as better."""

    maximise: Literal["throughput", "tpot", "goodput"] = Field("throughput", description="the figure to improve")
    tpot_ms_max: LimitMs | None = Field(None, description="longest acceptable time per output token")
    ttft_ms_max: LimitMs | None = Field(None, description="longest acceptable time to the first token")
    percentile: Annotated[float, Field(ge=1, lt=100)] = Field(95.0, description="of requests that must keep the limits")
    min_probability_faster: Share = Field(0.8, description="how sure a recommendation must be")


class Restart(Table):
    """What trying it costs."""

    outage_min: Minutes | None = Field(None, description="from stop to serving again")
    replicas: Users = Field(1, description="with more than one, a rolling restart costs capacity, not an outage")
    rollback_min: Minutes | None = Field(None, description="outage of going back; default: as outage_min")
    traffic_tokens_per_s: Annotated[float, Field(gt=0, le=10**9)] | None = Field(
        None, description="offered load; default: what the baseline serves"
    )


class ParameterPrior(Table):
    """A log-normal prior in place of the shipped one."""

    median: Annotated[float, Field(gt=0)] = Field(description="median of the log-normal prior")
    log_sd: Annotated[float, Field(ge=0, le=5)] = Field(description="standard deviation of the logarithm")


class Costs(Table):
    """Prices and the training of a draft head."""

    gpu_hour_price: Annotated[float, Field(ge=0, le=MAX_PRICE)] | None = Field(
        None, description="price of one GPU for one hour, in currency"
    )
    currency: str = Field("USD", description="of every price", max_length=16)
    training_gpu: str | None = Field(None, description="card name of the GPUs that train; default: the serving ones")
    training_num_gpus: Gpus | None = Field(None, description="how many of them")
    training_tokens: Annotated[float, Field(gt=0, le=MAX_TRAINING_TOKENS)] | None = Field(
        None, description="tokens of target output to train on"
    )
    epochs: Annotated[float, Field(gt=0, le=1000)] | None = Field(None, description="passes over them")
    mfu: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="share of peak FLOP/s reached in training"
    )


class Measured(Table):
    """One fact about the running baseline."""

    concurrency: Users = Field(description="requests in flight when it was measured")
    tpot_ms: StepMs | None = Field(None, description="mean time per output token")
    step_ms: StepMs | None = Field(None, description="mean engine step")
    throughput_tokens_per_s: Annotated[float, Field(gt=0, le=MAX_TOKENS_PER_S)] | None = Field(
        None, description="output tokens of all requests together"
    )
    allreduce_share: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="share of decode time in AllReduce, from a profiler"
    )
    context_tokens: Tokens | None = Field(None, description="mean context then; default: the workload's")
    kv_cache_tokens: Tokens | None = Field(None, description="KV cache size that the engine logged")
    relative_noise: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="standard error of the measurement, relative"
    )


class Deployment(Table):
    """A whole deployment file, checked. Make one with `load_deployment`: it also runs the cross-key checks."""

    model: Model = Field(description="which model is served")
    hardware: Hardware = Field(description="what it runs on")
    engine: Engine = Field(Engine(), description="how the engine was launched")
    speculation: Speculation = Field(Speculation(), description="what drafts, how much, how well")
    workload: Workload = Field(Workload(), description="what the users send")
    objective: Objective = Field(Objective(), description="what counts as better")
    restart: Restart = Field(Restart(), description="what trying it costs")
    parameters: dict[str, float | ParameterPrior] = Field({}, description="model parameters in place of their priors")
    costs: Costs = Field(Costs(), description="prices and the training of a draft head")
    measured: tuple[Measured, ...] = Field((), description="facts about the running baseline")
    _notes: tuple[str, ...] = ()
    _measured_on: "Deployment | None" = None
    _profile: "Profile | None" = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the loading left out and why; to be shown on stderr."""
        return self._notes

    @property
    def measured_on(self) -> "Deployment":
        """The deployment that the measured facts describe: this one, or what it was before overrides changed it."""
        return self._measured_on or self

    @property
    def profile(self) -> "Profile | None":
        """What `draftcast calibrate` learned, where a profile was given."""
        return self._profile

    @property
    def num_gpus_used(self) -> int:
        """GPUs that the parallel sizes take: TP x PP x DP."""
        engine = self.engine
        return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size

    @property
    def num_gpus(self) -> int:
        """GPUs of the machine: as stated, else as many as the parallel sizes take."""
        return self.hardware.num_gpus or self.num_gpus_used


TABLES: dict[str, type[Table]] = {
    "model": Model,
    "hardware": Hardware,
    "engine": Engine,
    "speculation": Speculation,
    "workload": Workload,
    "objective": Objective,
    "restart": Restart,
    "costs": Costs,
    "measured": Measured,
}
