"""The loop on a real engine, as an operator would run it: measure, calibrate, replay, predict, restart, measure again.

Everything goes through the installed command line and a real vLLM server on the CPU. Two kinds of text (see
`make_model.py`): *loop*, which lookup drafts foretell, and *wander*, which they hardly ever do.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live.server import MAX_MODEL_LEN, MAX_NUM_SEQS, Server, running

GROUNDS = ("loop", "wander")
CHECKED_LOADS = (1, 2, 4)  # requests at once, without and with drafts
SWEEP = (1, 2, 4, 8, 16)  # of the baseline: k=5 at 4 requests brings 24 rows
LOADS = {"before": SWEEP, "after": CHECKED_LOADS}
DRAFT_LENGTHS = (1, 3, 5)
K = 5  # what the restart turns on
LOOKUP_MIN, LOOKUP_MAX = 1, 4
PROMPTS, INPUT_TOKENS, OUTPUT_TOKENS = 64, 64, 128
CELL_S = 15
COMMAND_LIMIT_S = 600.0
LEDGER = "ledger.sqlite"
WATCHED = 8  # intervals of 5 s
LOOK_LIMIT_S = 120.0
DRAFTCAST = str(Path(sys.executable).parent / "draftcast")
ROOT = Path(__file__).resolve().parents[2]
ENGINE_VERSION = "0.32.0"

Record = dict[str, Any]


class CommandError(Exception):
    """A draftcast command that ended otherwise than it should."""


@dataclass(slots=True)
class Loop:
    """What the loop found. `before` and `after` are run files by ground, `predicted` is by ground and concurrency.

    `recorded` is what the ledger holds of each prediction: every figure with its interval, and the time.
    """

    folder: Path
    before: dict[str, Record] = field(default_factory=dict)
    after: dict[str, Record] = field(default_factory=dict)
    replayed_before: dict[str, Record] = field(default_factory=dict)
    replayed_after: dict[str, Record] = field(default_factory=dict)
    counted: dict[str, Record] = field(default_factory=dict)
    calibrated: dict[str, Record] = field(default_factory=dict)
    chosen: dict[str, Record] = field(default_factory=dict)
    predicted: dict[tuple[str, int], Record] = field(default_factory=dict)
    recorded: dict[tuple[str, int], Record] = field(default_factory=dict)
    inspected: dict[str, Record] = field(default_factory=dict)
    passive: dict[str, Record] = field(default_factory=dict)
    watched: dict[str, list[Record]] = field(default_factory=dict)
    validated: dict[str, Record] = field(default_factory=dict)
    track_record: Record = field(default_factory=dict)
    start_s: dict[str, float] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)

    def cell(self, run: str, ground: str, concurrency: int) -> Record:
        """A measured cell of the run "before" or "after" the restart."""
        cells: list[Record] = getattr(self, run)[ground]["cells"]
        return next(cell for cell in cells if cell["concurrency"] == concurrency)


def draftcast(*arguments: object, limit_s: float = COMMAND_LIMIT_S) -> Record:
    """The JSON answer of a command of the installed draftcast."""
    command = [DRAFTCAST, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise CommandError(f"draftcast {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    answer: Record = json.loads(done.stdout)
    return answer


def run_loop(environment: Path, folder: Path, say: Callable[[str], None]) -> Loop:
    """The whole loop; everything that it writes lies in `folder`."""
    loop = Loop(folder)
    with _timed(loop, "model", say):
        make_model(environment, folder / "model")
        prompts = {ground: write_prompts(folder, ground) for ground in GROUNDS}
    with _timed(loop, "baseline", say), running(environment, folder / "model", folder / "baseline.log") as server:
        loop.start_s["baseline"] = server.start_s
        loop.inspected["baseline"] = look_at(server)
        _measure_all(loop, server, "before", prompts)
    with _timed(loop, "prediction", say):
        for ground in GROUNDS:
            loop.counted[ground] = count_experts(environment, folder, ground)
        predict_all(loop)
    config = speculative_config()
    log = folder / "speculative.log"
    with _timed(loop, "speculative", say), running(environment, folder / "model", log, config) as server:
        loop.start_s["speculative"] = server.start_s
        _measure_all(loop, server, "after", prompts)
        loop.inspected["speculative"] = look_at(server)
    with _timed(loop, "comparison", say):
        for ground in GROUNDS:
            loop.replayed_after[ground] = replay(folder, "after", ground, (K,))
            loop.validated[ground] = validate(folder, ground)
        loop.track_record = draftcast("ledger", "list", "--ledger", folder / LEDGER)["summary"]
    return loop


@contextmanager
def _timed(loop: Loop, name: str, say: Callable[[str], None]) -> Iterator[None]:
    begun = time.monotonic()
    yield
    loop.took_s[name] = time.monotonic() - begun
    say(f"{name}: {loop.took_s[name]:.0f} s")


def make_model(environment: Path, out: Path) -> None:
    """The checkpoint, by the Torch of the engine's environment; the tokenizer learns from this checkout's pages."""
    corpus = sorted(str(path) for path in (ROOT / "docs").glob("*.md"))
    command = [str(environment / "bin" / "python"), str(Path(__file__).with_name("make_model.py")), str(out)]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*command, "--corpus", *corpus], capture_output=True, text=True, timeout=COMMAND_LIMIT_S, env=variables
    )
    if done.returncode:
        raise CommandError(f"make_model.py: {done.stderr.strip()[-500:]}")


def write_prompts(folder: Path, ground: str) -> Path:
    """Prompts of random tokens of a ground, as token ids."""
    tokens = json.loads((folder / "model" / "grounds.json").read_text())[ground]
    draw = random.Random(ground)
    lines = [{"prompt_token_ids": draw.choices(tokens, k=INPUT_TOKENS)} for _ in range(PROMPTS)]
    path = folder / f"{ground}.prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def speculative_config() -> str:
    """The JSON that the restart adds to the launch."""
    keys = {"prompt_lookup_min": LOOKUP_MIN, "prompt_lookup_max": LOOKUP_MAX}
    return json.dumps({"method": "ngram", "num_speculative_tokens": K, **keys})


def look_at(server: Server) -> Record:
    """What inspect says of the running server, from outside and from its process."""
    return {"url": draftcast("inspect", "--url", server.url), "pid": draftcast("inspect", "--pid", server.pid)}


def validate(folder: Path, ground: str) -> Record:
    """The run after the restart held against what was on file before it, and the profile that it leads to."""
    options: list[object] = ["--run", folder / f"after-{ground}.json", "--ledger", folder / LEDGER]
    options += ["--baseline-run", folder / f"before-{ground}.json", "--profile", profile_of(folder, ground)]
    return draftcast("validate", folder / f"{ground}.toml", *options, "-o", folder / f"after-{ground}.profile.json")


def _measure_all(loop: Loop, server: Server, run: str, prompts: dict[str, Path]) -> None:
    """Both grounds, one after the other; beside them, somebody else only reads the counters."""
    for ground in GROUNDS:
        loads = LOADS[run]
        last = ground == GROUNDS[-1]
        looks = [_Look(("measure", server.url, "--passive", 0.5, "--interval", 2))] if last else []
        if run == "after":
            deployment, profile = loop.folder / f"{ground}.toml", profile_of(loop.folder, ground)
            options = ("--interval", 5, "--count", WATCHED, "--persist", 2, "--profile", profile)
            looks.append(_Look(("watch", server.url, deployment, *options)))
        with ExitStack() as stack:
            for look in looks:
                stack.enter_context(look)
            getattr(loop, run)[ground] = measure(loop.folder, server, run, ground, loads, prompts[ground])
        if last:
            loop.passive[run] = looks[0].lines[0]
        if run == "after":
            loop.watched[ground] = looks[-1].lines
            (loop.folder / f"{ground}.watch.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in looks[-1].lines))


class _Look:
    """A command that reads the counters beside the block; `lines` are its JSON objects afterwards."""

    def __init__(self, arguments: tuple[object, ...]) -> None:
        self.command, self.lines = [DRAFTCAST, *map(str, arguments), "--json"], list[Record]()

    def __enter__(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __exit__(self, kind: object, *error: object) -> None:
        try:
            answer, errors = self.process.communicate(timeout=1 if kind else LOOK_LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
        if self.process.returncode:
            raise CommandError(f"{self.command[1]} ended with {self.process.returncode}: {errors.strip()[-500:]}")
        self.lines = [json.loads(line) for line in answer.splitlines()]


def measure(folder: Path, server: Server, run: str, ground: str, loads: tuple[int, ...], prompts: Path) -> Record:
    """A closed-loop run; its run file and the recorded outputs stay in the folder.

    A cell that the machine spoilt is refused, and measured once more by the same command, as an operator would.
    """
    options: list[object] = ["-c", ",".join(map(str, loads)), "--prompts", prompts]
    options += ["--output-tokens", OUTPUT_TOKENS, "--ignore-eos", "--temperature", 0]
    options += ["--cell-seconds", CELL_S, "--warmup-seconds", 3]
    options += ["-o", folder / f"{run}-{ground}.json", "--outputs", folder / f"{run}-{ground}.jsonl"]
    options += ["--method", "ngram"] if run == "after" else []
    found = draftcast("measure", server.url, *options)
    if any(cell["refused_reason"] for cell in found["cells"]):
        found = draftcast("measure", server.url, *options)
    return found


def predict_all(loop: Loop) -> None:
    """From the baseline's run alone: fit, replay, choice and recorded predictions, while no server runs.

    Each text has its own profile: they use the experts differently.
    """
    folder = loop.folder
    lengths = ",".join(map(str, (0, *DRAFT_LENGTHS)))
    for ground in GROUNDS:
        loop.replayed_before[ground] = replay(folder, "before", ground, DRAFT_LENGTHS)
        write_deployment(folder, ground, loop.counted[ground]["fitted"]["deployment_toml"])
        file, profile = folder / f"{ground}.toml", profile_of(folder, ground)
        run = folder / f"before-{ground}.json"
        loop.calibrated[ground] = draftcast("calibrate", file, "--data", run, "-o", profile)
        loop.chosen[ground] = draftcast("choose", file, "-k", lengths, "--profile", profile)
        for load in CHECKED_LOADS:
            options = ("-k", K, "-c", load, "--profile", profile, "--record", "--ledger", folder / LEDGER)
            loop.predicted[ground, load] = draftcast("predict", file, *options)
            told = loop.predicted[ground, load]["prediction_id"]
            loop.recorded[ground, load] = draftcast("ledger", "show", told, "--ledger", folder / LEDGER)


def profile_of(folder: Path, ground: str) -> Path:
    """Where the calibration on the baseline of a text lies."""
    return folder / f"{ground}.profile.json"


def count_experts(environment: Path, folder: Path, ground: str) -> Record:
    """The routing parameters of a text, from experts counted over the recorded answers of the baseline."""
    script, table = Path(__file__).parent / "count_experts.py", folder / f"{ground}.experts.csv"
    inputs = (folder / "model", folder / f"before-{ground}.jsonl", table)
    command = [environment / "bin" / "python", script, *inputs, "-k", str(K)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise CommandError(f"count_experts.py ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return draftcast("experts", folder / "model" / "config.json", "-t", 1 + K, "--counted", table)


def replay(folder: Path, run: str, ground: str, lengths: tuple[int, ...]) -> Record:
    """Acceptance counted in the recorded outputs of a run; after the restart in all of them, as the server counts."""
    options: list[object] = ["--method", "ngram", "-k", ",".join(map(str, lengths))]
    options += ["--prompt-lookup-min", LOOKUP_MIN, "--prompt-lookup-max", LOOKUP_MAX]
    options += ["--keep-shortened"] if run == "after" else []
    return draftcast("replay", folder / f"{run}-{ground}.jsonl", *options, "-o", folder / f"{run}-{ground}.replay.json")


def write_deployment(folder: Path, ground: str, routing: str) -> None:
    """The deployment file of the laboratory for one kind of text."""
    (folder / f"{ground}.toml").write_text(f"""\
[model]
config = "{folder / "model" / "config.json"}"
[hardware]
gpu = "cpu-2core"
num_gpus = 1
[engine]
name = "vllm"
version = "{ENGINE_VERSION}"
max_model_len = {MAX_MODEL_LEN}
max_num_seqs = {MAX_NUM_SEQS}
enforce_eager = true
[speculation]
method = "ngram"
num_speculative_tokens = {K}
prompt_lookup_min = {LOOKUP_MIN}
prompt_lookup_max = {LOOKUP_MAX}
acceptance = {{ replay = "{folder / f"before-{ground}.replay.json"}" }}
[workload]
concurrency = {list(CHECKED_LOADS)}
input_tokens = {INPUT_TOKENS}
output_tokens = {OUTPUT_TOKENS}
[restart]
outage_min = 1
{routing}
""")
