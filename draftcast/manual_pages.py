"""The pages of `draftcast.manual`: for each command its examples and, where it has any, environment, files, exit codes.

Every example is run by a test from a clone, except those that need a server or write into the home folder: they are
checked against the commands' own options.
"""

from collections.abc import Mapping

from hwmodel.records import dataclass

_K2_5 = "examples/kimi-k2.5-8x-rtx-pro-6000.toml"
_K2_6 = "examples/kimi-k2.6-8x-rtx-pro-6000-switch"
_RUNS = "--run examples/validate/speculative.json --baseline-run examples/validate/baseline.json"
_URL = "http://127.0.0.1:8000"
_QWEN = '"vllm serve Qwen/Qwen3-235B-A22B -tp 8" --gpu h100-sxm --method eagle3'
_UNITS = "examples/launch/vllm.service examples/launch/vllm-ngram.service"
_RECORDED = "examples/replay/*"

ENVIRONMENT: Mapping[str, str] = {
    "DRAFTCAST_API_KEY": "The key of a server that is given by its URL.",
    "DRAFTCAST_LEDGER": "The ledger file; where it is set, `choose` and `predict` record.",
    "XDG_DATA_HOME": "Where the user's own ledger lies; default: ~/.local/share.",
    "NO_COLOR": "Set: no colour.",
    "COLUMNS": "Width of the output; default: that of the terminal, 80 in a pipe.",
    "REQUESTS_CA_BUNDLE, SSL_CERT_FILE": "Certificates to trust with https.",
    "HTTP_PROXY, HTTPS_PROXY, NO_PROXY": "As other programs take them.",
}
_ASKED = ("DRAFTCAST_API_KEY",)
_SERVER = (*_ASKED, "REQUESTS_CA_BUNDLE, SSL_CERT_FILE", "HTTP_PROXY, HTTPS_PROXY, NO_PROXY")
_LEDGER = ("DRAFTCAST_LEDGER", "XDG_DATA_HOME")
_LEDGER_FILES = (
    (".draftcast/ledger.sqlite", "The project's ledger, in this folder or one above, where it has a .draftcast."),
    ("~/.local/share/draftcast/ledger.sqlite", "Else the user's."),
)
EXITS = (
    ("0", "Done; also where the answer is no."),
    ("1", "A stated error, one line on stderr: what, got, allowed."),
    ("2", "Wrong usage."),
    ("130", "Interrupted."),
)


@dataclass(frozen=True, slots=True)
class Example:
    """What a command line answers, and the line as a user types it."""

    answers: str
    command: str


@dataclass(frozen=True, slots=True)
class Page:
    """What one command's help says below its options; `files` and `exits` are (term, meaning)."""

    examples: tuple[Example, ...] = ()
    environment: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    exits: tuple[tuple[str, str], ...] = ()


def _examples(*pairs: tuple[str, str]) -> tuple[Example, ...]:
    whole = "draftcast completion"  # a line of the shell around it
    return tuple(Example(answers, line if whole in line else f"draftcast {line}") for answers, line in pairs)


PAGES: Mapping[str, Page] = {
    "": Page(
        _examples(
            ("A first deployment file, every key explained", "init -o box.toml"),
            ("Should this server speculate, and with how many tokens?", f"choose {_K2_5}"),
            ("The same for a launch command and a GPU, without any file",
             f"choose {_QWEN}"),
            ("What would any way to faster decoding gain?", f"options {_K2_5}"),
            ("Does the new unit do what was meant?", "inspect examples/launch/vllm-ngram.service"),
        ),
        ("DRAFTCAST_API_KEY", "DRAFTCAST_LEDGER", "NO_COLOR", "COLUMNS"),
        (("examples/", "Of a clone; the examples of every command use them."), *_LEDGER_FILES),
        EXITS,
    ),
    "init": Page(
        _examples(
            ("The reference case as a file of one's own, every key explained", "init -o my.toml"),
            ("From how the server is launched", f"init {_QWEN}"),
            ("From names alone", "init --model deepseek-v3-fp8 --gpu h200 --num-gpus 8"),
        ),
        _ASKED,
        exits=(("1", "Also where the file is there already and --force is not given."),),
    ),
    "choose": Page(
        _examples(
            ("Which draft length at which load, and is it worth the restart?", f"choose {_K2_5}"),
            ("Another drafter, two loads, a newer engine",
             f"choose {_K2_5} --method eagle3 -c 1,16 --set engine.version=0.33.0"),
            ("From the launch itself", f"choose {_QWEN}"),
            ("From names alone, the rest as usual", "choose --model gpt-oss-120b-mxfp4 --gpu h200"),
            ("From a server that runs, and on file before the restart",
             f"choose {_URL} --gpu h200 --method ngram --record"),
        ),
        (*_ASKED, *_LEDGER),
        _LEDGER_FILES,
    ),
    "predict": Page(
        _examples(
            ("Where does the time of a step go, without and with drafts?", f"predict {_K2_5} -k 3 -c 16"),
            ("One key of the file changed", f"predict {_K2_5} --set hardware.interconnect=pcie-switch"),
            ("For a script: the median speedup and its interval", f"predict {_K2_5} --json"),
        ),
        (*_ASKED, *_LEDGER),
        _LEDGER_FILES,
    ),
    "whatif": Page(
        _examples(
            ("Other links, shorter and longer prompts: four combinations",
             f"whatif {_K2_5} --vary hardware.interconnect=pcie-switch,pcie-dual-socket "
             "--vary workload.input_tokens=1000,8000"),
            ("How good must acceptance be?",
             f"whatif {_K2_6}.toml --vary speculation.acceptance.rate=0.3,0.37,0.5"),
            ("A long sweep in four processes", f"whatif {_K2_5} --vary workload.concurrency=[1],[4],[16] --jobs 4"),
        ),
        exits=(("1", "Also where cells of a sweep failed; the other rows are printed."),
               ("130", "Interrupted; rows that were done are printed.")),
    ),
    "adaptive": Page(
        _examples(
            ("Does a length by batch size beat one length?",
             f"adaptive {_K2_5} --method eagle3 --set engine.version=0.24.0"),
            ("Do long contexts want another length?",
             f"adaptive {_K2_5} --method eagle3 --set engine.version=0.24.0 --contexts 1000,16000"),
        ),
        _ASKED,
    ),
    "budget": Page(
        _examples(
            ("What could fewer experts in verification gain at most?", f"budget {_K2_6}.toml -c 1,16"),
            ("Two budgets of one draft length", f"budget {_K2_6}.toml -k 3 -c 16 --budgets 96,192"),
        ),
        _ASKED,
    ),
    "experiments": Page(
        _examples(
            ("What is worth measuring before anything is decided?", f"experiments {_K2_5}"),
            ("With one more method to choose from, in use for a month",
             f"experiments {_K2_5} --methods eagle3 --horizon-days 30"),
        ),
        _ASKED,
    ),
    "simulate": Page(
        _examples(
            ("Latencies under 2 requests a second, without and with drafts",
             f"simulate {_K2_6}.toml --arrivals poisson:2 --requests 100"),
            ("Which rate keeps the limits?",
             f"simulate {_K2_6}.toml --arrivals poisson:2 --requests 100 --set objective.tpot_ms_max=40 --find-rate"),
            ("How much do runs differ?", f"simulate {_K2_6}.toml --requests 100 --runs 4"),
        ),
    ),
    "options": Page(
        _examples(
            ("Of all ways to faster decoding, which does one restart reach?", f"options {_K2_5} -c 1,16"),
            ("With acceptance measured on one's own outputs",
             f"options {_K2_5} -c 1 --acceptance out/replay.json"),
            ("With prices, and what is not expected to gain as well",
             f"options {_K2_5} -c 1 --price b200=4 --all"),
        ),
        _ASKED,
    ),
    "train-cost": Page(
        _examples(
            ("Is a head of our own worth its training?", f"train-cost {_K2_5} -c 1,16"),
            ("Rented, with prices for an hour of a GPU",
             f"train-cost {_K2_5} -c 1 --rent b200:8 --price b200=4 --price rtx-pro-6000-blackwell-server=1"),
        ),
        _ASKED,
    ),
    "calibrate": Page(
        _examples(
            ("Fit the model to measurements, and keep the profile",
             f"calibrate {_K2_6}.toml --data {_K2_6}.csv -o out/box.json"),
            ("Then ask with it", f"choose {_K2_6}.toml --profile out/box.json"),
            ("The file's own [[measured]] facts alone", f"calibrate {_K2_5}"),
        ),
    ),
    "serve": Page(
        _examples(
            ("Move keys by sliders, in a browser on this machine", f"serve {_K2_5}"),
            ("Of a launch, on any free port, the browser opened", f"serve {_QWEN} --port 0 --open"),
        ),
        _ASKED,
    ),
    "report": Page(
        _examples(
            ("One page for those who were not there", f"report {_K2_5} -o out/page.html"),
            ("Without the simulated run; every chart as PNG and SVG too",
             f"report {_K2_5} --no-simulate -o out/page.html --plots out/charts"),
        ),
    ),
    "step": Page(
        _examples(
            ("Where does one step wait for the links?", f"step {_K2_5} -k 0"),
            ("On the box as nvidia-smi describes it",
             f"step {_K2_5} -k 0 --topology examples/machine/topology-two-switches.txt --algorithm one-shot"),
            ("A trace for ui.perfetto.dev", f"step {_K2_5} -k 3 -c 16 --trace out/step.json"),
        ),
    ),
    "measure": Page(
        _examples(
            ("Time per token, acceptance and counters at three loads",
             f"measure {_URL} -c 1,4,16 --output-tokens 128 -o run.json"),
            ("Without load: ten minutes of real traffic", f"measure {_URL} --passive 10"),
            ("A server that starts still, and its outputs for replay",
             f"measure {_URL} --wait 1800 --outputs out.jsonl"),
        ),
        _SERVER,
    ),
    "watch": Page(
        _examples(
            ("Is the draft length still the best for the traffic of now?", f"watch {_URL} --gpu h200"),
            ("With the deployment file, and figures for Prometheus", f"watch {_URL} {_K2_5} --listen 9109"),
            ("Every minute for an hour, then a summary", f"watch {_URL} {_K2_5} --interval 60 --count 60"),
        ),
        _SERVER,
    ),
    "replay": Page(
        _examples(
            ("What would n-gram have accepted of recorded outputs?",
             f"replay {_RECORDED} --method ngram -k 1-5 --prompt-lookup-max 4 -o out/replay.json"),
            ("And suffix decoding?", f"replay {_RECORDED} --method suffix -k 1-5"),
            ("Then ask with it",
             f"""choose {_K2_5} --set 'speculation.acceptance={{replay="out/replay.json"}}'"""),
        ),
    ),
    "backtest": Page(
        _examples(
            ("How wrong is the model on published runs?", "backtest"),
            ("On runs of your own, seeing nothing of them but datasheets", "backtest runs.csv --protocol cold"),
        ),
    ),
    "validate": Page(
        _examples(
            ("What came of it, and why?", f"validate examples/validate/ngram.toml {_RUNS}"),
            ("Fit the model to the run", f"validate examples/validate/ngram.toml {_RUNS} -o out/after.json"),
            ("Measure and judge in one go", f"validate {_K2_5} --url {_URL} -c 1,16"),
        ),
        (*_LEDGER, *_SERVER),
        _LEDGER_FILES,
    ),
    "ledger": Page(
        _examples(
            ("Put a prediction on file before the restart", f"choose {_K2_5} --record --ledger out/ledger.sqlite"),
            ("Were the predictions right so far?", "ledger list --ledger out/ledger.sqlite"),
            ("For a spreadsheet", "ledger export --ledger out/ledger.sqlite -o out/predictions.csv"),
        ),
        _LEDGER,
        _LEDGER_FILES,
    ),
    "ledger list": Page(_examples(("The last five", "ledger list -n 5 --ledger out/ledger.sqlite")), _LEDGER),
    "ledger show": Page(
        _examples(("All cells of one; the first digits of its ID do", "ledger show 4487 --ledger out/ledger.sqlite")),
        _LEDGER,
    ),
    "ledger export": Page(
        _examples(("A row for each predicted cell", "ledger export --ledger out/ledger.sqlite --format csv")), _LEDGER
    ),
    "inspect": Page(
        _examples(
            ("What does this unit pass to the engine, and what is wrong?",
             "inspect examples/launch/vllm-ngram.service"),
            ("What changes if the new one is started?",
             f"inspect {_UNITS} --gpu rtx-pro-6000-blackwell-server"),
            ("A command as typed", 'inspect "vllm serve moonshotai/Kimi-K2.5 -tp 8"'),
            ("What runs now", f"inspect --url {_URL}"),
        ),
        _SERVER,
        exits=(("0", "Nothing is wrong, warnings aside."), ("1", "A launch has an error, or cannot be read.")),
    ),
    "model": Page(
        _examples(
            ("How large is it, and what does each of 8 GPUs hold?", "model kimi-k2.5-int4 --tp 8"),
            ("Of a Hugging Face config.json", "model examples/validate/config.json"),
        ),
    ),
    "experts": Page(
        _examples(
            ("How many experts do 1 to 8 tokens read?", "experts kimi-k2.5-int4 -t 1-8"),
            ("And if only 64 may be read?", "experts kimi-k2.5-int4 -t 8,32 --budget 64"),
            ("What do experts counted in a layer say of the routing?",
             "experts qwen3-30b-a3b-bf16 --counted examples/machine/expert-counts.csv"),
        ),
    ),
    "allreduce": Page(
        _examples(
            ("How long does one take on this machine?", "allreduce --gpu h100-sxm --num-gpus 8"),
            ("As measured by all_reduce_perf", "allreduce --nccl-tests examples/machine/nccl-tests.txt"),
            ("On the box as nvidia-smi describes it",
             "allreduce --gpu rtx-pro-6000-blackwell-server --topology examples/machine/topology-two-sockets.txt"),
        ),
    ),
    "list": Page(
        _examples(
            ("Which GPU cards are known?", "list gpus"),
            ("What may stand in the deployment file?", "list keys"),
            ("Of which published heads is the acceptance known?", "list drafters"),
        ),
    ),
    "completion": Page(
        _examples(
            ("bash: in this shell alone", 'eval "$(draftcast completion bash)"'),
            ("bash: for good", "completion bash > ~/.local/share/bash-completion/completions/draftcast"),
            ("zsh: into a folder that is in $fpath", "completion zsh > ~/.zfunc/_draftcast"),
            ("fish: for good", "completion fish > ~/.config/fish/completions/draftcast.fish"),
        ),
        files=(("~/.local/share/bash-completion/completions", "Read by the package bash-completion; without it put "
                "the line with eval into ~/.bashrc."),
               ("~/.zfunc", "Any folder; ~/.zshrc says fpath+=~/.zfunc before compinit.")),
    ),
}  # fmt: skip
