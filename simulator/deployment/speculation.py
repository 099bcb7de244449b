"""The `[speculation]` table and its `acceptance`: names, types and bounds of every key."""

from typing import Annotated, Any, Literal, get_args

from simulator.deployment.schema import Field, Table

# More drafted tokens than any engine's drafter was published with (suffix decoding's tree depth of 24 is the largest
# default, vLLM config/speculative.py); a larger number is a slip of the keyboard.
MAX_DRAFT_TOKENS = 64
MAX_BATCH = 1_000_000  # upper end of a schedule's last range

Method = Literal[
    "none",
    "ngram",
    "ngram_gpu",
    "suffix",
    "eagle",
    "eagle3",
    "mtp",
    "draft_model",
    "dflash",
    "dspark",
    "p_eagle",
    "medusa",
    "mlp_speculator",
]
METHODS: tuple[str, ...] = get_args(Method)
LOOKUP_METHODS = ("ngram", "ngram_gpu", "suffix")  # draft by copying text: not every step carries a draft
NGRAM_METHODS = ("ngram", "ngram_gpu")
DEFAULT_LOOKUP_TOKENS = 5  # neither bound given: vLLM 0.8.5 to 0.33 sets both to 5 (config/speculative.py)
FORMS = ("per_position", "conditional", "mean_length", "rate", "counters", "replay", "published")

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
DraftTokens = Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)]
Count = Annotated[int, Field(ge=1, le=MAX_BATCH)]
ScheduleRange = tuple[Count, Count, DraftTokens]


class Acceptance(Table):
    """Acceptance in exactly one form, per draft: measured, or as published of the drafter.

    `mean_length` may stand beside a vector as its check.
    """

    per_position: tuple[Share, ...] | None = Field(
        None,
        description="share of drafts whose position i was accepted: unconditional, so it never increases",
        min_length=1,
        max_length=MAX_DRAFT_TOKENS,
    )
    conditional: tuple[Share, ...] | None = Field(
        None,
        description="share of accepted position i among drafts whose position i - 1 was accepted",
        min_length=1,
        max_length=MAX_DRAFT_TOKENS,
    )
    mean_length: Annotated[float, Field(ge=1, le=MAX_DRAFT_TOKENS + 1)] | None = Field(
        None, description="mean tokens emitted per draft, the bonus token included; needs measured_at_k"
    )
    rate: Share | None = Field(None, description="accepted / drafted tokens; needs measured_at_k")
    measured_at_k: Annotated[int, Field(ge=1, le=MAX_DRAFT_TOKENS)] | None = Field(
        None, description="draft length at which mean_length or rate was measured"
    )
    counters: dict[str, Any] | None = Field(None, description="counters of the engine's /metrics, under vLLM's names")
    replay: str | None = Field(None, description="path of the JSON that draftcast replay wrote", min_length=1)
    published: str | None = Field(
        None,
        description="a drafter of `draftcast list drafters`, or new-head: a prior from published figures",
        max_length=200,
    )
    draft_probability: Share | None = Field(
        None, description="share of decode steps that carry a draft; default: 1 except for ngram and suffix"
    )
    num_requests: Annotated[int, Field(ge=1)] | None = Field(
        None, description="requests behind the figures, for the interval"
    )
    heterogeneity: Positive | None = Field(
        None, description="kappa of the Beta by which requests differ: small means that they differ much"
    )

    @property
    def form(self) -> str:
        """Name of the form in use; the vector, where `mean_length` only checks it."""
        return next(name for name in FORMS if getattr(self, name) is not None)


class Speculation(Table):
    """What drafts, how much, and how well."""

    method: Method = Field("none", description="who drafts")
    num_speculative_tokens: DraftTokens | None = Field(
        None, description="drafted tokens per step, k; 0 is the baseline"
    )
    prompt_lookup_min: Count | None = Field(None, description="shortest match; default: prompt_lookup_max")
    prompt_lookup_max: Count | None = Field(None, description="longest match; default: prompt_lookup_min, else 5")
    draft_model: str | None = Field(None, description="config or card of the drafter; default: the usual head")
    draft_tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="GPUs that share the drafter; default: as the target"
    )
    draft_vocab_size: Count | None = Field(None, description="vocabulary of the drafter's head")
    schedule: tuple[ScheduleRange, ...] | None = Field(
        None, description="[lo, hi, k]: draft k tokens at batch lo to hi, inclusive", min_length=1
    )
    policy: Literal["static", "schedule", "sglang-adaptive", "optimal"] | None = Field(
        None, description="what decides k at run time; default: schedule if one is given, else static"
    )
    sglang_topk: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="branches per node of a draft tree"
    )
    sglang_num_draft_tokens: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="nodes of a draft tree that are verified"
    )
    launch_config: dict[str, Any] | None = Field(
        None, description="speculative config of the launch, whose other keys the flag keeps"
    )
    expert_budget: Count | None = Field(None, description="experts per layer that verification may read at most")
    acceptance: Acceptance | None = Field(None, description="measured acceptance; default: a wide prior by method")

    @property
    def lookup_range(self) -> tuple[int, int]:
        """Shortest and longest match in tokens, filled in as vLLM does: one bound alone sets the other."""
        low = self.prompt_lookup_min or self.prompt_lookup_max or DEFAULT_LOOKUP_TOKENS
        return low, self.prompt_lookup_max or low

    @property
    def drafter(self) -> str | None:
        """The name by which the engine loads the drafter: as the launch has it, else `draft_model`."""
        launched = (self.launch_config or {}).get("model")
        return launched if isinstance(launched, str) and launched else self.draft_model

    @property
    def effective_policy(self) -> str:
        """What decides k at run time, the default filled in."""
        return self.policy or ("schedule" if self.schedule else "static")
