"""A small server on loopback that streams like vLLM and counts like it, and misbehaves where a test says so.

It computes nothing: every answer has the asked-for tokens, in steps of `tokens_per_step`, one step each `pace_s`.
"""

import json
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "toy"


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        """Clients that go away are part of the tests."""


class Counters:
    """vLLM's counters of one process."""

    def __init__(self, k):
        self.k = k
        self.start_s = time.time()
        self.lock = threading.Lock()
        self.running = 0
        self.values = dict.fromkeys(
            (
                "generation_tokens_total", "prompt_tokens_total", "request_success_total",
                "time_to_first_token_seconds_count", "time_to_first_token_seconds_sum",
                "inter_token_latency_seconds_count", "inter_token_latency_seconds_sum",
                "iteration_tokens_total_count", "iteration_tokens_total_sum", "num_preemptions_total",
                "prefix_cache_queries_total", "prefix_cache_hits_total",
                "request_prompt_tokens_count", "request_prompt_tokens_sum",
                "request_generation_tokens_count", "request_generation_tokens_sum",
            ), 0.0,
        )  # fmt: skip
        self.drafts, self.accepted = 0, [0] * k

    def add(self, **growth):
        with self.lock:
            for name, value in growth.items():
                self.values[name] += value

    def draft(self, accepted):
        with self.lock:
            self.drafts += 1
            for position in range(accepted):
                self.accepted[position] += 1

    def text(self, extra_running=0):
        labels = f'engine="0",model_name="{MODEL}"'
        with self.lock:
            lines = [f"process_start_time_seconds {self.start_s!r}"]
            for name, value in self.values.items():
                reason = ',finished_reason="length"' if name == "request_success_total" else ""
                lines.append(f"vllm:{name}{{{labels}{reason}}} {value!r}")
            lines.append(f"vllm:num_requests_running{{{labels}}} {max(0, self.running + extra_running)}")
            lines.append(f"vllm:num_requests_waiting{{{labels}}} 0.0")
            lines.append('vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1.0')
            if self.k:
                lines.append(f"vllm:spec_decode_num_drafts_total{{{labels}}} {self.drafts}")
                lines.append(f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {self.drafts * self.k}")
                lines.append(f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {sum(self.accepted)}")
                lines += [
                    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{i}"}} {n}'
                    for i, n in enumerate(self.accepted)
                ]
        return "\n".join(lines) + "\n"


class FaultServer:
    """`with FaultServer() as server:` serves at `server.url`; every attribute may be changed while it runs."""

    def __init__(self, k=0, tokens_per_step=1, pace_s=0.001):
        self.k, self.tokens_per_step, self.pace_s = k, tokens_per_step, pace_s
        self.counters = Counters(k)
        self.faults = deque()  # one for each coming generation request; "ok" for none
        self.always = None  # the fault of every request while `faults` is empty
        self.metrics = "ok"  # "absent", "frozen", "half", "other", "twice", "silent"
        self.ready = True
        self.key = None
        self.refused_fields = ()
        self.has_chat = True
        self.usage = True
        self.ids = True
        self.join = 1  # steps in one chunk
        self.bunch = False  # a proxy that holds the whole answer back
        self.style = "text"  # of chat deltas: "text", "reasoning", "reasoning_content", "tools"
        self.extra_running = 0
        self.after = []  # called with this server after each answer
        self.pages = {}  # path ("*": any other) -> what a GET of it answers, or what to do with its handler
        self.connections = 0
        self.cached = None  # a set of prompts: a cache that no salt keeps apart
        self.bodies = []  # of the generation requests
        self.paths = []
        self.headers = []
        self._frozen = None

    def __enter__(self):
        server = self

        class Handler(_Handler):
            owner = server

        self.http = _Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.http.shutdown()
        self.http.server_close()

    def restart(self):
        """Another process: counters from zero, another start time."""
        self.counters = Counters(self.k)
        self.counters.start_s += 10.0

    def foreign(self, requests=1, tokens=50):
        """Work for somebody else."""
        self.counters.add(generation_tokens_total=tokens, request_success_total=requests,
                          time_to_first_token_seconds_count=requests,
                          inter_token_latency_seconds_count=tokens - requests,
                          inter_token_latency_seconds_sum=(tokens - requests) * 0.001)  # fmt: skip

    def work(self, batch=8, steps=100, step_s=0.01, conditional=(), draft_share=1.0):
        """Counts real traffic at once: engine steps of `batch` requests, of which `requests` end; drafts are accepted
        position by position with these conditional shares."""
        pairs, requests, output = batch * steps, 20, 200
        drafts, survivors, accepted = round(pairs * draft_share), pairs * draft_share, []
        for share in conditional if self.counters.k else ():
            survivors *= share
            accepted.append(round(survivors))
        tokens = pairs + sum(accepted)
        self.counters.add(
            generation_tokens_total=tokens + requests, request_success_total=requests,
            prompt_tokens_total=requests * 500, prefix_cache_queries_total=requests * 500,
            time_to_first_token_seconds_count=requests, time_to_first_token_seconds_sum=requests * 0.1,
            inter_token_latency_seconds_count=pairs, inter_token_latency_seconds_sum=pairs * step_s,
            iteration_tokens_total_count=steps, request_prompt_tokens_count=requests,
            request_prompt_tokens_sum=requests * 500, request_generation_tokens_count=requests,
            request_generation_tokens_sum=requests * output,
        )  # fmt: skip
        with self.counters.lock:
            self.counters.drafts += drafts if self.counters.k else 0
            self.counters.accepted = [a + b for a, b in zip(self.counters.accepted, accepted, strict=False)]

    def next_fault(self):
        with suppress(IndexError):
            return self.faults.popleft()
        return self.always or "ok"

    def metrics_text(self):
        text = self.counters.text(self.extra_running)
        if self.metrics == "frozen":
            self._frozen = self._frozen or text
            return self._frozen
        return {"half": text[: len(text) // 2], "other": text.replace("vllm:", "acme:"), "twice": text * 2}.get(
            self.metrics, text
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as real servers: else the kernel holds small chunks back
    owner: FaultServer

    def setup(self):
        self.owner.connections += 1
        super().setup()

    def log_message(self, format, *args):
        """Quiet."""

    def do_GET(self):
        server = self.owner
        server.headers.append(dict(self.headers))
        if not server.ready:
            return self.reply(503, {"error": {"message": "loading the model"}})
        if not self.is_allowed():
            return None
        page = server.pages.get(self.path, server.pages.get("*"))
        if callable(page):
            return page(self)
        if page is not None:
            return self.reply(200, page)
        if self.path == "/v1/models":
            card = {"id": MODEL, "object": "model", "owned_by": "vllm", "parent": None, "max_model_len": 4096}
            return self.reply(200, {"object": "list", "data": [card]})
        if self.path == "/version":
            return self.reply(200, {"version": "0.32.0"})
        if self.path == "/metrics" and server.metrics != "absent":
            return self.reply(200, server.metrics_text())
        return self.reply(404, {"detail": "Not Found"})

    def is_allowed(self):
        key = self.owner.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.reply(401, {"error": f"Unauthorized: got {self.headers.get('Authorization')}"})
        return False

    def reply(self, status, body, **headers):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        server = self.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.bodies.append(body)
        server.paths.append(self.path)
        server.headers.append(dict(self.headers))
        if not self.is_allowed():
            return
        if self.path.endswith("/chat/completions") and not server.has_chat:
            self.reply(400, {"error": {"message": "no chat template", "code": 400}})
            return
        refused = [name for name in server.refused_fields if name in json.dumps(body)]
        if refused:
            self.reply(400, {"error": {"message": f"unknown field {refused[0]}", "code": 400}})
            return
        if body["model"] != MODEL:
            self.reply(404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}})
            return
        self.generate(body, server.next_fault())
        for call in list(server.after):
            call(server)

    def generate(self, body, fault):
        name, _, detail = fault.partition(":")
        if name.isdigit():
            headers = {"Retry_After": detail} if detail else {}
            self.reply(int(name), {"error": {"message": f"status {name}"}}, **headers)
            return
        if name == "drop":
            self.close_connection = True
            return
        counters = self.owner.counters
        with counters.lock:
            counters.running += 1
        try:
            self.stream(body, name, counters)
        except OSError:
            self.close_connection = True
        finally:
            with counters.lock:
                counters.running -= 1

    def stream(self, body, fault, counters):
        server = self.owner
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        writer = _Stream(self, body, server, fault)
        counters.add(prompt_tokens_total=writer.prompt_tokens, prefix_cache_queries_total=writer.prompt_tokens)
        if server.cached is not None:
            prompt = json.dumps(body.get("messages") or body["prompt"])
            counters.add(prefix_cache_hits_total=writer.prompt_tokens if prompt in server.cached else 0)
            server.cached.add(prompt)
        start_s = before_s = time.monotonic()
        left, step = body["max_tokens"], 0
        while left > 0:
            time.sleep(server.pace_s)
            now_s = time.monotonic()
            tokens = min(left, 1 if step == 0 else server.tokens_per_step)
            left -= tokens
            counters.add(generation_tokens_total=tokens, iteration_tokens_total_count=1)
            if step == 0:
                counters.add(time_to_first_token_seconds_count=1,
                             time_to_first_token_seconds_sum=now_s - start_s)  # fmt: skip
            else:
                counters.add(inter_token_latency_seconds_count=1,
                             inter_token_latency_seconds_sum=now_s - before_s)  # fmt: skip
                if server.k:
                    counters.draft(min(server.tokens_per_step - 1, server.k))
            before_s, step = now_s, step + 1
            if left == 0:
                counters.add(request_success_total=1)
            if not writer.step(step, tokens, is_last=left == 0):
                self.close_connection = True
                return
        writer.end()


class _Stream:
    """Writes the chunks of one answer, and breaks them where the fault says."""

    FAULT_STEP = 3

    def __init__(self, handler, body, server, fault):
        self.wfile, self.body, self.server, self.fault = handler.wfile, body, server, fault
        self.is_chat = "messages" in body
        options = body.get("stream_options") or {}
        self.usage = server.usage and options.get("include_usage")
        self.continuous = self.usage and options.get("continuous_usage_stats")
        self.ids = server.ids and body.get("return_token_ids")
        self.prompt_tokens, self.total = 7, 0
        self.held, self.bunched = [], []
        if self.is_chat:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
                        **({"usage": self.counts(0)} if self.continuous else {})})  # fmt: skip

    def counts(self, tokens):
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens}

    def step(self, step, tokens, *, is_last):
        """Sends (or holds) the tokens of one step; False where the connection is to be closed."""
        self.total += tokens
        self.held += [100 + self.total] * tokens
        if step % self.server.join and not is_last and step > 1:
            return True
        held, self.held = self.held, []
        chunk = self.chunk(held, is_last=is_last)
        if step == self.FAULT_STEP and self.fault != "ok":
            return self.misbehave(chunk)
        self.event(chunk)
        return True

    def chunk(self, held, *, is_last):
        choice = {"index": 0, "finish_reason": "length" if is_last else None}
        text = " wört" * len(held)
        styles = {
            "text": {"content": text},
            "reasoning": {"reasoning": text},
            "reasoning_content": {"reasoning_content": text},
            "tools": {"tool_calls": [{"index": 0, "function": {"arguments": text}}]},
        }
        choice |= {"delta": styles[self.server.style]} if self.is_chat else {"text": text}
        if self.ids:
            choice["token_ids"] = held
        return {"choices": [choice], **({"usage": self.counts(self.total)} if self.continuous else {})}

    def misbehave(self, chunk):
        data = b"data: " + json.dumps(chunk, ensure_ascii=False).encode()
        cuts = {"cut": len(data) // 2, "cut_utf8": data.index("ö".encode()) + 1 if "ö".encode() in data else 9}
        if self.fault in cuts:
            self.raw(data[: cuts[self.fault]])
            return False
        if self.fault == "reset":
            return False
        if self.fault == "stall":
            time.sleep(30)
            return False
        if self.fault == "error":
            self.event({"error": {"message": "the engine died", "code": 500}})
            return False
        if self.fault == "garbage":
            self.raw(b": a comment\n\ndata: {no json\n\ndata: [1, 2]\n\nnonsense\n\nevent: x\ndata: \xff\xfe\n\n")
        if self.fault == "huge":
            self.raw(b"data: " + b"x" * 9_000_000 + b"\n\n")
        if self.fault == "bytes":  # one byte at a time: characters and events arrive in pieces
            for index in range(len(data)):
                self.raw(data[index : index + 1])
            self.raw(b"\n\n")
            return True
        self.event(chunk)
        return True

    def end(self):
        if self.usage:
            self.event({"choices": [], "usage": self.counts(self.total)})
        if self.fault != "no_done":
            self.raw(b"data: [DONE]\n\n")
        self.flush()
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value):
        base = {"id": "x", "object": "chunk", "model": MODEL}
        self.raw(b"data: " + json.dumps(base | value, ensure_ascii=False).encode() + b"\n\n")

    def raw(self, data):
        self.bunched.append(b"%x\r\n%b\r\n" % (len(data), data))
        if not self.server.bunch:
            self.flush()

    def flush(self):
        data, self.bunched = b"".join(self.bunched), []
        self.wfile.write(data)
