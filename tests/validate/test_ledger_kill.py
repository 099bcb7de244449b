"""Writers that are killed at any moment: nothing that was acknowledged is lost, and nothing is left half written."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from validate.ledger.store import Ledger

CHECKOUT = Path(__file__).parent.parent.parent
WRITER = """
import sys
from pathlib import Path
from validate.ledger.store import Entry, Ledger
path, name = Path(sys.argv[1]), int(sys.argv[2])
for i in range(100_000):
    with Ledger(path, writable=True) as ledger:
        identity = f"{name:08x}{i:08x}"
        row = ledger.append(Entry("prediction", identity, {}, {"filler": "x" * 20_000, "identity": identity}))
    print(identity, row.sequence, flush=True)
"""
ROUNDS, WRITERS = 3, 4


def test_killed_writers_lose_no_acknowledged_entry_and_damage_nothing(tmp_path: Path) -> None:
    path, chance = tmp_path / "l.sqlite", random.Random(7)
    acknowledged: dict[str, int] = {}
    for round_number in range(ROUNDS):
        outputs = [tmp_path / f"{round_number}-{i}.txt" for i in range(WRITERS)]
        files = [output.open("w") for output in outputs]
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), str(round_number * WRITERS + i)],
                stdout=files[i],
                cwd=CHECKOUT,
            )
            for i in range(WRITERS)
        ]
        while not all(output.stat().st_size for output in outputs):  # each has written something
            time.sleep(0.01)
        for writer in writers:
            time.sleep(chance.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
        for writer, file in zip(writers, files, strict=True):
            writer.wait()
            file.close()
        for output in outputs:
            whole = output.read_text().rpartition("\n")[0]
            acknowledged |= {identity: int(n) for identity, n in (line.split() for line in whole.splitlines())}
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Ledger(path) as ledger:
        found = {row.prediction_id: row.sequence for row in ledger.rows()}
        assert found.items() >= acknowledged.items()
        assert len(acknowledged) >= ROUNDS * WRITERS
        for identity, sequence in found.items():
            assert ledger.body(sequence)["identity"] == identity, "whole, also where it was not acknowledged any more"
