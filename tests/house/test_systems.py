"""Windows and macOS: what Windows lacks is called in `infra.system` alone, which says what happens there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from paths import REPOSITORY

PACKAGE = REPOSITORY / "nugget"
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
def test_what_windows_lacks_is_called_in_one_module() -> None:
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if file != PACKAGE / "infra/system.py"]
    assert [f"{file.relative_to(PACKAGE)}:{one}" for file in files for one in found(file.read_text("utf-8"))] == []


@pytest.mark.proves("HOUSE-SYSTEMS")
def test_each_function_of_that_module_says_what_happens_on_windows() -> None:
    tree = ast.parse((PACKAGE / "infra/system.py").read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 5 and len(list(found(ast.unparse(tree)))) > 5
    assert [one.name for one in functions if "Windows" not in (ast.get_docstring(one) or "")] == []
    unguarded = [one.name for one in functions if list(found(ast.unparse(one))) and "IS_POSIX" not in ast.unparse(one)]
    assert unguarded == []
