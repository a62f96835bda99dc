"""The one gateway to git: through GitPython, with the settings and the environment of `nugget.infra.git.process`.

Nothing here runs a program that a repository names, asks for a password, or opens an editor; every failure is a
GitError that carries git's own first sentence. The brain is the root of its repository, so paths are relative to it.
"""

# ruff: isort: skip_file
# ruff: noqa: F401 - the names of the package
# fmt: off
from nugget.infra.git.changing import (
    RefChange, change_refs, clear_errors, finish_pending, only_writer, wait_until_free,
)
from nugget.infra.git.process import environment, run
from nugget.infra.git.reading import (
    EMPTY_TREE, Branch, Change, State, branches, changes, checkouts, commit_before,
    committed_between, committed_in, current_branch, diff, files_at, git_dir, has_commit_with, head, is_repository,
    last_commit_days, lock_files, merge_base, read_blob, read_objects, resolve, state, top_folder, unmerged_files,
    unsettled, versions_of,
)
from nugget.infra.git.remotes import (
    Remote, RemoteHead, clone, delete_remote_branch, fetch, find_remote, push, remote_head,
)
from nugget.infra.git.writing import (
    commit_change, commit_files, commit_staged, create_branch, init, merge_files, move_branch, move_checkout,
    ready_branch, refuse_checked_out,
)
