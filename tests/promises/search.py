"""One search over everything: sources, the query language, refs, isolation of memory."""

PROMISES: dict[str, str] = {
    "SEARCH-LANGUAGE": "phrases, AND/OR/NOT, prefixes, NEAR and field filters; free text otherwise",
    "SEARCH-MALFORMED": "a malformed query is searched as plain text and says so; every string is a query",
}

GAPS: dict[str, str] = {}
