"""Measure requests a second on one core, and what brief and recall add to the start of Python.

Run: `python benchmarks/http_server.py`. The load comes from another process: wrk where it is installed, else eight
threads that keep their connections, over plain sockets. Targets: /v1/logs/context at 200 requests a second of one
core and a p99 of 50 ms at 8 connections; brief and recall within 300 ms from a cold start.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parent.parent
CONNECTIONS = 8
SECONDS = 6.0
EVENTS = 2_000
START = [sys.executable, "-c", "import sys; from nugget.__main__ import console; sys.argv[0] = 'nugget'; console()"]
PROMPT = "users still see old prices after we changed them: cache invalidation of stored copies"


def main() -> None:
    """Measure one thing after the other and print the table."""
    if sys.argv[1:2] == ["--load"]:
        print(json.dumps(load(int(sys.argv[2]), sys.argv[3])))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copytree(REPOSITORY / "tests" / "brain", folder / "brain")
        environment = variables(folder)
        shop = write_logs(folder)
        with served(folder, environment) as (process, port):
            print(f"load: {'wrk' if shutil.which('wrk') else 'eight threads over plain sockets'}, {SECONDS:g} s each\n")
            print(f"{'':<46}{'a second':>10}{'of one core':>12}{'p50 ms':>9}{'p99 ms':>9}   target")
            base = f"http://127.0.0.1:{port}"
            wait_for_backfill(base)
            for name, path, target in (
                ("/healthz", "/healthz", ""),
                ("/v1/logs/context, 2,000 events", "/v1/logs/context/sess_load?q=why+did+the+build+fail", "200, 50 ms"),
                ("/v1/ask, words only", "/v1/ask?q=refresh+stored+copies+of+prices&no_llm=1", ""),
            ):
                row(name, process.pid, port, path, target)
        cold(shop, folder / "brain", environment)


def row(name: str, pid: int, port: int, path: str, target: str) -> None:
    """Print one line: requests a second, the same by the server's processor time, and latencies."""
    measured(port, path, seconds=1.0)
    before, began = cpu_s(pid), time.perf_counter()
    result = measured(port, path, seconds=SECONDS)
    spent, took = cpu_s(pid) - before, time.perf_counter() - began
    rate = result["requests"] / took
    per_core = result["requests"] / spent if spent else float("nan")
    print(f"{name:<46}{rate:>10.0f}{per_core:>12.0f}{result['p50']:>9.1f}{result['p99']:>9.1f}   {target}")


def measured(port: int, path: str, *, seconds: float) -> dict[str, float]:
    """Return the requests answered, p50 and p99 in ms, as another process measured them."""
    if wrk := shutil.which("wrk"):
        command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "--latency"]
        said = subprocess.run([*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True).stdout
        times = {name: in_ms(value) for name, value in re.findall(r"(\d+)%\s+([\d.]+\w+)", said)}
        requests = re.search(r"(\d+) requests in", said)
        return {"requests": int(requests[1]) if requests else 0, "p50": times["50"], "p99": times["99"]}
    command = [sys.executable, __file__, "--load", str(port), f"{seconds}:{path}"]
    result: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return result


def in_ms(text: str) -> float:
    """Return `1.5ms`, `900us` or `1.2s` in milliseconds."""
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]


def load(port: int, asked: str) -> dict[str, float]:
    """Generate the load: each thread sends its next request when it has the last reply."""
    seconds, _, path = asked.partition(":")
    end = time.perf_counter() + float(seconds)
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        parts = [future.result() for future in [threads.submit(one, port, path, end) for _ in range(CONNECTIONS)]]
    times = sorted(took for part in parts for took in part)
    at = [times[min(len(times) - 1, int(len(times) * share))] * 1000 for share in (0.5, 0.99)]
    return {"requests": len(times), "p50": at[0], "p99": at[1]}


def one(port: int, path: str, end: float) -> list[float]:
    """Return the seconds that each request of one connection took."""
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (began := time.perf_counter()) < end:
            connection.sendall(request)
            received = connection.recv(65536)
            head, _, body = received.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head[:200]
            length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            while len(body) < length:
                body += connection.recv(65536)
            times.append(time.perf_counter() - began)
    return times


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_backfill(base: str) -> None:
    """Wait until the server has read the logs, which is not measured."""
    from urllib.request import urlopen

    while json.load(urlopen(f"{base}/healthz"))["backfill"]["state"] == "running":
        time.sleep(0.1)


def write_logs(folder: Path) -> Path:
    """Write a session of some thousand events in a code repository, and return the repository."""
    shop = folder / "shop"
    shop.mkdir()
    subprocess.run(["git", "-C", shop, "init", "-q"], check=True)
    subprocess.run(["git", "-C", shop, "remote", "add", "origin", "https://github.com/acme/shop.git"], check=True)
    logs = folder / "logs" / "sess_load"
    logs.mkdir(parents=True)
    with (logs / "events.jsonl").open("w") as file:
        for number in range(EVENTS // 2):
            at = 1_763_000_000_000 + 1000 * number
            command = {"cmd": f"make build-{number % 40}", "cwd": str(shop)}
            file.write(json.dumps({"ts_ms": at, "kind": "command.start", "data": command}) + "\n")
            file.write(json.dumps({"ts_ms": at + 1, "kind": "command.end", "data": {"exit": number % 7 == 0}}) + "\n")
    lines = [f"src/part{number}.c:{number}: error: unknown name `x{number}`\n" for number in range(200)]
    (logs / "stderr.log").write_text("".join(lines))
    return shop


def variables(folder: Path) -> dict[str, str]:
    """Return an environment without keys, below a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUGGET_", "ANTHROPIC_", "AISH"))}
    models = os.environ.get("NUGGET_MODELS") or str(REPOSITORY / ".models")
    return kept | {
        "HOME": str(folder), "NUGGET_HOME": str(folder / "home"), "NUGGET_BRAIN": str(folder / "brain"),
        "AISH_LOG_DIR": str(folder / "logs"), "NUGGET_MODELS": models, "PYTHONPATH": str(REPOSITORY),
        "NUGGET_EMBEDDING_MODEL": "none", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip


@contextmanager
def served(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the server in a process of its own and yield it with its port."""
    with subprocess.Popen(
        [*START, "serve", "--http", "127.0.0.1:0", "--no-token"],
        cwd=folder,
        env=dict(environment),
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr
        found = re.search(rb"http://.*:(\d+) ", process.stderr.readline())
        assert found, "the server did not start"
        yield process, int(found[1])
        process.terminate()


def cold(shop: Path, brain: Path, environment: Mapping[str, str]) -> None:
    """Measure the hooks from a cold start against an empty Python."""
    command = [sys.executable, "-P", "-m", "nugget", "capture-session"]
    held = {**environment, "NUGGET_BRAIN": str(brain)}
    start = {"hook_event_name": "SessionStart", "source": "startup", "cwd": str(shop), "session_id": "s"}
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt": PROMPT, "cwd": str(shop), "session_id": "s"}
    cases = {
        "python -c pass": ([sys.executable, "-c", "pass"], {}, ""),
        "SessionStart without --brief": (command, start, ""),
        "SessionStart --brief": ([*command, "--brief"], start, "300 ms"),
        "UserPromptSubmit --recall": ([*command, "--recall"], prompt, "300 ms"),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(7):
        for name, (line, payload, _) in cases.items():
            before, began = os.times(), time.perf_counter()
            subprocess.run(line, input=json.dumps(payload).encode(), env=held, capture_output=True, cwd=shop)
            took, after = time.perf_counter() - began, os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            times[name].append((took * 1000, spent * 1000))
    print(f"\n{'':<46}{'p50 ms':>10}{'min ms':>12}{'CPU ms':>9}            target")
    for name, (_, _, target) in cases.items():
        walls, cpus = zip(*times[name], strict=True)
        print(f"{name:<46}{median(walls):>10.0f}{min(walls):>12.0f}{min(cpus):>9.0f}            {target}")


if __name__ == "__main__":
    main()
