"""What was predicted for each cell of a run: by the newest entry of the ledger from before it, else afresh and said."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.readers.values import count, mapping
from hwmodel.errors import InputError
from simulator.closed_form import Cell
from simulator.deployment import Deployment, with_method
from simulator.forecast import forecast_cells
from simulator.identity import identity_of
from simulator.study import Study, build_study
from validate.ledger.entries import clean
from validate.ledger.store import PREDICTION, Ledger, Row
from validate.outcome.run_data import Run, RunCell, moment

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A cell of the run as a question: what it drafted by and how much, and where that is from."""

    cell: RunCell
    method: str
    num_speculative_tokens: int
    assumed: str | None = None  # what the run does not tell and the deployment said

    @property
    def point(self) -> Cell:
        """Its place in a grid."""
        return Cell(self.num_speculative_tokens, self.cell.concurrency)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was predicted for one cell, in the shape of `simulator.forecast`; `entry` is None for a fresh one."""

    forecast: Mapping[str, Any]
    entry: Row | None
    body: Mapping[str, Any]  # of the entry; of a fresh prediction the same keys as far as they exist
    blind: bool  # on file before the cell was measured


class Studies:
    """The studies of one deployment by method, each made once."""

    def __init__(self, deployment: Deployment, k_max: int, num_draws: int, seed: int) -> None:
        """Nothing is computed yet."""
        self.deployment, self.k_max, self._num_draws, self._seed = deployment, k_max, num_draws, seed
        self._made: dict[str, Study] = {}

    def of(self, method: str) -> Study:
        """The study of that method, acceptance of another one left out."""
        if method not in self._made:
            known = self.deployment if method == "none" else with_method(self.deployment, method)[0]
            self._made[method] = build_study(known, k_max=self.k_max, num_draws=self._num_draws, seed=self._seed)
        return self._made[method]


def asked_of(run: Run, deployment: Deployment) -> list[Asked]:
    """The usable cells as questions; an `InputError` where neither run nor deployment tells the method."""
    return [_asked(cell, deployment) for cell in run.usable]


def _asked(cell: RunCell, deployment: Deployment) -> Asked:
    assert cell.measured is not None
    own = deployment.speculation
    k, assumed = cell.measured.num_speculative_tokens, None
    if k is None and cell.measured.acceptance is not None:
        k = len(cell.measured.acceptance.accepted_per_position)
    if k is None:
        k = 0 if own.method == "none" else own.num_speculative_tokens
        if k is None:
            raise InputError(
                "the run does not tell how many tokens were drafted, nor does the deployment; "
                "allowed: --set speculation.num_speculative_tokens=N"
            )
        assumed = f"the run does not tell how many tokens were drafted; {k}, as the deployment says"
    if not k:
        return Asked(cell, own.method, 0, assumed)
    told = cell.measured.method
    method = own.method if told in (None, "none", own.method) else str(told)
    if method == "none":
        raise InputError("the run drafted, but neither run nor deployment tells the method; allowed: --method NAME")
    return Asked(cell, method, k, assumed)


def recorded(ledger: Ledger | None, asked: Sequence[Asked], studies: Studies, wanted: str | None) -> list[Predicted]:
    """The prediction of each cell; what has none on file is predicted afresh.

    An entry counts that is older than the cell, about the same system and method, and holds the cell; the newest with
    the deployment's own workload, engine settings and acceptance, else with the first two, else the newest of all.
    `wanted` is the id of one to be used whatever it is about and also where it is younger than the run: it is then
    not blind.
    """
    shelf = _Shelf(ledger, studies, wanted)
    found = [shelf.find(question) for question in asked]
    if wanted and asked and not any(found):
        raise InputError(
            f"prediction {wanted} holds no cell of this run ({_cells_text(asked)}); allowed: one that does, or none"
        )
    return [item or _fresh(question, studies) for item, question in zip(found, asked, strict=True)]


class _Shelf:
    """The predictions on file, newest first, read when they are needed."""

    def __init__(self, ledger: Ledger | None, studies: Studies, wanted: str | None) -> None:
        self._ledger, self._studies, self._wanted = ledger, studies, wanted
        self._rows = list(_candidates(ledger, wanted)) if ledger is not None else []
        self._bodies: dict[int, JsonObject] = {}

    def _body(self, row: Row) -> JsonObject:
        assert self._ledger is not None
        if row.sequence not in self._bodies:
            self._bodies[row.sequence] = self._ledger.body(row.sequence)
        return self._bodies[row.sequence]

    def find(self, question: Asked) -> Predicted | None:
        """The entry that speaks for a cell."""
        matching = []
        for row in self._rows:
            before = _is_before(row, question)
            if not before and not self._wanted:
                continue
            body = self._body(row)
            cell = _cell_in(body, question)
            if cell is None or not (self._wanted or _same_system(body, self._studies, question.method)):
                continue
            found = Predicted(cell, row, body, before and question.cell.is_dated)
            matching.append((self._distance(found, before), found))
            if matching[-1][0] == 0:
                break
        return min(matching, key=lambda pair: pair[0], default=(0, None))[1]

    def _distance(self, found: Predicted, before: bool) -> int:
        """How far an entry is from the deployment: 0 for the same settings and acceptance, made before the run."""
        if before and same_tables(found.body, self._studies.deployment):
            return 0 if same_acceptance(found.body, self._studies.deployment) else 1
        return 2 if found.blind else 3


def _candidates(ledger: Ledger, wanted: str | None) -> Iterator[Row]:
    """Predictions on file, newest first; of one id where it is named."""
    identity = ledger.identity(wanted) if wanted else None
    rows = [row for row in reversed(ledger.rows()) if row.kind == PREDICTION]
    if identity is not None and not any(row.prediction_id == identity for row in rows):
        raise InputError(f"prediction {identity}: only outcomes are on file; allowed: one of `draftcast ledger list`")
    return (row for row in rows if identity in (None, row.prediction_id))


def _is_before(row: Row, question: Asked) -> bool:
    """Whether the entry is older than the cell; without a time of the cell nothing is known to be."""
    made, started = moment(row.created), question.cell.started
    return made is not None and started is not None and made < started


def _cell_in(body: Mapping[str, Any], question: Asked) -> Mapping[str, Any] | None:
    """The entry's figures for the cell; None where it holds none. Without drafts any method's baseline does."""
    k = question.num_speculative_tokens
    listed = body.get("cells")
    cells = [mapping(cell) for cell in listed] if isinstance(listed, list) else []
    at_load = [cell for cell in cells if count(cell.get("concurrency")) == question.cell.concurrency]
    if k == 0:
        return {**at_load[0], **_baseline_of(at_load[0])} if at_load else None
    if body.get("method") != question.method:
        return None
    return next((cell for cell in at_load if count(cell.get("num_speculative_tokens")) == k), None)


def _baseline_of(cell: Mapping[str, Any]) -> JsonObject:
    """A cell turned into that of the baseline against itself."""
    even = {"p05": 1.0, "p50": 1.0, "p95": 1.0}
    return {"num_speculative_tokens": 0, "speculative": cell.get("baseline"), "speedup": even, "acceptance": None}


def _same_system(body: Mapping[str, Any], studies: Studies, method: str) -> bool:
    """Whether an entry is about this very system: model, GPU, links, engine and version, parallel sizes."""
    identity = identity_of(studies.of(method).system)
    stated = mapping(body.get("identity"))
    ours = {name: _plain(getattr(identity, name)) for name in identity.__slots__}
    return all(stated.get(name) == value for name, value in ours.items())


def same_tables(body: Mapping[str, Any], deployment: Deployment) -> bool:
    """Whether an entry was made for the same model, hardware, engine settings and workload, concurrencies aside."""
    stated, ours = mapping(body.get("deployment")), clean(deployment.to_dict(stated_only=True))
    return all(_settings(stated, name) == _settings(ours, name) for name in ("model", "hardware", "engine", "workload"))


def same_acceptance(body: Mapping[str, Any], deployment: Deployment) -> bool:
    """Whether an entry assumed what the deployment states of acceptance: two kinds of text differ in nothing else."""
    stated, ours = mapping(body.get("deployment")), clean(deployment.to_dict(stated_only=True))
    assumed = [mapping(tables.get("speculation")).get("acceptance") for tables in (stated, ours)]
    return bool(assumed[0] == assumed[1])


def _settings(tables: Mapping[str, Any], name: str) -> JsonObject:
    return {key: value for key, value in mapping(tables.get(name)).items() if key not in ("concurrency", "weights")}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _fresh(question: Asked, studies: Studies) -> Predicted:
    """A prediction made now: from the deployment as it is, with the run already there."""
    study = studies.of(question.method)
    forecast = forecast_cells(study, [question.point])[0]
    body = {"deployment": study.deployment.to_dict(stated_only=True), "resolved": {}}
    return Predicted(forecast, None, body, blind=False)


def _cells_text(asked: Sequence[Asked]) -> str:
    places = [f"{item.method} k={item.num_speculative_tokens} at {item.cell.concurrency}" for item in asked]
    return ", ".join(places[:4]) + (", ..." if len(places) > 4 else "")
