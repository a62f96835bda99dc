"""Why is this code the way it is: what is found, scored, packed, stale and followed, on real files and real git."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from provenance_store import NOW, Shop, ids, make_shop, summaries
from replay import git

from nugget.models import Depth, Scope, SourceName, StaleReason, Unit
from nugget.models.nuggets import Nugget, NuggetHit, NuggetType, ScopeMatch
from nugget.provenance import checkout as checkouts
from nugget.provenance.ranking import BUDGET_TOKENS, weigh, with_staleness
from nugget.retrieval.packing import NUGGET_FRAME_TOKENS, pack_nuggets


@pytest.fixture
def shop(tmp_path: Path, isolated_home: Path) -> Shop:
    made = make_shop(tmp_path, isolated_home / ".nugget")
    for path in ("src/auth/login.py", "src/auth/token.py", "src/cache.py", "README.md"):
        made.write(path, f"# {path}\n")
    made.commit(at=NOW - timedelta(days=200))
    return made


@pytest.mark.proves("WHY-PATH", "WHY-SCOPE-UPWARDS")
def test_a_file_finds_its_own_and_its_folders_nuggets_and_with_words_its_neighbours(shop):
    same = {"days_ago": 10, "confidence": 0.5}
    exact = shop.learn("tokens live an hour", path="src/auth/login.py", session=1, **same)
    folder = shop.learn("auth never logs a token", path="src/auth", session=2, **same)
    beside = shop.learn("signs with ed25519", path="src/auth/token.py", session=3, **same)
    everywhere = shop.learn("supports node 18", type=NuggetType.CONSTRAINT, session=4, **same)
    shop.learn("make the login faster", type=NuggetType.INTENT, session=6, **same)  # what a session was for
    shop.learn("caches for a minute", path="src/cache.py", session=5, **same)
    found = shop.why("src/auth/login.py")
    assert ids(found) == [exact, everywhere, folder]
    assert [hit.match for hit in found.hits] == [ScopeMatch.EXACT, ScopeMatch.WORKSPACE, ScopeMatch.DIRECTORY]
    # 0.2 * 0.7 + 0.1 * 0.5 + 0.15 * 0.5 ** (10 / 30) = 0.309055, and 0.3 * (1.0, 0.2, 0.6); a rule has 0.26 more
    assert [hit.score for hit in found.hits] == pytest.approx([0.609055, 0.629055, 0.489055])
    assert ids(shop.why("src/auth/login.py", text="ed25519"))[0] == beside


@pytest.mark.proves("WHY-QUESTION")
@pytest.mark.parametrize("question", ["authenticating", "why stateless authentication?", "cookies", "horizontally"])
def test_a_question_finds_summaries_details_alternatives_and_prompts(shop, question):
    wanted = shop.learn(
        "chose JWT for authentication", detail="Stateless tokens.", alternatives=("session cookies",),
        source_prompt="make it scale horizontally", path="src/auth/login.py",
    )  # fmt: skip
    shop.learn("caches for a minute", path="src/cache.py", session=2)
    assert ids(shop.why(text=question)) == [wanted]


@pytest.mark.proves("WHY-BOTH")
def test_what_matches_path_and_question_comes_first_whatever_the_scores(shop):
    constraint = shop.learn("must never log a token", path="src/auth/login.py", type="constraint", days_ago=1)
    both = shop.learn("redis was too slow", path="src/auth", type="dependency", session=2, days_ago=90, confidence=0.1)
    elsewhere = shop.learn("redis caches for a minute", path="src/cache.py", session=3, days_ago=1)
    found = shop.why("src/auth/login.py", "redis")
    assert ids(found) == [both, constraint, elsewhere] and found.hits[0].score < found.hits[1].score


@pytest.mark.proves("WHY-STALE-FILE", "WHY-STALE-RETURNED")
def test_a_file_that_differs_now_makes_its_nuggets_stale_and_putting_it_back_makes_them_fresh(shop):
    shop.learn("tokens live an hour", path="src/auth/login.py", days_ago=0)
    (before,) = shop.why("src/auth/login.py").hits
    text = (shop.repo / "src/auth/login.py").read_text()
    shop.write("src/auth/login.py", text + "# changed\n")
    (stale,) = shop.why("src/auth/login.py").hits
    shop.write("src/auth/login.py", text)
    (after,) = shop.why("src/auth/login.py").hits
    assert [hit.stale_reason for hit in (before, stale, after)] == [None, StaleReason.FILE_CHANGED, None]
    assert stale.score == pytest.approx(before.score - 0.30)


@pytest.mark.proves("WHY-STALE-SUPERSEDED")
def test_only_a_later_session_supersedes_and_only_the_same_path_type_and_symbol(shop):
    shop.learn("first of two", path="src/cache.py", session=1)
    shop.learn("second of two", path="src/cache.py", session=1)
    shop.learn("of a function", path="src/cache.py", symbol="get", session=1)
    shop.learn("another type", path="src/cache.py", type="intent", session=1)
    shop.learn("of the workspace", type="constraint", session=1)
    shop.learn("later", path="src/cache.py", session=2)
    shop.learn("later of the workspace", type="constraint", session=2)
    found = shop.why("src/cache.py")
    stale = {hit.nugget.summary for hit in found.hits if hit.stale_reason is StaleReason.SUPERSEDED}
    assert stale == {"first of two", "second of two"}
    assert len(found.hits) == 7 and all(hit.stale_reason in (None, StaleReason.SUPERSEDED) for hit in found.hits)


@pytest.mark.proves("WHY-STALE-EXPIRED")
def test_a_nugget_expires_the_day_after_its_last(shop):
    shop.learn("until yesterday", stale_after=NOW.date() - timedelta(days=1))
    shop.learn("until today", stale_after=NOW.date())
    reasons = {hit.nugget.summary: hit.stale_reason for hit in shop.why("").hits}
    assert reasons == {"until yesterday": StaleReason.EXPIRED, "until today": None}


@pytest.mark.proves("WHY-HASH-FEW")
def test_only_files_that_are_shown_are_read(shop):
    for number in range(40):
        shop.write(f"lib/f{number}.py", "x\n")
        shop.learn(f"number {number}", path=f"lib/f{number}.py", days_ago=number)
    looking = shop.checkout()
    shop.why("lib/f3.py", checkout=looking, budget_tokens=100)
    assert len(looking._hashes) <= 4


@pytest.mark.proves("WHY-RENAMED")
@pytest.mark.parametrize("how", ["committed twice", "by a session"])
def test_a_renamed_file_keeps_its_nuggets(shop, how):
    text = "\n".join(f"line {number}" for number in range(50))
    shop.write("src/old.py", text)
    shop.commit(at=NOW - timedelta(days=120))
    known = shop.learn("why it is so", path="src/old.py")
    new = shop.repo / "lib" / "new.py"
    new.parent.mkdir()
    if how == "committed twice":
        git(shop.repo, "mv", "src/old.py", "src/middle.py")
        shop.commit()
        assert ids(shop.why("src/middle.py")) == [known]
        git(shop.repo, "mv", "src/middle.py", "lib/new.py")
        shop.commit()
    else:
        (shop.repo / "src/old.py").unlink()
        new.write_text(text.upper())
        shop.learn("moved it", path="lib/new.py", previous="src/old.py", session=2, type="intent")
        (old,) = [hit for hit in shop.why("lib/new.py").hits if hit.nugget.id == known]
        assert old.stale_reason is StaleReason.FILE_CHANGED, "followed, and compared with the present content"
        return
    found = shop.why("lib/new.py")
    assert ids(found) == [known] and found.hits[0].match is ScopeMatch.EXACT
    assert found.hits[0].stale_reason is None and "src/old.py is lib/new.py now." in found.notes
    assert ids(shop.why("src/old.py")) == [known], "the old name still leads there"
    assert ids(shop.why("src")) == [], "it is not below its old folder any more"


@pytest.mark.proves("WHY-BAD-INPUT")
def test_links_out_of_the_repository_and_huge_files_are_not_read(shop, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    (shop.repo / "src/link.py").symlink_to(secret)
    shop.learn("a link", path="src/link.py", file_hash="0" * 64)
    with (shop.repo / "src/bundle.js").open("wb") as bundle:
        bundle.truncate(checkouts.MAX_HASHED_BYTES + 1)
    shop.learn("generated", path="src/bundle.js", file_hash="0" * 64)
    for path in ("src/link.py", "src/bundle.js"):
        assert shop.why(path).hits[0].stale_reason is None


def unit(path: str, **more: Any) -> Unit:
    values: dict[str, Any] = {
        "id": "bug/login-loop", "source": SourceName.BRAIN, "type": "bug", "title": "Login loops", "confidence": 0.8,
        "body": "# Login loops\n\nBecause of the clock.", "created": date(2026, 10, 2), "scope": Scope(path=path),
    }  # fmt: skip
    return Unit(**(values | more))


@pytest.mark.proves("WHY-REVIEWED")
def test_units_of_the_brain_stand_among_the_nuggets_and_say_so(shop):
    nugget = shop.learn("tokens live an hour", path="src/auth/login.py", days_ago=30)
    reviewed = (unit("src/auth/login.py"), None, None)
    found = shop.why("src/auth/login.py", reviewed=[reviewed, (unit("src/cache.py", id="bug/other"), None, None)])
    assert ids(found) == ["brain:bug/login-loop", nugget]
    assert not shop.why(text="zebra", reviewed=[(unit("of/another.py"), 1.0, None)]).hits, "it names no repository"
    first = found.hits[0]
    assert first.unit is not None and first.nugget.detail == "Because of the clock."
    # counted as a caveat: 0.3 + 0.2 * 0.9 + 0.15 * 0.5 ** (30.5 / 30) + 0.08 + 0.2
    assert first.score == pytest.approx(0.76 + 0.15 * 0.5 ** (30.5 / 30))


@pytest.mark.proves("WHY-SYMBOL")
def test_what_is_about_a_symbol_or_names_it_comes_first(shop):
    same = {"path": "src/auth/login.py", "days_ago": 10}
    other = shop.learn("tokens live an hour", **same)
    names = shop.learn("the clock is passed in", detail="`refresh` cannot be tested without", **same)
    about = shop.learn("retries twice", symbol="refresh", **same)
    inner = shop.learn("guards against loops", detail="see _again", **same)
    found = shop.why("src/auth/login.py", symbol="refresh", symbol_words=["_again"])
    assert set(ids(found)[:3]) == {names, about, inner} and ids(found)[3] == other
    assert found.hits[0].score == pytest.approx(found.hits[3].score + 0.10)


EXACT, DIRECTORY, SAME, WORKSPACE, ELSEWHERE = ScopeMatch


DECISION, INTENT, STALE = NuggetType.DECISION, NuggetType.INTENT, {"is_stale": True}
SCORES: list[tuple[NuggetType, ScopeMatch, float, dict[str, Any], float]] = [
    # 0.3 * the value of the scope, 0.2 * 0.7 for the type, 0.1 * 0.9 for the confidence
    *((DECISION, match, 0.9, {}, score)
      for match, score in zip(ScopeMatch, (0.53, 0.41, 0.38, 0.29, 0.23), strict=True)),
    # 0.2 * the value of the type, and the boosts of the first three
    *((type_, ELSEWHERE, 0.0, {}, score)
      for type_, score in zip(NuggetType, (0.40, 0.38, 0.31, 0.14, 0.12, 0.10, 0.08, 0.06), strict=True)),
    # 0.3 + 0.2 * 0.4 + 0.1 * 0.5, and 0.15 that halves every thirty days
    *((INTENT, EXACT, 0.5, {"age_days": days}, 0.43 + 0.15 * share)
      for days, share in ((0, 1.0), (30, 0.5), (60, 0.25), (15, 0.70711), (None, 0.0))),
    (INTENT, ELSEWHERE, 0.0, {"text": 1.0}, 0.33),  # 0.2 * 0.4 + 0.1 * 1.0, and 0.15 after the weighing
    (DECISION, EXACT, 0.9, {"age_days": 30}, 0.605),  # 0.3 + 0.14 + 0.075 + 0.09
    (DECISION, EXACT, 0.9, {"age_days": 30, **STALE}, 0.305),
    (NuggetType.DEPENDENCY, ELSEWHERE, 0.0, STALE, 0.0),  # no score is negative
]  # fmt: skip


@pytest.mark.proves("WHY-SCOPE-VALUES", "WHY-SHARES", "WHY-TYPE-PRIORITY", "WHY-HALF-LIFE", "WHY-BOOSTS",
                    "WHY-STALE-PENALTY", "WHY-CLAMP", "WHY-EXPLAIN")  # fmt: skip
@pytest.mark.parametrize(("type_", "match", "confidence", "signals", "score"), SCORES)
def test_scores_are_those_of_the_design_and_the_sum_of_their_contributions(type_, match, confidence, signals, score):
    learned = None if signals.get("age_days") is None else NOW - timedelta(days=signals["age_days"])
    nugget = Nugget(id="a-1", type=type_, summary="s", confidence=confidence, session="a", session_started=learned)
    hit = weigh(nugget, match, now=NOW, text=signals.get("text"))
    hit = with_staleness(hit, StaleReason.EXPIRED if "is_stale" in signals else None)
    assert hit.score == pytest.approx(score, abs=1e-5)
    assert sum(part.value for part in hit.contributions) == pytest.approx(score, abs=1e-5)


def hit(number: int, *, detail: str = "", prompt: str = "", type_: str = "decision") -> NuggetHit:
    nugget = Nugget(
        id=f"abc-{number}", type=NuggetType(type_), summary="s" * 40, detail=detail, source_prompt=prompt,
        confidence=0.5, session="abc", scope=Scope(path="src/a.py"), alternatives=("x" * 8,) if detail else (),
        session_started=datetime(2026, 11, 1, tzinfo=UTC),
    )  # fmt: skip
    return NuggetHit(nugget=nugget, match=EXACT)


# A summary of 40 characters is 10 tokens, `src/a.py` 2: with its frame 42. A detail of 80 with its alternative is 22.
SUMMARY_TOKENS = NUGGET_FRAME_TOKENS + 12


@pytest.mark.proves("WHY-TOKENS", "WHY-PACKING")
def test_depth_decides_what_is_shown_of_a_nugget():
    assert BUDGET_TOKENS == 2000
    hits = [hit(1, detail="d" * 80, prompt="p" * 400)]
    shown = {depth: pack_nuggets(hits, budget_tokens=2000, depth=depth) for depth in Depth}
    tokens = {depth: budget.used for depth, (_, budget, _) in shown.items()}
    assert tokens == {
        Depth.SUMMARY: SUMMARY_TOKENS, Depth.STANDARD: SUMMARY_TOKENS + 22, Depth.DEEP: SUMMARY_TOKENS + 122,
    }  # fmt: skip
    assert shown[Depth.DEEP][1].available == 2000 - tokens[Depth.DEEP]
    first = {depth: packed[0].nugget for depth, (packed, _, _) in shown.items()}
    texts = {depth: (one.detail, one.alternatives, one.source_prompt) for depth, one in first.items()}
    assert texts[Depth.SUMMARY] == ("", (), "")
    assert texts[Depth.STANDARD] == ("d" * 80, ("x" * 8,), "")
    assert texts[Depth.DEEP] == ("d" * 80, ("x" * 8,), "p" * 400)


@pytest.mark.proves("WHY-TRUNCATED")
def test_what_does_not_fit_is_counted_by_type():
    hits = [hit(1), hit(2, type_="intent"), hit(3, type_="intent"), hit(4, type_="constraint")]
    packed, budget, hint = pack_nuggets(hits, budget_tokens=SUMMARY_TOKENS + 5, depth=Depth.SUMMARY)
    assert [entry.nugget.id for entry in packed] == ["abc-1"] and budget.truncated
    assert hint and "3 nuggets (2 intent, 1 constraint)" in hint
    nothing, budget, hint = pack_nuggets(hits, budget_tokens=10, depth=Depth.SUMMARY)
    assert nothing == () and budget.used == 0 and budget.truncated and hint and "4 nuggets" in hint


@pytest.mark.proves("WHY-TYPES-SINCE")
def test_types_and_dates_limit_what_is_found(shop):
    old = shop.learn("old decision", path="src/cache.py", days_ago=40)
    shop.learn("new intent", path="src/cache.py", type="intent", session=2, days_ago=2)
    assert ids(shop.why("src/cache.py", types=(NuggetType.DECISION,))) == [old]
    assert summaries(shop.why("src/cache.py", since=NOW - timedelta(days=3))) == ["new intent"]
