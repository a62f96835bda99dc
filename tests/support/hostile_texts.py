"""Units that, repeated, once made a rule read the rest of the text again and again."""

import json

from paths import TESTS

HOSTILE: dict[str, str] = json.loads((TESTS / "fixtures" / "hostile_texts.json").read_text("utf-8"))
