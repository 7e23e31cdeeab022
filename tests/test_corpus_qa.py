"""Corpus questions: connected pages, verbatim facts, one answer over the whole corpus."""

import random

import pytest

from data_synthesis.corpus_qa import REASONS, Corpus, CorpusQAConfig, generate, read_facts
from data_synthesis.facts import Fact
from data_synthesis.ledger import Rejection
from data_synthesis.pages import render_pages
from data_synthesis.tree import from_json, solve
from data_synthesis.world import generate_world
from inference.web.recorded_web import Page
from rollout_env.problem import Problem


@pytest.fixture(scope="module")
def world():
    facts = generate_world(11, 24)
    return facts, [Page(p.url, p.title, p.text, tuple(p.links)) for p in render_pages(facts, 11)]


@pytest.fixture(scope="module")
def corpus(world):
    return Corpus(world[1])


def test_every_fact_stands_word_for_word_on_its_page(world, corpus):
    for url, stated in corpus.stated.items():
        for sourced in stated:
            assert sourced.sentence in corpus.pages[url].text.split("\n")
            assert world[0].holds(sourced.fact.subject, sourced.fact.relation, sourced.fact.object)
    assert corpus.rejections == []


def test_what_is_not_verbatim_is_dropped_with_the_evidence(world):
    def embellish(page):
        return [(fact, sentence.replace("is", "was")) for fact, sentence in read_facts(page)] + [
            (Fact("A", "capital", "B"), "")
        ]

    some = world[1][:40]
    made = Corpus(some, embellish)
    assert {r.reason for r in made.rejections} == {"not_verbatim"}
    assert all(r.evidence for r in made.rejections)
    assert not made.facts.holds("A", "capital", "B")
    assert len(made.facts) < len(Corpus(some).facts)


def test_a_subgraph_is_connected(corpus):
    rng = random.Random(0)
    for seed in rng.sample(sorted(corpus.pages), 20):
        chosen = corpus.subgraph(seed, 15, rng)
        assert len(set(chosen)) == len(chosen) <= 15
        for i, url in enumerate(chosen[1:], start=1):
            assert set(corpus.neighbours[url]) & set(chosen[:i])


def test_questions_are_proved_over_the_whole_corpus(corpus):
    config = CorpusQAConfig(min_documents=2, seed=3)
    made = list(generate(corpus, config, 40, "w"))
    problems = [o for o in made if isinstance(o, Problem)]
    assert len(problems) >= 38
    assert len({p.question.id for p in problems}) == len(problems)
    for p in problems:
        assert solve(from_json(p.provenance.tree), corpus.facts) == {p.gold.canonical}
        assert len(p.provenance.evidence) >= 2
        assert len(p.provenance.tree["facts"]) == p.provenance.hops
        for fact in p.provenance.tree["facts"]:
            assert fact["page"] in p.provenance.evidence
            assert fact["sentence"] in corpus.pages[fact["page"]].text.split("\n")
        assert p.gold.canonical not in p.question.text
    rejected = [o for o in made if isinstance(o, Rejection)]
    assert {"few_documents", "no_tree"} <= {o.reason for o in rejected} <= set(REASONS)
    assert len({o.key for o in rejected}) == len(rejected)
    assert made == list(generate(corpus, config, 40, "w"))


def test_pages_that_hang_together_with_nothing_give_no_question(world):
    lonely = [Page(p.url, p.title, p.text) for p in world[1][:5]]
    outcomes = list(generate(Corpus(lonely), CorpusQAConfig(tries=3), 2, "w"))
    assert {o.reason for o in outcomes} == {"small_subgraph"}
