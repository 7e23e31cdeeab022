"""Generated worlds and their pages: reproducible, consistent, readable back to exactly their facts."""

import pytest

from data_synthesis.facts import Fact
from data_synthesis.pages import ENCYCLOPAEDIA, render_pages
from data_synthesis.reader import read_sentence, read_text
from data_synthesis.relations import RELATIONS
from data_synthesis.world import generate_world

WORLD = generate_world(3, 30)
PAGES = list(render_pages(WORLD, 3))


def test_same_seed_same_world():
    assert generate_world(3, 30).facts == WORLD.facts
    assert generate_world(4, 30).facts != WORLD.facts
    assert list(render_pages(WORLD, 3)) == PAGES


def test_borders_are_symmetric_and_owned_facts_belong_to_one():
    for fact in WORLD:
        if fact.relation == "borders":
            assert WORLD.holds(fact.object, "borders", fact.subject)
        if fact.relation in ("capital", "internet code", "national anthem", "highest point"):
            assert WORLD.holders(fact.object, fact.relation) == (fact.subject,)


def test_pages_state_exactly_the_facts():
    stated = {(f.subject, f.relation, f.object) for page in PAGES for f in read_text(page.text)}
    assert stated == {(f.subject, f.relation, f.object) for f in WORLD}


def test_addresses_are_unique_and_links_lead_to_pages():
    addresses = {page.url for page in PAGES}
    assert len(addresses) == len(PAGES)
    assert all(link in addresses for page in PAGES for link in page.links)


def test_one_page_states_one_topic_of_a_country():
    for page in PAGES:
        if ENCYCLOPAEDIA not in page.url:
            assert len({RELATIONS[f.relation].topic for f in read_text(page.text)}) == 1


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=lambda r: r.name)
def test_every_wording_is_read_back_and_no_former_one(relation):
    for template in relation.sentences:
        objects = ("Abc", "D-e f") if relation.many else ("Abc",)
        facts = read_sentence(template.format(s="X of Y", o="; ".join(objects)))
        assert [(f.subject, f.relation, f.object) for f in facts] == [("X of Y", relation.name, o) for o in objects]
    for template in relation.former:
        assert read_sentence(template.format(s="Xyz", o="Abc")) == ()


def test_a_cut_sentence_states_nothing():
    assert read_sentence("The main export partners of Abc are D; E; F...") == ()
    assert read_sentence("The capital of Abc is D.") == (Fact("Abc", "capital", "D", "The capital of Abc is D."),)
