"""Measure how often the shown snippet holds the answer, for questions to the handbook of `benchmarks/handbook`.

Snippets were tuned on the forty of `questions.json` and `fresh.json`; the twenty of `later.json` were written before
they were asked. The sentences are those that a person is shown at a terminal.

    python benchmarks/snippets.py [PAGES] [HOME]

The pages are made, and indexed in `HOME`, if they are not there yet. The answer counts if it stands in the snippet of
the page that holds it, among the first eight results of `nugget search`; at least 85 % are wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from handbook.make import make

LEAST = 0.85
SHOWN = 8
ELSEWHERE = ("my cat prefers tuna over salmon", "who won the football world cup in 1990", "best pasta carbonara recipe",
             "how many days of paid time off do I get", "parental leave weeks")  # fmt: skip
"""Questions that the handbook does not answer."""


def main() -> None:
    """Ask every question and print where its answer was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="?", type=Path, default=Path("dist/handbook"), metavar="PAGES")
    parser.add_argument("home", nargs="?", type=Path, default=Path("dist/handbook-home"), metavar="HOME")
    parser.add_argument("-v", action="store_true", dest="verbose", help="print the snippets of the answers found too")
    arguments = parser.parse_args()
    pages, home = arguments.pages.resolve(), arguments.home.resolve()
    make(pages)
    brain = home / "brain"
    brain.mkdir(parents=True, exist_ok=True)
    (brain / "brain.yaml").touch()
    settings = {"canon": {"folders": [str(pages)]}, "retrieval": {"log_queries": False}}
    (home / "config.yaml").write_text(json.dumps(settings), "utf-8")
    os.environ |= {"NUGGET_HOME": str(home), "HOME": tempfile.mkdtemp()}

    from nugget.app import Brain
    from nugget.models import Filter, Query, SourceName

    with Brain(brain, face="cli") as opened:
        opened.sync()
        opened.sync_local_sources((SourceName.CANON,))
        filter_, worst = Filter(sources=(SourceName.CANON,)), 1.0
        for name in ("questions", "fresh", "later"):
            questions = json.loads(Path(__file__).with_name("handbook").joinpath(f"{name}.json").read_text("utf-8"))
            ranks, weak = [], 0
            for one in questions:
                bundle = opened.search(Query(one["question"], filter=filter_, limit=SHOWN), fresh=False)
                rank = next((at for at, hit in enumerate(bundle.hits, 1) if (hit.unit.path or "").endswith(one["page"])
                             and one["answer"] in " ".join(hit.chunks[0].text.split())), 0)  # fmt: skip
                ranks.append(rank)
                weak += bundle.weak
                print(f"{rank or '-':>2}{' weak' * bundle.weak}  {one['question']}")
                if not rank or arguments.verbose:
                    for at, hit in enumerate(bundle.hits, 1):
                        if (hit.unit.path or "").endswith(one["page"]):
                            print(f"      {at}. {hit.chunks[0].breadcrumb}: {hit.chunks[0].text}")
            share, first = sum(map(bool, ranks)) / len(ranks), ranks.count(1) / len(ranks)
            worst = min(worst, share)
            print(f"{name}: answer shown {share:.0%} (wanted {LEAST:.0%}), first {first:.0%}, called weak {weak}")
        known = sum(opened.search(Query(text, filter=filter_), fresh=False).weak for text in ELSEWHERE)
        print(f"called weak: {known} of {len(ELSEWHERE)} that it does not answer")
    sys.exit(worst < LEAST)


if __name__ == "__main__":
    main()
