"""One search over everything: sources, the query language, refs, isolation of memory."""

PROMISES: dict[str, str] = {
    "SEARCH-LANGUAGE": "phrases, AND/OR/NOT, prefixes, NEAR and field filters; free text otherwise",
    "SEARCH-MALFORMED": "a malformed query is searched as plain text and says so; every string is a query",
    "CANON-READ": "canon: folders of markdown, with frontmatter, links and dates, read and never written",
    "CANON-IGNORE": "ignore files and generated folders are honoured",
    "CANON-BAD-INPUT": "unreadable folders, links in circles and huge trees stop nothing and are told",
    "MEMORY-SOURCES": "memory: an identity's own notes, and the files that the agent of that name reads",
    "MEMORY-IDENTITY": "an identity with path characters is refused",
    "MEMORY-ISOLATION": "memory is returned to the identity that is named, and never otherwise, on any face",
}

GAPS: dict[str, str] = {}
