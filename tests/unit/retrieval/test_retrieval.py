"""The read pipeline over the real index and model; times in questions."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml
from cli_stage import write_unit
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import REPOSITORY

from nugget.app import Brain
from nugget.config import Settings, read_environment
from nugget.errors import LLMUnavailable, UsageError
from nugget.index.embedded import Index
from nugget.index.embedded.vectors import add_distance
from nugget.models import Bundle, Chunk, Contribution, Depth, Filter, Hit, Query, SourceName, Unit
from nugget.render import bundle_markdown, stale_words
from nugget.retrieval.candidates import fuse
from nugget.retrieval.llm import Reranker
from nugget.retrieval.packing import pack
from nugget.retrieval.scoring import STANDS_OUT
from nugget.text import estimate_tokens

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def asked(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    """The test brain, indexed once for all tests of this module."""
    with Brain(shutil.copytree(indexed.parent, tmp_path_factory.mktemp("read") / "brain")) as brain:
        brain.sync()
        yield brain


def ids(bundle: Bundle) -> list[str]:
    return [hit.unit.id for hit in bundle.hits]


@pytest.mark.proves("ASK-GOLDEN")
def test_at_least_38_of_40_paraphrased_questions_find_their_unit_in_the_top_three(asked):
    questions = yaml.safe_load((REPOSITORY / "tests/golden/questions.yaml").read_text("utf-8"))["questions"]
    assert len(questions) >= 40
    found = {entry["question"]: ids(asked.ask(entry["question"], fresh=False, now=NOW))[:3] for entry in questions}
    missed = [entry["question"] for entry in questions if not {*entry["expect"]} & {*found[entry["question"]]}]
    assert len(missed) <= len(questions) * 2 // 40, missed


@pytest.mark.proves("SEARCH-SNIPPET")
def test_a_summary_shows_the_sentences_that_answer(tmp_path):
    filler = "\n\n".join(f"## Part {n}\n\nLogin sessions are kept in table {n} of the database." for n in range(40))
    body = f"{filler}\n\n## Expiry\n\nNobody likes to log in again. A login session expires after 45 minutes of rest."
    (tmp_path / "domains/coding/concepts").mkdir(parents=True)
    write_unit(tmp_path, "concept/login-sessions", f"# Login sessions\n\n{body}")
    with Brain(tmp_path, settings=Settings(embedding_model="none")) as brain:
        brain.sync()
        hit = brain.ask(Query("how long until a login session expires", depth=Depth.SUMMARY), now=NOW).hits[0]
    assert "expires after 45 minutes" in hit.chunks[0].text


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    (tmp_path / "domains/coding/concepts").mkdir(parents=True)
    write_unit(tmp_path, "concept/vacation", "# Vacation\n\nEveryone has 25 days of paid time off.")
    write_unit(tmp_path, "concept/cluster", "# Cluster\n\nKubernetes restarts what fails.")
    (tmp_path / "brain.yaml").write_text("retrieval: {synonyms: [pto=paid time off]}\n")
    return tmp_path


@pytest.mark.proves("SEARCH-SYNONYMS")
@pytest.mark.parametrize(("question", "unit"), [("PTO?", "concept/vacation"), ("k8s", "concept/cluster")])
def test_a_question_finds_what_says_it_in_another_word(handbook, question, unit):
    home = handbook / "home"
    home.mkdir()
    (home / "config.yaml").write_text("embedding: {model: none}\nretrieval: {synonyms: [kubernetes = k8s]}\n")
    with Brain(handbook, environment=read_environment({"NUGGET_HOME": str(home)})) as brain:
        assert ids(brain.ask(question)) == ids(brain.search(question)) == [unit]
        assert not ids(brain.search(f"{question} NOT walrus")), "a query with operators is searched as it is"


@pytest.mark.proves("SEARCH-SAVED")
def test_a_saved_query_is_searched_by_its_name_and_narrowed(tmp_path, handbook):
    chosen = Settings(retrieval_searches=("off=paid type:concept", "off=never the second"), embedding_model="none")
    with Brain(handbook, settings=chosen) as brain:
        assert ids(brain.search("@off")) == ["concept/vacation"]
        assert not ids(brain.search("@off until:1999-01-01")) and not brain.search("@off").degraded[1:]
        assert brain.search("@of paid").degraded[0] == "plain_text: there is no saved query @of"


@pytest.mark.proves("ASK-WEAK")
def test_most_questions_that_the_brain_cannot_answer_are_said_to_be_weak(asked):
    golden = yaml.safe_load((REPOSITORY / "tests/golden/questions.yaml").read_text("utf-8"))
    flagged = [asked.ask(question, fresh=False, now=NOW).weak for question in golden["unanswerable"]]
    assert sum(flagged) >= 0.8 * len(flagged)


@pytest.mark.proves("ASK-RELEVANCE")
@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "none"])
def test_agents_get_what_is_likely_to_help_and_one_line_if_nothing_is(asked, model):
    golden = yaml.safe_load((REPOSITORY / "tests/golden/questions.yaml").read_text("utf-8"))
    with Brain(asked.path, settings=Settings(embedding_model=model)) as brain:
        found, sent = 0, 0
        for entry in golden["questions"]:
            bundle = brain.ask(Query(entry["question"], budget_tokens=100_000, only_helpful=True), fresh=False, now=NOW)
            found += bool(set(entry["expect"]) & set(ids(bundle)[:3]))
            sent += len(bundle.hits)
        assert found >= 0.85 * len(golden["questions"]) and sent < 4 * len(golden["questions"])
        nothing = [brain.ask(Query(q, only_helpful=True), fresh=False, now=NOW) for q in golden["unanswerable"]]
    silent = [bundle for bundle in nothing if not bundle.hits]
    assert len(silent) >= 0.8 * len(nothing) and all(bundle.weak for bundle in silent)
    for bundle in silent:
        answer = bundle_markdown(replace(bundle, degraded=()))
        assert "\n" not in answer and estimate_tokens(answer) <= 60


@pytest.mark.proves("RECALL-QUIET")
@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "none"])
def test_hardly_a_prompt_that_asks_for_nothing_known_makes_recall_speak(asked, model):
    prompts = (REPOSITORY / "benchmarks/generic_prompts.txt").read_text("utf-8").splitlines()[1::2]
    golden = yaml.safe_load((REPOSITORY / "tests/golden/questions.yaml").read_text("utf-8"))["questions"]
    with Brain(asked.path, settings=Settings(embedding_model=model)) as brain:

        def told(prompt: str) -> set[str]:
            hits = brain.ask(Query(prompt, limit=3), fresh=False, now=NOW).hits
            return {hit.unit.id for hit in hits if (hit.relevance or 0.0) >= STANDS_OUT}

        spoken = [prompt for prompt in prompts if told(prompt)]
        assert len(prompts) == 100 and len(spoken) <= 5, spoken
        right = [bool(units & set(entry["expect"])) for entry in golden if (units := told(entry["question"]))]
    assert len(right) >= len(golden) / 3 and sum(right) >= 0.9 * len(right)


@pytest.mark.proves("ASK-EXPLAIN")
@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "none"])
def test_the_contributions_of_every_hit_add_up_to_its_score(asked, model):
    chosen = Settings(embedding_model=model)
    with Brain(asked.path, settings=chosen) as brain:
        for question in ("cache invalidation", "why is the session store slow", "retryWithBackoff", "dough"):
            bundle = brain.ask(Query(question, explain=True), fresh=False, now=NOW)
            assert bundle.hits
            for hit in bundle.hits:
                assert sum(part.value for part in hit.contributions) == pytest.approx(hit.score, abs=1e-9)
            assert bundle.explain is not None
            assert [entry["id"] for entry in bundle.explain["hits"]] == ids(bundle)


@pytest.mark.proves("ASK-FILTER")
def test_filters_admit_only_what_they_name_related_units_included(asked):
    def hits(filter_: Filter) -> Sequence[Hit]:
        return asked.ask(Query("retry and cache", filter=filter_), fresh=False, now=NOW).hits

    assert {hit.unit.type for hit in hits(Filter(types=("bug", "decision")))} <= {"bug", "decision"}
    domains = {hit.unit.domain or "" for hit in hits(Filter(domains=("coding",)))}
    assert any("/" in domain for domain in domains), "sub-domains are admitted too"
    assert all(domain.startswith("coding") for domain in domains)
    tag = hits(Filter())[0].unit.tags[0]
    assert all(tag in hit.unit.tags for hit in hits(Filter(tags=(tag.upper(),))))
    for hit in hits(Filter(since=date(2026, 1, 1))):
        assert max(filter(None, (hit.unit.created, hit.unit.last_modified))) >= date(2026, 1, 1)
    assert not hits(Filter(sources=(SourceName.CANON,)))
    with pytest.raises(UsageError, match="attic"):
        hits(Filter(sources=("attic",)))  # type: ignore[arg-type]


@pytest.mark.proves("INDEX-NUMPY")
def test_sqlite_vec_and_numpy_measure_the_same(asked):
    with closing(Index(asked.index.file)) as by_sql, closing(Index(asked.index.file)) as by_numpy:
        assert by_sql.vector_search == "sqlite-vec"
        add_distance(by_numpy.connection)
        for question in ("retry", "what makes bread rise", "who decides in an incident"):
            vector = asked.embedder.embed_query(question)
            one, other = (index.search_vectors(vector, 10, Filter()) for index in (by_sql, by_numpy))
            assert [key for key, _ in one] == [key for key, _ in other]
            assert [cosine for _, cosine in one] == pytest.approx([cosine for _, cosine in other], abs=1e-4)


@pytest.mark.proves("ASK-RELATED")
def test_related_units_of_the_best_hits_are_added_and_say_how_they_were_reached(asked):
    bundle = asked.ask(Query("how do we retry payments", limit=10, budget_tokens=6000), fresh=False, now=NOW)
    relations = " ".join(reason for hit in bundle.hits for reason in hit.reasons)
    assert "concept/idempotency-keys" in ids(bundle)
    assert any(word in relations for word in ("uses", "often_combined_with", "informed_by"))


@pytest.mark.proves("ASK-SUPERSEDED")
def test_a_superseded_unit_is_labelled_and_stands_behind_what_replaced_it(asked):
    bundle = asked.ask("where do we keep login sessions", fresh=False, now=NOW)
    found = ids(bundle)
    assert found.index("decision/sessions-in-postgres") < found.index("decision/redis-for-sessions")
    stale = bundle.hits[found.index("decision/redis-for-sessions")]
    assert stale.stale_reason and stale_words(stale) == "superseded by decision/sessions-in-postgres"


def failing(question: str, candidates: Sequence[Hit]) -> list[float]:
    raise LLMUnavailable("the re-ranker took too long")


@pytest.mark.proves("ASK-RERANK", "RERANK-FALLBACK")
def test_a_reranker_decides_the_order_and_when_it_fails_the_local_order_stands(asked):
    local = asked.ask("cache invalidation", fresh=False, now=NOW)
    reversing = Reranker("scripted", lambda _, hits: [number / len(hits) for number in range(1, len(hits) + 1)])
    turned = asked.ask("cache invalidation", fresh=False, now=NOW, reranker=reversing)
    assert turned.hits[0].unit.id != local.hits[0].unit.id
    assert turned.hits[0].score == pytest.approx(sum(part.value for part in turned.hits[0].contributions))
    failed = asked.ask("cache invalidation", fresh=False, now=NOW, reranker=Reranker("scripted", failing))
    assert ids(failed) == ids(local) and any("took too long" in reason for reason in failed.degraded)


@pytest.mark.proves("ASK-NO-VECTORS")
def test_without_vectors_there_is_still_an_answer_and_it_says_so(asked):
    with Brain(asked.path, settings=Settings(embedding_model="none")) as brain:
        bundle = brain.ask("cache invalidation", fresh=False, now=NOW)
    assert bundle.hits[0].unit.id == "concept/cache-invalidation" and "no_vectors" in bundle.degraded


hits_lists = st.lists(st.lists(st.text(min_size=1, max_size=900), min_size=1, max_size=4), min_size=0, max_size=12).map(
    lambda bodies: [
        Hit(
            unit=Unit(
                id=f"concept/u{at}", source=SourceName.BRAIN, type="concept", title="Unit", body="\n\n".join(texts)
            ),
            score=1.0 - at / 20,
            chunks=tuple(Chunk(breadcrumb="Unit > Part", text=text, score=0.5) for text in texts),
            contributions=(Contribution(name="bm25", value=1.0 - at / 20),),
        )
        for at, texts in enumerate(bodies)
    ]
)


@pytest.mark.proves("ASK-BUDGET")
@settings(max_examples=300, deadline=None)
@given(hits_lists, st.integers(min_value=1, max_value=4000), st.sampled_from(list(Depth)))
def test_packing_never_exceeds_its_budget_and_says_what_was_left_out(hits, budget_tokens, depth):
    packed, budget, hint = pack(hits, budget_tokens=budget_tokens, depth=depth)
    shown = sum(estimate_tokens(c.text) + estimate_tokens(c.breadcrumb) for hit in packed for c in hit.chunks)
    assert shown <= budget.used <= budget_tokens
    assert [hit.unit.id for hit in packed] == [hit.unit.id for hit in hits[: len(packed)]]
    assert budget.truncated == (hint is not None)


@pytest.mark.proves("RRF-FORMULA")
def test_fusion_is_the_formula_of_the_paper():
    fused = fuse([["a", "b"], ["b", "c"]])
    assert fused == {"b": pytest.approx(1 / 61 + 1 / 62), "a": pytest.approx(1 / 61), "c": pytest.approx(1 / 62)}
    assert list(fused) == ["b", "a", "c"]


@pytest.mark.proves("ASK-BAD-SETTINGS")
def test_settings_that_make_no_sense_are_said_in_one_sentence(asked):
    for wrong in ({"limit": 0}, {"budget_tokens": -1}, {"depth": "bottomless"}, {"profile": "nope"}):
        with pytest.raises(UsageError):
            asked.ask(Query("x", **wrong), fresh=False, now=NOW)  # type: ignore[arg-type]


@pytest.mark.proves("ASK-TIME")
def test_units_of_the_time_that_a_question_names_come_first_and_the_others_stay(tmp_path):
    (tmp_path / "domains/coding/decisions").mkdir(parents=True)
    (tmp_path / "brain.yaml").write_text("owner: T\n")
    body = "# Cache of sessions {}\n\nThe cache of the sessions is cleared by {}."
    for number, (made, by) in enumerate((("2026-11-12", "hand"), ("2025-03-04", "hand"), ("2024-01-02", "hand"))):
        write_unit(tmp_path, f"decision/d{number}", body.format("one two three".split()[number], by), created=made)
    write_unit(tmp_path, "decision/named", body.format("four", "hand since 7 May 2025 (② May)"), created="2026-06-01")
    with Brain(tmp_path) as brain:
        brain.sync()

        def found(question: str) -> Bundle:
            now = datetime(2026, 11, 22, tzinfo=UTC)
            return brain.ask(Query(question, explain=True), fresh=False, now=now)

        for question, first in (
            ("how was the cache of the sessions cleared last week", "decision/d0"),
            ("how was the cache of the sessions cleared in ③ March 2025", "decision/d1"),
            ("when was the cache of sessions changed", "decision/named"),
        ):
            hits = found(question).hits
            assert hits[0].unit.id == first, question
            assert len(hits) == 4
            assert sum(part.value for part in hits[0].contributions) == pytest.approx(hits[0].score)
            assert "date" in {part.name for part in hits[0].contributions}
        plain = found("how is the cache of the sessions cleared").hits
        assert not any(part.name == "date" for hit in plain for part in hit.contributions)
