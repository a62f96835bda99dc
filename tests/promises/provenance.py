"""Reading provenance: what is answered to `why is this code the way it is`. Numbers are those of the design."""

PROMISES: dict[str, str] = {
    "API-PROVENANCE": "extract and coverage are there in Python.",
    "WHY-SHARES": "Scope weighs .30, type .20, recency .15, confidence .10, the words of the question .10.",
    "WHY-SCOPE-VALUES": "An exact file counts 1.0, a directory prefix .6, the same directory .5, the workspace .2.",
    "WHY-SCOPE-UPWARDS": "A file finds what was said of its folders; a folder finds what was said of the files below.",
    "WHY-TYPE-PRIORITY": "constraint 1.0, caveat .9, tuning .8, decision .7, rejection .6, workaround .5, intent .4, "
    "dependency .3.",
    "WHY-HALF-LIFE": "Recency halves every 30 days.",
    "WHY-BOOSTS": "Constraints and caveats get +.20, tunings +.15, a match of the question's words +.15.",
    "WHY-STALE-PENALTY": "A stale nugget loses .30.",
    "WHY-CLAMP": "Scores are clamped to 0..1.",
    "WHY-EXPLAIN": "The contributions of a nugget add up to its score.",
    "WHY-TOKENS": "Tokens are estimated at four characters each; the budget is 2000 unless said otherwise.",
    "WHY-PACKING": "Three passes fill the budget: summaries, details (not at `summary`), source prompts (at `deep`).",
    "WHY-TRUNCATED": "What did not fit makes the answer truncated, and the hint says what was left out.",
    "WHY-INDEX": "Nuggets are units of the machine's index; only files of the store that changed are read.",
    "WHY-PATH": "A path finds nuggets of the file, its folders and what lies below and beside, and of the workspace.",
    "WHY-QUESTION": "A question finds nuggets by the words of summary, detail, alternatives and prompt, stemmed.",
    "WHY-BOTH": "Path and question together merge both; nuggets that match both come first.",
    "WHY-TYPES-SINCE": "Types and a date limit what is found.",
    "WHY-STALE-FILE": "A file whose SHA-256 is not the recorded one any more makes its nuggets stale: file_changed.",
    "WHY-STALE-SUPERSEDED": "A nugget of a later session with the same path and type supersedes; one of the same "
    "session, another symbol or the whole workspace does not.",
    "WHY-STALE-EXPIRED": "A nugget whose stale_after has passed is stale: expired.",
    "WHY-STALE-RETURNED": "Stale nuggets are returned, flagged with the reason and penalised.",
    "WHY-HASH-FEW": "Only files that are asked about or shown are hashed.",
    "WHY-RENAMED": "Renamed files are followed through sessions and git's history.",
    "WHY-BAD-INPUT": "Deleted files, huge files, links out of the repository, bare repositories, detached HEADs and "
    "corrupt lines cost no answer.",
    "WHY-REVIEWED": "Units of the brain that are scoped to the place are included and marked as reviewed.",
    "WHY-SYMBOL": "Nuggets that are about a symbol, or name it, come before others of the file.",
    "CONTEXT-JSON": "`nugget why --json` has openqed's shape: query, budget, nuggets, moreContextHint.",
    "CONTEXT-TEXT": "People read the answer as the design shows it, and nothing in it is obeyed by the terminal.",
    "CONTEXT-DEPTH": "`summary` shows summaries, `standard` details, `deep` source prompts too.",
    "CONTEXT-PATHS": "Paths are meant from the current folder, of whatever repository they are in.",
    "CONTEXT-SYMBOL": "Definitions are found with `ast` and tree-sitter; ambiguous symbols are said clearly.",
    "CONTEXT-BAD-INPUT": "What cannot be answered is told in one sentence with exit code 2.",
    "NUGGETS-LIST": "`nugget nuggets` lists at most 50 as a table, by file, type and staleness, also as JSON.",
    "NUGGETS-INSPECT": "`nuggets inspect ID` shows everything that is known of one; the beginning of an id is enough.",
    "NUGGETS-CHECK": "`nuggets --check` lists paths and symbols named in a nugget or unit that are gone.",
    "SESSIONS-LIST": "`nugget sessions` is the one list: of the workspace or, with --all, of the machine, read or "
    "not, with title, project, the session's own start, length, capture and outcome.",
    "SESSIONS-INSPECT": "`sessions show --summary` (`inspect`) shows prompts, artifacts and event counts, redacted.",
    "COVERAGE-BARS": "`nugget coverage` draws a bar a file.",
    "COVERAGE-GAPS": "`coverage --gaps` shows files asked about more than explained, and unexplained code by churn.",
    "PROVENANCE-MCP": "`get_relevant_context(path=...)` gives nuggets, file history and decisions within the budget, "
    "beside the brain's units.",
    "OPENQED-TOOLS": "`nugget serve --compat openqed` exposes openqed_context, openqed_file_history (1500 tokens "
    "unless said otherwise) and openqed_decisions with their schemas.",
    "PROMOTE": "`nugget promote ID` proposes a nugget as a knowledge unit through review; scope and evidence are kept.",
    "GOLDEN-TRANSCRIPT": "On a repository built from a real session each command prints what was recorded.",
}
GAPS: dict[str, str] = {}
