"""Reading provenance: what is answered to `why is this code the way it is`. Numbers are those of the design."""

PROMISES: dict[str, str] = {
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
}
GAPS: dict[str, str] = {}
