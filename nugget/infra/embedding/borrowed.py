"""The vector of one question from another process, so that a command need not load the model for it.

Importing numpy and onnxruntime and loading the model is more than half of what a cold question takes. A server of the
same NUGGET_HOME that runs already has done it. Where none runs, a second process does it while the command starts:
a thread would gain nothing, for what takes the time is importing, and imports take turns.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from array import array
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.infra import resident
from nugget.infra.embedding import BUNDLED_MODEL, Embedder, QuestionEmbedder, Vector

if TYPE_CHECKING:
    from nugget.config import Environment

_START = "import sys; sys.path[:] = sys.argv[2:]; from nugget.infra.embedding.borrowed import lend_once; lend_once()"

_SERVER_PATIENCE_S = 0.2
"""How long a server is waited for: loading the model here takes about as long."""

_PATIENCE_S = 20.0
"""How long the second process is waited for; it is as fast as this one would be, and began earlier, so only where
something holds it up is giving it up worth while."""

_ROUNDING = 1e-3

_PEEKED_CHARS = 20_000
_MODEL = re.compile(r"^embedding:(?:[^\n]*\n(?=[ \t#\n]))*?[^\n#]*?\bmodel:[ \t]*[\"']?([^\s\"'#,}]+)", re.MULTILINE)
"""`model:` of the section `embedding:`, where it is no comment."""

_loading: subprocess.Popen[bytes] | None = None


class Borrowing:
    """A model of which others make the vectors of questions where they can, else `own`."""

    def __init__(self, own: QuestionEmbedder, environment: Environment) -> None:
        self._own = own
        self._environment = environment

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._own.model

    def embed_query(self, text: str) -> Vector:
        """The vector of a question. Raises EmbeddingUnavailable."""
        question = {"embed": text, "model": self.model}
        of_server = _vector_in(resident.ask(self._environment.home, question, timeout_s=_SERVER_PATIENCE_S))
        return of_server or _vector_in(_ask_loading(question)) or self._own.embed_query(text)


def load_ahead() -> None:
    """Have a second process load the bundled model from now on; not where that would be in vain."""
    global _loading
    from nugget.config import read_environment

    environment = read_environment()
    if _model_named(environment) != BUNDLED_MODEL or _cores() < 2 or resident.is_answered(environment.home):
        return
    with suppress(OSError):
        _loading = subprocess.Popen(
            [sys.executable, "-c", _START, str(environment.models), *sys.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def _model_named(environment: Environment) -> str:
    """The model that the settings seem to name, told without a parser of YAML: its import would be waited for.

    A mistake costs time and no answer: whoever uses another model does not ask the second process.
    """
    named = _MODEL.search(_beginning(environment.home / "config.yaml"))
    return environment.variables.get("NUGGET_EMBEDDING_MODEL", named[1] if named else BUNDLED_MODEL)


def _beginning(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_PEEKED_CHARS)
    except (OSError, ValueError):
        return ""


def lend_once() -> None:
    """The second process: load the model, answer the question on stdin, if one comes, and end."""
    from nugget.infra.embedding.local import converted

    embedder = converted(Path(sys.argv[1]))
    if embedder is not None:
        embedder.load()
        if asked := sys.stdin.buffer.read():
            print(json.dumps(vector_for(json.loads(asked), embedder)), flush=True)
    os._exit(0)  # taking the interpreter apart would be waited for


def vector_for(question: dict[str, Any], embedder: Embedder | None) -> dict[str, Any]:
    """The answer to `{"embed": text, "model": name}`: `{"vector": base64}`; `{}` by another model than the named.

    Raises EmbeddingUnavailable.
    """
    text = question.get("embed")
    if embedder is None or not isinstance(text, str) or question.get("model") != embedder.model:
        return {}
    return {"vector": b64encode(embedder.embed_query(text).tobytes()).decode()}


def _ask_loading(question: dict[str, Any]) -> dict[str, Any] | None:
    """The answer of the process that was started ahead, which answers once; None where there is none."""
    global _loading
    process, _loading = _loading, None
    if process is None:
        return None
    try:
        answer = json.loads(process.communicate(json.dumps(question).encode(), timeout=_PATIENCE_S)[0])
    except (OSError, subprocess.SubprocessError, ValueError):
        process.kill()
        process.wait()
        return None
    return answer if isinstance(answer, dict) else None


def _vector_in(answer: dict[str, Any] | None) -> array[float] | None:
    """The vector of an answer, where it is one: of length 1."""
    given = (answer or {}).get("vector")
    vector = array("f")
    try:
        vector.frombytes(b64decode(given, validate=True) if isinstance(given, str) else b"")
    except ValueError:
        return None
    return vector if abs(sum(number * number for number in vector) - 1.0) < _ROUNDING else None


def _cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
