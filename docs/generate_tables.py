"""Writes the generated blocks of README.md and the pages of docs/; --check names the stale ones (exit 1).

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is one of TABLES, or `run draftcast ...`: a
command whose output stands in the page. Settings follow, each after ` | `: `from L` and `before L` cut it at the lines
that start like that, `notes` shows stderr as well, `exits 1` says that it is meant to fail. Tables must agree exactly;
outputs word for word, but for the last digits of figures, which differ between machines.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from page_examples import GENERATED, PAGES, clone, cut_output, difference, split_name

from calibration.calibrate import calibrate
from calibration.readers.read import read_evidence
from draftcast import choose, load
from hwmodel.experts_report import default_routing
from hwmodel.moe import expected_distinct, uniform_distinct
from hwmodel.parameters import fitted_values, prior_table
from hwmodel.percent import percent
from simulator.acceptance_priors import priors
from simulator.deployment import known_keys
from simulator.deployment.load import with_profile
from simulator.published_drafters import drafter_facts, listed, measured_gap, published_drafters
from simulator.study import build_study
from simulator.training.facts import recipe, training_facts
from simulator.training.sites import local_site

ROOT = Path(__file__).resolve().parent.parent
ALLREDUCE = ROOT / "hwmodel" / "data" / "allreduce"
UNSTATED = ("hardware.allreduce_algorithm=", "hardware.allreduce_one_shot_max_kib=")  # what the fit finds by itself
APPROXIMATE = ("calibration check", "training runs")  # the end of a search: its last digit may differ between machines
FIGURE = re.compile(r"[-+<>]?\d[\d.,]*")

# Published counts of distinct experts, one sequence, one layer: (source, experts, top-k, tokens, counted).
COUNTED = (
    ("DeepSeek-V4.1-Flash (J-M-Recipes)", 384, 6, (1, 2, 3, 4, 6, 8), (6.0, 10.1, 13.7, 16.8, 22.5, 27.4)),
    ("Qwen3.8-Flash-Next, rows of an MTP run", 512, 10, (1, 2, 3, 4, 5), (10.0, 16.2, 21.8, 26.7, 31.4)),
    ("Qwen3-30B-A3B", 128, 8, (4,), (18.9,)),
    ("a 128/8 model that the source does not name", 128, 8, (17, 33), (41.5, 53.8)),
    ("Nemotron-3.5-Lightning", 128, 6, (2, 4, 9, 17), (10.2, 17.2, 31.0, 47.0)),
)


def parameters() -> str:
    """Every uncertain parameter with its prior, as in priors.toml."""
    rows = []
    for name, row in prior_table().items():
        if "probability" in row:
            centre, spread = f"1 with probability {row['probability']:g}", "switch"
        elif "median" in row:
            centre, spread = f"median {row['median']:g}", f"log-sd {row['log_sd']:g}"
        else:
            centre, spread = f"mean {row['mean']:g}", f"sd {row['sd']:g}"
        rows.append((f"`{name}`", centre, spread, f"{row['low']:g} to {row['high']:g}", row["meaning"], row["source"]))
    return table(("parameter", "centre", "spread", "cut to", "meaning", "source"), rows)


def fitted() -> str:
    """The medians that replace the general ones on a kind of machine, and the exponents of R1."""
    values = fitted_values()
    rows = [
        (kind, f"`{name}`", f"`{parameter}`", f"{value:g}")
        for kind in ("gpu", "experts", "interconnect", "engine", "backend")
        for name, changed in values.get(kind, {}).items()
        for parameter, value in changed.items()
    ]
    return table(("by", "name", "what", "value"), rows)


def kernels() -> str:
    """Kernels that a layer launches, by kind of block."""
    rows = [(f"`{name}`", f"{count:g}") for name, count in fitted_values()["kernels"].items()]
    return table(("block", "kernels"), rows)


def acceptance() -> str:
    """Priors of the drafters that are models."""
    rows = [
        (f"`{method}`", *(f"{row[key]:g}" for key in ("c1", "c1_logit_sd", "decay", "decay_log_sd")), row["source"])
        for method, row in priors()["model"].items()
    ]
    return table(("method", "c1", "sd of logit c1", "decay", "log-sd of decay", "source"), rows)


def lookup() -> str:
    """Priors of the text-lookup methods."""
    rows = [
        (
            f"`{method}`",
            f"Beta({row['probability_alpha']:g}, {row['probability_beta']:g})",
            f"{row['accepted_mean']:g} +- {row['accepted_sd']:g}",
            f"{row['min_tokens']:g}",
            f"{row['context_tokens']:g}",
            row["source"],
        )
        for method, row in priors()["lookup"].items()
    ]
    heads = ("method", "share of steps with a draft", "accepted a draft, k = 5", "shortest match", "context", "source")
    return table(heads, rows)


def kinds() -> str:
    """Shifts of the acceptance priors by kind of text."""
    data = priors()
    rows = [
        (f"`{kind}`", f"{shift:+g}", *(f"{value:+g}" for value in data["lookup_kind"][kind]))
        for kind, shift in data["kind_logit"].items()
        if kind != "source"
    ]
    heads = ("kind", "logit of c1", "logit of the draft share (lookup)", "log of the accepted tokens (lookup)")
    return table(heads, rows)


def routing() -> str:
    """Counted distinct experts beside the routing model at its prior centre and the uniform formula."""
    routing = default_routing()
    rows = []
    for source, experts, top_k, tokens, counts in COUNTED:
        for number, counted in zip(tokens, counts, strict=True):
            model = expected_distinct(experts, top_k, number, 1, routing)
            uniform = uniform_distinct(experts, top_k, number)
            cells = (f"{counted:.1f}", f"{model:.1f}", percent(model / counted - 1, signed=True), f"{uniform:.1f}")
            rows.append((source, f"{experts}/{top_k}", str(number), *cells))
    return table(("source", "experts/top-k", "tokens", "counted", "model", "error", "uniform"), rows)


def allreduce() -> str:
    """The measured AllReduce tables that are shipped."""
    rows = []
    for path in sorted(ALLREDUCE.glob("*--*.toml")):
        family, _, interconnect = path.stem.partition("--")
        for curve in tomllib.loads(path.read_text(encoding="utf-8"))["curve"]:
            rows.append((family, interconnect, curve["algorithm"], str(curve["num_gpus"]), curve["source"]))
    return table(("cards", "class", "algorithm", "GPUs", "source"), rows)


def keys() -> str:
    """Every key of the deployment file."""
    rows = [(f"`{key.key}`", key.type, key.default, key.unit or "-", key.meaning) for key in known_keys()]
    return table(("key", "accepts", "default", "unit", "meaning"), rows)


def forward_check() -> str:
    """Published runs that nothing is fitted to, against the prediction, worst first."""
    published = tomllib.loads((ROOT / "calibration" / "data" / "kimi-k2.6-switch.toml").read_text(encoding="utf-8"))
    answer = choose(load(ROOT / published["deployment"]), num_speculative_tokens=(0, 3))
    predicted = {(cell.num_speculative_tokens, cell.concurrency): cell for cell in answer.grid}
    rows = []
    for load_, base, drafted in zip(
        *(published[key] for key in ("concurrency", "baseline_tokens_per_s", "eagle3_k3_tokens_per_s")), strict=True
    ):
        ours, theirs = predicted[0, load_], predicted[3, load_].speedup
        error = ours.throughput_tokens_per_s / base - 1.0
        band = f"{theirs['p50']:.2f} ({theirs['p05']:.2f} to {theirs['p95']:.2f})"
        row = (str(load_), f"{base:g}", f"{ours.throughput_tokens_per_s:.0f}", percent(error, signed=True))
        rows.append((abs(error), (*row, f"{drafted / base:.2f}", band)))
    heads = ("concurrency", "tok/s", "predicted", "error", "EAGLE-3 k=3 speedup", "predicted (90 %)")
    return table(heads, [row for _, row in sorted(rows, reverse=True)])


def calibration_check() -> str:
    """The published runs with drafts against predictions before and after a calibration on the baseline alone."""
    example = ROOT / "examples" / "kimi-k2.6-8x-rtx-pro-6000-switch.toml"
    published = tomllib.loads((ROOT / "calibration" / "data" / "kimi-k2.6-switch.toml").read_text(encoding="utf-8"))
    deployment = load(example, UNSTATED)
    profile = calibrate(deployment, read_evidence([example.with_suffix(".csv")])).profile
    answers = [choose(d, num_speculative_tokens=(0, 3)) for d in (deployment, with_profile(deployment, profile))]
    speedups = [{c.concurrency: c.speedup for c in a.grid if c.num_speculative_tokens} for a in answers]
    rows = []
    for load_, base, drafted in zip(
        *(published[key] for key in ("concurrency", "baseline_tokens_per_s", "eagle3_k3_tokens_per_s")), strict=True
    ):
        cells = [f"{s[load_]['p50']:.2f} ({s[load_]['p05']:.2f} to {s[load_]['p95']:.2f})" for s in speedups]
        rows.append((str(load_), f"{drafted / base:.2f}", *cells))
    return table(("concurrency", "measured", "before", "calibrated"), rows)


def traffic_gaps() -> str:
    """The gap from benchmarks to traffic of every drafter that was published with both."""
    rows = []
    for kind, built_in in (("separate heads", False), ("own layers", True)):
        pairs = [(d, gap) for d in published_drafters() if d.is_built_in == built_in and (gap := measured_gap(d))]
        rows += [(kind, d.name, f"{gap:+.2f}") for d, gap in pairs]
        stated = drafter_facts()["gap"]["mtp" if built_in else "heads"]
        rows.append((kind, "used", f"{stated['logit']:+.2f} +- {stated['logit_sd']:.2f}"))
    return table(("class", "drafter", "gap on the logit scale"), rows)


def published() -> str:
    """Every published drafter: what it is for, what is expected of it, and where its figures come from."""
    rows = []
    for drafter, item in zip(published_drafters(), listed(), strict=True):
        c1 = item["first_acceptance"]
        figures = "; ".join(f"{f.setting}: {f.source}" for f in drafter.figures)
        expected = f"{c1['p50']:.2f} ({c1['p05']:.2f} to {c1['p95']:.2f})"
        rows.append((f"`{drafter.name}`", drafter.method, drafter.target, expected, figures))
    return table(("drafter", "method", "trained for", "c1", "sources"), rows)


def training_runs() -> str:
    """Published training runs beside the hours that `train-cost` has for them."""
    rows = []
    for run in training_facts()["run"]:
        total = float(run["total_tokens"])
        deployment = load(
            ROOT / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml",
            ("speculation.method=none", f"model.config={run['model']}", f"hardware.gpu={run['gpu']}",
             "hardware.interconnect=", "workload.input_tokens=2000", "workload.output_tokens=8000", "measured=",
             f"costs.training_tokens={0.8 * total}", "costs.epochs=1"),
        )  # fmt: skip
        study = build_study(deployment, k_max=1)
        site = local_site(study, recipe(deployment.costs, 8000.0, 2000, 0))
        hours = sum(site.seconds[stage] for stage in run["stages"]) * site.node.num_gpus / 3600.0
        low, middle, high = (f"{x:,.0f}" for x in np.quantile(hours, [0.05, 0.5, 0.95]))
        cells = (f"{total / 1e9:g} G", f"{run['gpu_hours']:,.0f}", f"{middle} ({low} to {high})")
        rows.append((run["name"], run["gpu"], *cells, run["source"]))
    return table(("run", "GPU", "tokens", "GPU-hours", "predicted (90 %)", "source"), rows)


def training_priors() -> str:
    """What is assumed about a training run."""
    rows = [
        (f"`{name}`", f"{row['median']:,}", f"{row['log_sd']:g}", row["source"])
        for name, row in training_facts()["prior"].items()
    ]
    return table(("what", "median", "log-sd", "source"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "parameters": parameters,
    "fitted medians": fitted,
    "kernels": kernels,
    "acceptance priors": acceptance,
    "lookup priors": lookup,
    "kinds of text": kinds,
    "routing check": routing,
    "allreduce tables": allreduce,
    "keys": keys,
    "forward check": forward_check,
    "calibration check": calibration_check,
    "traffic gaps": traffic_gaps,
    "published drafters": published,
    "training runs": training_runs,
    "training priors": training_priors,
}


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [list(heads)]
    lines += [["---"] * len(lines[0])]
    lines += [list(row) for row in rows]
    return "".join(f"| {' | '.join(map(one_cell, line))} |\n" for line in lines)


def one_cell(text: str) -> str:
    """The text on one line, bars escaped."""
    return " ".join(text.replace("|", "\\|").split())


def output(text: str) -> str:
    """The command and what it prints, as a console block."""
    command, settings = split_name(text)
    return f"```console\n$ {command}\n{cut_output(command, settings)}\n```\n"


def generated(name: str) -> str:
    """The body of the block of that name."""
    if name.startswith("run "):
        return output(name.removeprefix("run "))
    if name not in TABLES:
        raise SystemExit(f"no generated block '{name}'; known: {', '.join(TABLES)}, run draftcast ...")
    return TABLES[name]()


def is_current(name: str, body: str) -> bool:
    """Whether the page's block says what would be generated now."""
    wanted = generated(name)
    if name.startswith("run "):
        return not difference(body.splitlines(), wanted)
    return body == wanted if name not in APPROXIMATE else words(body) == words(wanted)


def words(text: str) -> set[str]:
    """The words of a table without figures: what a reader looks for, whatever the last digit."""
    return {word.strip(".,:;()") for word in FIGURE.sub(" ", text).split() if re.search(r"[A-Za-z]{3}", word)}


def main(arguments: list[str]) -> int:
    """Exit code: 1 when --check finds a block out of date."""
    stale = []
    for page in [page for page in PAGES if page.name != "accuracy.md"]:  # that one is by make_accuracy.py
        text = page.read_text(encoding="utf-8")
        with clone():
            if arguments == ["--check"]:
                blocks = [(m["name"], m["body"]) for m in GENERATED.finditer(text)]
                stale += [f"{page.name}: {name}" for name, body in blocks if not is_current(name, body)]
                continue
            fresh = GENERATED.sub(lambda match: match[1] + generated(match["name"]) + match[4], text)
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
    for name in stale:
        print(f"out of date, run `make docs`: docs/{name}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
