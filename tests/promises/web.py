"""The page in the browser."""

PROMISES = {
    "WEB-PAGES": "Every page is valid HTML with one first heading and loads nothing from elsewhere.",
    "WEB-GATE": "A browser is let in by a key that works once; other hosts, other pages and strangers are refused.",
    "WEB-HOSTILE": "Text of units, prompts and addresses is shown as text, whatever it holds.",
    "WEB-REVIEW": "A proposal is decided in one commit, against what was looked at; what changed meanwhile is said.",
    "WEB-EDIT": "A unit is edited, moved, forgotten and restored as commits; an edit of an old state is refused.",
    "WEB-PULSE": "A page asks whether anything changed without git and without the index.",
    "WEB-BROWSER": "Review by keys, search as one types and undo work in a real browser, without violations of axe.",
}
