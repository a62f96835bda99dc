"""Publishing: git remotes, pull requests, and what comes back from them."""

PROMISES: dict[str, str] = {
    "GITLAB": "On GitLab proposals are merge requests, handled as pull requests are on GitHub.",
    "PUBLISH-PULL-REQUEST": "A proposal becomes a branch on the remote and one pull request with its title and text.",
    "PUBLISH-ONCE": "Publishing is repeatable: what is on GitHub already is found, not doubled, also by two at once.",
    "PUBLISH-LABELS": "Pull requests get the configured labels; where labels are refused they are open all the same.",
    "PUBLISH-LOCAL": "Without a remote on GitHub, a token, or with `capture.publish: never`, nothing leaves.",
    "PUBLISH-OWN-FILES": "A pull request holds the proposal's files and no commit that the person never pushed.",
    "PUBLISH-FAULTS": "Whatever fails, the units stay on their branch, the reason is told, the next try goes on.",
    "PUBLISH-STATUS": "`nugget status` shows what is open, only local, and not published for which reason.",
    "PUBLISH-MERGED": "What was merged is pulled, found by `ask`, and its local branch cleaned up.",
    "PUBLISH-REJECTED": "A closed pull request, and a file that the reviewer took out, are not proposed again.",
    "PUBLISH-WITHDRAW": "Rejecting here closes the pull request with a comment and deletes the remote branch; offline, "
    "the next publishing does.",
    "PUBLISH-END-TO-END": "From a payload on stdin to a pull request, its merge, the pull and the answer.",
    "PULL-CAREFUL": "Only a clean checkout of the default branch is moved, and only forward.",
    "PULL-AUTOMATIC": "The worker and each sync follow the remote of a trusted brain; with `sync.pull: false`, or for "
    "a brain that is not trusted, nobody does unasked.",
    "ACCEPT-MERGES": "`review accept` merges the pull request on GitHub and brings the merge here; if GitHub forbids "
    "it or is out of reach, nothing changes and the page is named.",
    "ACCEPT-PUSHES": "Without a pull request `review accept` commits and pushes; a push that failed is told and made "
    "good later, one that a rule refuses changes nothing.",
    "FOLLOW-EDITED": "What a person edits in a pull request comes here; what they take out is remembered as rejected.",
    "FOLLOW-DIVERGED": "A main that diverged is told by `status` and `doctor`, and mended by `nugget sync --rebase`.",
    "FOLLOW-RENAMED": "A repository that was renamed on GitHub is followed.",
    "PUBLISH-FOREIGN": "A remote branch of a proposal's name with other content is left alone, and it is said.",
    "INIT-PUSHES": "`nugget init --remote` pushes the brain; a failure is told, with the command that tries again.",
    "ONE-HISTORY": "Accepted here and merged there, in any order, with and without a network, there is one history.",
    "PUBLISH-DIGEST": "With `publish.every: day` or `week` the sessions of a period share a pull request, a commit "
    "each, titled and labelled by content; a person's edits of its title and text are kept.",
    "LOOP-CLOSES": "From a session to a pull request, its merge and the next session's answer nothing is typed.",
    "FRESH-AT-ONCE": "Whatever changes knowledge leaves the indexes current before it says that it is done.",
    "CAPTURE-HEADLESS": "With `capture.headless: false` sessions that a program ran are not captured.",
    "GITHUB-MERGE": "A pull request is merged in a way the repository allows; a refusal says why and names its page.",
    "GITHUB-WAITS": "A rate limit is waited for as GitHub asks, for a minute at most; a longer one is told.",
    "GITHUB-TOKEN": "The token goes to GitHub's own address alone, and stands in no message, argument or file.",
    "GITHUB-SENTENCE": "Every failure of GitHub or of the way to it is a ForgeError with one clear sentence.",
    "REMOTE-PROXY": "The remote and GitHub are reached through the proxy that the environment names.",
    "REMOTE-CLEAN": "A remote is spoken to in the cleaned environment: no inherited GIT_DIR, no prompt, no hooks.",
}
