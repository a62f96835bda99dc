"""The one gateway to git: plain subprocesses with a cleaned environment.

Nothing here runs the user's hooks, asks for a password, or opens an editor; every failure is a GitError that
carries git's own first sentence. The brain is the root of its repository, so every path is relative to it.
"""

from nugget.git.process import environment, run
from nugget.git.reading import (
    Branch,
    Change,
    State,
    branches,
    changed_between,
    changes,
    current_branch,
    diff,
    files_at,
    git_dir,
    has_commit_with,
    head,
    is_repository,
    merge_base,
    operation_in_progress,
    read_blob,
    resolve,
    state,
    unmerged_files,
)
from nugget.git.writing import (
    check_branch_name,
    commit_files,
    commit_paths,
    create_branch,
    delete_branch,
    fast_forward,
    init,
    merge_files,
)

__all__ = [
    "Branch", "Change", "State", "branches", "changed_between", "changes", "check_branch_name", "commit_files",
    "commit_paths", "create_branch", "current_branch", "delete_branch", "diff", "environment", "fast_forward",
    "files_at", "git_dir", "has_commit_with", "head", "init", "is_repository", "merge_base", "merge_files",
    "operation_in_progress", "read_blob", "resolve", "run", "state", "unmerged_files",
]  # fmt: skip
