"""A server that answers at an exact pace, in a process of its own: the yardstick of `benchmarks/client.py`.

Every stream gets its chunk at the ticks of one clock, as the requests of one engine step do. The last event tells when
the first and the last chunk were really sent, on the monotonic clock that all processes of a machine share.
"""

import asyncio
import json
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(value: object) -> bytes:
    """One server-sent event as one HTTP chunk."""
    text = value if isinstance(value, str) else json.dumps(value)
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def token_chunk(index: int, tokens_per_step: int, prompt_tokens: int) -> bytes:
    """A chunk as vLLM sends one with `return_token_ids` and continuous usage."""
    total = (index + 1) * tokens_per_step
    choice = {
        "index": 0,
        "text": " word" * tokens_per_step,
        "logprobs": None,
        "finish_reason": None,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": list(range(1000, 1000 + tokens_per_step)),
    }
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + total, "completion_tokens": total}
    return event({"id": "cmpl-0123456789abcdef", "object": "text_completion", "created": 1795970345, "model": "paced",
                  "choices": [choice], "usage": usage})  # fmt: skip


class Clock:
    """Wakes all who wait at every tick."""

    def __init__(self, step_s: float) -> None:
        """A tick every `step_s`, from now on."""
        self.step_s = step_s
        self.waiting: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """Ticks for ever, without drift."""
        next_s = time.monotonic()
        while True:
            next_s += self.step_s
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def tick(self) -> None:
        """Returns at the next tick."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clock: Clock) -> None:
    """Requests of one connection: the body's `max_tokens` in steps of its `tokens_per_step`."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(length))
            await stream(writer, clock, body["max_tokens"], body.get("tokens_per_step", 1))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def stream(writer: asyncio.StreamWriter, clock: Clock, max_tokens: int, tokens_per_step: int) -> None:
    """One answer; the sent times stand in the fingerprint of the last event."""
    chunks = [token_chunk(index, tokens_per_step, 100) for index in range(max_tokens // tokens_per_step)]
    writer.write(HEAD)
    sent_s = []
    for chunk in chunks:
        await clock.tick()
        sent_s.append(time.monotonic())
        writer.write(chunk)
    usage = {"prompt_tokens": 100, "completion_tokens": len(chunks) * tokens_per_step}
    fingerprint = f"{sent_s[0]!r} {sent_s[-1]!r}"
    writer.write(event({"choices": [], "usage": usage, "system_fingerprint": fingerprint}))
    writer.write(event("[DONE]") + b"0\r\n\r\n")
    await writer.drain()


async def main() -> None:
    """Prints its port, then serves until it is ended."""
    clock = Clock(float(sys.argv[1]))
    server = await asyncio.start_server(lambda r, w: serve_one(r, w, clock), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await clock.run()


if __name__ == "__main__":
    asyncio.run(main())
