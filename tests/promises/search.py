"""One search over everything: sources, the query language, refs, isolation of memory."""

PROMISES: dict[str, str] = {
    "SEARCH-LANGUAGE": "phrases, AND/OR/NOT, prefixes, NEAR and field filters; free text otherwise",
    "SEARCH-LIST": "filters without words list all that they admit, the newest first",
    "SEARCH-MALFORMED": "a malformed query is searched as plain text and says so; every string is a query",
    "SEARCH-GROUPS": "one query searches every source; results are grouped, each with an excerpt and a ref",
    "ASK-SOURCES": "ask answers from every indexed source, and from those that are named",
    "SEARCH-SNIPPET": "a result shows the sentences of its unit that answer the question, below its title and section",
    "SEARCH-WIDTH": "results are wrapped between words at every width of a terminal",
    "SEARCH-PAGES": "ask and search show the same results of all sources, best first, and the next page on demand",
    "SEARCH-EXAMPLES": "the examples of search over a realistic world are golden transcripts",
    "SEARCH-GET": "every ref is shown whole, with what stands around it",
    "SEARCH-RELATED": "what is near a ref: linked units, then those nearest by meaning",
    "SEARCH-SUGGEST": "suggest tells domains, tags, types, paths, people and frequent words",
    "SEARCH-COMPLETION": "a shell completes refs, domains, tags and types",
    "SEARCH-MCP": "agents search other sources and drill into refs, within their budget",
    "SEARCH-MCP-PLACE": "a path narrows provenance and sessions to it for agents, and what it cannot narrow is said",
    "SEARCH-FRESH": "a few changed files are found at once, many are left to the background, deleted ones vanish",
    "BRAINS-SEARCH": "Several brains answer together, each hit with its brain and the score that it has alone.",
    "BRAINS-LEFT-OUT": "A brain that is gone, damaged or not trusted is named, and stops no other.",
    "BRAINS-CAPTURE": "A session is captured into the brain whose rule matches its repository or folder.",
    "BRAINS-REVIEW": "Review, status, doctor, recall and the start line handle all brains.",
    "CANON-READ": "canon: folders of markdown, with frontmatter, links and dates, read and never written",
    "CANON-IGNORE": "ignore files and generated folders are honoured",
    "CANON-BAD-INPUT": "unreadable folders, links in circles and huge trees stop nothing and are told",
    "CANON-SCALE": "a tree of 100,000 files is walked for its notes, generated folders not entered, limits told",
    "CANON-CLOUD": "conflict copies of cloud clients are left out of a vault",
    "MEMORY-SOURCES": "memory: an identity's own notes, and the files that the agent of that name reads",
    "MEMORY-IDENTITY": "an identity with path characters is refused",
    "MEMORY-ISOLATION": "memory is returned to the identity that is named, and never otherwise, on any face",
}

GAPS: dict[str, str] = {}
