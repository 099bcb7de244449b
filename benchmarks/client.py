"""What the measuring client adds to TPOT: its figure against the pace at which a server in another process really sent.

The server tells for every stream when its first and last chunk left it, on the clock that all processes of a machine
share, so neither its own jitter nor a busy machine is counted as the client's.
"""

import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from validate.client.answers import Answer
from validate.client.connection import Connection
from validate.client.target import Target

SERVER = Path(__file__).parent / "paced_server.py"
# (streams, step in ms, tokens of a step, tokens of a request)
CASES = (
    (1, 10, 1, 300),
    (16, 20, 1, 200),
    (64, 20, 1, 200),
    (64, 20, 4, 800),
    (64, 10, 1, 300),
    (128, 40, 1, 100),
    (256, 40, 1, 100),
)
ROUNDS = 2
MOST_ADDED, MOST_STREAMS = 0.02, 64


@dataclass(slots=True)
class Seen:
    """Answers of all users, and the processor time that they took."""

    answers: list[Answer] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    processor_share: float = 0.0

    def added(self) -> list[float]:
        """Relative difference of each request's TPOT from what was sent."""
        return [added_to(answer) for answer in self.answers]


def added_to(answer: Answer) -> float:
    """Client's TPOT over the sent one, minus 1."""
    assert answer.fingerprint is not None
    first_s, last_s = map(float, answer.fingerprint.split())
    assert answer.tpot_s is not None
    assert answer.decode_tokens is not None
    return answer.tpot_s / ((last_s - first_s) / answer.decode_tokens) - 1


def user(url: str, body: dict[str, int], wait_s: float, seen: Seen) -> None:
    """A user of the closed loop."""
    connection = Connection(Target(url))
    time.sleep(wait_s)
    for _ in range(ROUNDS):
        answer = connection.stream("/v1/completions", body)
        with seen.lock:
            seen.answers.append(answer)


def run(streams: int, step_ms: float, tokens_per_step: int, tokens: int) -> Seen:
    """All users at once against a server of its own."""
    with subprocess.Popen([sys.executable, SERVER, str(step_ms / 1000)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        body = {"max_tokens": tokens, "tokens_per_step": tokens_per_step}
        seen = Seen()
        spread_s = step_ms / 1000 * tokens / tokens_per_step / streams
        threads = [threading.Thread(target=user, args=(url, body, i * spread_s, seen)) for i in range(streams)]
        before_s, processor_s = time.monotonic(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen.processor_share = (time.process_time() - processor_s) / (time.monotonic() - before_s)
        server.kill()
    return seen


def main() -> int:
    """Exit code: 1 where the client adds too much at a number of streams that it must carry."""
    print("| streams | step, ms | tokens a step | chunks/s | added to TPOT, mean | worst request | processor |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for streams, step_ms, tokens_per_step, tokens in CASES:
        seen = run(streams, step_ms, tokens_per_step, tokens)
        added, worst = statistics.mean(seen.added()), max(map(abs, seen.added()))
        counted = all(answer.output_tokens == tokens for answer in seen.answers)
        good &= counted and (streams > MOST_STREAMS or abs(added) <= MOST_ADDED)
        print(
            f"| {streams} | {step_ms} | {tokens_per_step} | {round(streams * 1000 / step_ms):,} "
            f"| {100 * added:+.2f} % | {100 * worst:.1f} % | {100 * seen.processor_share:.0f} % |",
            flush=True,
        )
    print(f"allowed up to {MOST_STREAMS} streams: {100 * MOST_ADDED:g} %")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
