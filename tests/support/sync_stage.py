"""What tests of sync share: a file of tests/brain, and a knowledge unit as its file says it."""

CACHE_FILE = "domains/coding/concepts/cache-invalidation.md"


def unit(id_: str, *, domain: str = "coding", body: str = "Some knowledge about widgets.") -> str:
    return f"---\nid: {id_}\ntype: {id_.split('/')[0]}\ndomain: {domain}\n---\n# {id_}\n\n{body}\n"
