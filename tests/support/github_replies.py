"""The JSON of GitHub's REST API, whole: every field that its description (github_openapi/) demands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DAY = "2026-03-01T10:00:00Z"

_REPOSITORY_ADDRESSES = """
    archive assignees blobs branches collaborators comments commits compare contents contributors deployments downloads
    events forks git_commits git_refs git_tags hooks issue_comment issue_events issues keys labels languages merges
    milestones notifications pulls releases stargazers statuses subscribers subscription tags teams trees
""".split()
_USER_ADDRESSES = """
    avatar events followers following gists organizations received_events repos starred subscriptions
""".split()


def user(api: str, origin: str, login: str) -> dict[str, Any]:
    """A `simple-user`."""
    where = f"{api}/users/{login}"
    return {f"{name}_url": f"{where}/{name}" for name in _USER_ADDRESSES} | {
        "login": login, "id": 7, "node_id": "MDQ6VXNlcjc=", "gravatar_id": "", "type": "User", "site_admin": False,
        "url": where, "html_url": f"{origin}/{login}",
    }  # fmt: skip


def repository(api: str, origin: str, owner: str, name: str) -> dict[str, Any]:
    """A `repository`."""
    full, where = f"{owner}/{name}", f"{api}/repos/{owner}/{name}"
    counts = dict.fromkeys(
        ("forks", "forks_count", "open_issues", "open_issues_count", "size", "stargazers_count", "watchers",
         "watchers_count", "network_count", "subscribers_count"), 0,
    )  # fmt: skip
    switches = {"fork": False, "private": True, "archived": False, "disabled": False} | {
        f"has_{what}": True for what in ("downloads", "issues", "projects", "wiki", "pages", "discussions")
    }
    nothing = dict.fromkeys(("description", "homepage", "language", "license", "mirror_url"))
    git = f"{origin}/{full}.git"
    return {f"{part}_url": f"{where}/{part}" for part in _REPOSITORY_ADDRESSES} | counts | switches | nothing | {
        "id": 1, "node_id": "MDEwOlJlcG9zaXRvcnkx", "name": name, "full_name": full, "owner": user(api, origin, owner),
        "url": where, "html_url": f"{origin}/{full}", "clone_url": git, "git_url": git, "ssh_url": git, "svn_url": git,
        "default_branch": "main", "created_at": DAY, "updated_at": DAY, "pushed_at": DAY,
    }  # fmt: skip


def label(api: str, owner: str, repo: str, name: str) -> dict[str, Any]:
    """A `label`."""
    return {
        "id": 1, "node_id": "LA_1", "name": name, "color": "ededed", "default": False, "description": "",
        "url": f"{api}/repos/{owner}/{repo}/labels/{name}",
    }  # fmt: skip


def comment(api: str, origin: str, owner: str, repo: str, *, issue: int, id: int, body: str) -> dict[str, Any]:
    """An `issue-comment`."""
    where = f"{api}/repos/{owner}/{repo}/issues"
    return {
        "id": id, "node_id": f"IC_{id}", "url": f"{where}/comments/{id}", "issue_url": f"{where}/{issue}",
        "html_url": f"{origin}/{owner}/{repo}/pull/{issue}#issuecomment-{id}", "body": body, "created_at": DAY,
        "updated_at": DAY, "user": user(api, origin, owner), "author_association": "OWNER",
    }  # fmt: skip


def pull_request(
    api: str, origin: str, owner: str, repo: str, *, number: int, own: Mapping[str, Any], whole: bool
) -> dict[str, Any]:
    """A `pull-request-simple`, or the `whole` one; `own` are the fields that tell one from another."""
    where = f"{api}/repos/{owner}/{repo}"
    pull, issue, page = f"{where}/pulls/{number}", f"{where}/issues/{number}", f"{origin}/{owner}/{repo}/pull/{number}"
    links = {
        "self": pull, "html": page, "issue": issue, "comments": f"{issue}/comments", "commits": f"{pull}/commits",
        "review_comments": f"{pull}/comments", "review_comment": f"{where}/pulls/comments{{/number}}",
        "statuses": f"{where}/statuses/{own['head']['sha']}",
    }  # fmt: skip
    more = {
        "additions": 1, "deletions": 0, "changed_files": 1, "comments": 0, "commits": 1, "review_comments": 0,
        "mergeable": True, "mergeable_state": "clean", "maintainer_can_modify": False, "merged_by": None,
        "merged": own["merged_at"] is not None,
    }  # fmt: skip
    return {
        "id": 1000 + number, "node_id": f"PR_{number}", "number": number, "url": pull, "html_url": page,
        "diff_url": f"{page}.diff", "patch_url": f"{page}.patch", "issue_url": issue, "locked": False, "draft": False,
        "comments_url": links["comments"], "commits_url": links["commits"], "statuses_url": links["statuses"],
        "review_comment_url": links["review_comment"], "review_comments_url": links["review_comments"],
        "assignee": None, "milestone": None, "auto_merge": None, "author_association": "OWNER",
        "user": user(api, origin, owner), "created_at": DAY, "updated_at": DAY,
        "_links": {name: {"href": address} for name, address in links.items()},
        **own, **(more if whole else {}),
    }  # fmt: skip
