"""The promises of the product, by id: what the design and the documents say that can be checked.

Each area lists its own in `tests/promises/<area>.py` as `PROMISES: dict[str, str]` (id -> the promise in one
sentence) and, where it has some, `GAPS: dict[str, str]` (id -> why there is no proof). A test names the ids that it
proves with `@pytest.mark.proves("ID", ...)`; tests/house/test_requirements.py holds both sides to each other.
"""

import importlib
import pkgutil

import promises


def _gather(name: str) -> dict[str, str]:
    gathered: dict[str, str] = {}
    for module in pkgutil.iter_modules(promises.__path__):
        entries: dict[str, str] = getattr(importlib.import_module(f"promises.{module.name}"), name, {})
        twice = gathered.keys() & entries.keys()
        assert not twice, f"defined twice: {sorted(twice)}"
        gathered.update(entries)
    return gathered


PROMISES = _gather("PROMISES")
GAPS = _gather("GAPS")
