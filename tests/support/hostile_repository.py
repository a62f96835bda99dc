"""A repository whose `.git` folder has a trap under each key of git-config(1) whose value is a program."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from programs import program

PROGRAM_KEYS = """
alias.log browser.trap.cmd core.alternateRefsCommand core.askPass core.editor core.fsmonitor core.gitProxy
core.pager core.sshCommand core.virtualFilesystem credential.helper credential.https://example.invalid.helper
diff.external diff.trap.command diff.trap.textconv difftool.trap.cmd difftool.trap.path filter.trap.clean
filter.trap.smudge filter.with=and.dots.process gc.recentObjectsHook gpg.openpgp.program gpg.program
gpg.ssh.defaultKeyCommand gpg.ssh.program gpg.x509.program guitool.trap.cmd hook.trap.command imap.tunnel
instaweb.httpd interactive.diffFilter man.trap.cmd merge.trap.driver mergetool.trap.cmd mergetool.trap.path
pager.diff pager.log pager.status remote.origin.receivepack remote.origin.uploadpack sendemail.ccCmd
sendemail.sendmailCmd sendemail.toCmd sequence.editor submodule.trap.update tar.trap.command trailer.trap.cmd
trailer.trap.command uploadpack.packObjectsHook web.browser
""".split()
SUPPORTING = {
    "commit.gpgSign": "true",
    "core.hooksPath": "{folder}/hooks",
    "diff.autoRefreshIndex": "true",
    "filter.trap.required": "true",
    "gc.auto": "1",
    "hook.trap.event": "pre-commit",
    "include.path": "{folder}/included",
    "log.showSignature": "true",
    "protocol.ext.allow": "always",
    "remote.origin.url": "ext::{folder}/address",
    "status.submoduleSummary": "true",
    "submodule.recurse": "true",
    "url.ext::{folder}/address .insteadOf": "https://",
}
"""What makes git run the programs above, or reach them in another way."""
HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change",
    "post-merge", "post-rewrite", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "prepare-commit-msg",
    "reference-transaction", "pre-receive", "update", "post-receive", "post-update", "proc-receive", "push-to-checkout",
)  # fmt: skip


@dataclass(frozen=True)
class Traps:
    """The traps of a repository, and which of them were sprung."""

    folder: Path

    @property
    def sprung(self) -> set[str]:
        """The names of the programs that ran."""
        return {mark.name for mark in (self.folder / "marks").iterdir()}

    def program(self, name: str) -> Path:
        """A program that leaves a mark with its name."""
        slug = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in name)
        return program(self.folder / slug, f"echo ran > '{self.folder}/marks/{slug}'")


def plant(repo: Path, folder: Path) -> Traps:
    """Put the traps into the `.git` folder of a repository; what stands in its checkout stays."""
    (folder / "marks").mkdir(parents=True)
    (folder / "hooks").mkdir()
    traps = Traps(folder)
    traps.program("address")

    def setting(key: str, value: str, file: Path = repo / ".git/config") -> None:
        subprocess.run(["git", "config", "--file", str(file), "--add", key, value], check=True)

    for key in PROGRAM_KEYS:
        value = str(traps.program(key))
        setting(key, f"!{value}" if key.startswith(("alias.", "submodule.")) else value)
    for key, value in SUPPORTING.items():
        setting(key.format(folder=folder), value.format(folder=folder))
    setting("filter.included.clean", str(traps.program("filter.included.clean")), folder / "included")
    setting("filter.of-worktree.clean", str(traps.program("filter.of-worktree.clean")), repo / ".git/config.worktree")
    setting("extensions.worktreeConfig", "true")
    for name in HOOKS:
        for place in (folder / "hooks", repo / ".git/hooks"):
            program(place / name, str(traps.program("hook-" + name)))
    attributes = (
        "* filter=trap diff=trap merge=trap\n*.py filter=with=and.dots\n*.yaml filter=included\n"
        "*.toml filter=of-worktree\n"
    )
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/attributes").write_text(attributes)
    return traps
