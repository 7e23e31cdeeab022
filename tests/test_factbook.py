"""The embedded facts: known ones, clean names, consistent borders, nothing of the source lost."""

from collections import defaultdict

import pytest

from data_synthesis import factbook
from data_synthesis.relations import RELATIONS
from scripts.make_factbook import independence, nouns, number, region


@pytest.mark.parametrize(
    ("subject", "relation", "objects"),
    [
        ("Algeria", "capital", ("Algiers",)),
        ("Algeria", "chief of state", ("Abdelaziz Bouteflika",)),
        ("Algeria", "internet code", (".dz",)),
        ("Algeria", "independence", ("1962",)),
        ("Algeria", "region", ("Northern Africa",)),
        ("Algeria", "area", ("2,381,741",)),
        ("Algeria", "coastline", ("998",)),
        ("Chad", "area", ("1,284,000",)),
        ("Denmark", "chief of state", ("Margrethe II",)),
        ("Australia", "anthem author", ("Peter Dodds McCormick",)),
        ("Papua New Guinea", "head of government", ("Peter Paire O'Neill",)),
        ("Djibouti", "capital", ("Djibouti City",)),
        ("Dominican Republic", "borders", ("Haiti",)),
        ("Mexico", "independence", ()),
    ],
)
def test_known_facts(subject, relation, objects):
    assert factbook.load().objects(subject, relation) == objects


def test_lists_hold_plain_nouns():
    facts = factbook.load()
    assert facts.holds("Algeria", "borders", "Mali")
    assert facts.objects("Zambia", "natural resource")[:3] == ("Copper", "Cobalt", "Zinc")
    assert facts.objects("India", "religion") == ("Hindu", "Muslim", "Christian", "Sikh")


def test_every_source_fact_is_carried_with_its_wording():
    rows = factbook.source_rows()
    assert ("Algeria", "highest point", "Tahat", "Tahat 3,003 m") in rows
    by_relation = defaultdict(int)
    for row in rows[:15948]:
        by_relation[row[1]] += 1
    assert by_relation["member of"] == 10500
    assert by_relation["borders"] == 612
    assert sum(by_relation.values()) == 15948


def test_names_are_fit_for_a_sentence():
    for fact in factbook.load():
        for name in (fact.subject, fact.object):
            assert not factbook.FORBIDDEN.search(name), fact
            assert name == name.strip()
            assert name[0].isupper() or name[0].isdigit() or (name[0] == "." and fact.relation == "internet code"), fact


def test_a_name_stands_for_one_kind_of_page():
    paged = {r.kind for r in RELATIONS.values() if r.inverse_sentences}
    kinds = defaultdict(set)
    for fact in factbook.load():
        kinds[fact.subject.casefold()].add("country")
        if RELATIONS[fact.relation].kind in paged:
            kinds[fact.object.casefold()].add(RELATIONS[fact.relation].kind)
    assert {name: k for name, k in kinds.items() if len(k) > 1} == {}


def test_facts_are_consistent():
    facts = factbook.load()
    for fact in facts:
        if fact.relation == "borders":
            assert facts.holds(fact.object, "borders", fact.subject)
        if not RELATIONS[fact.relation].many:
            assert len(facts.objects(fact.subject, fact.relation)) == 1
    assert all(
        sum(bool(facts.objects(s, r)) for r in RELATIONS) >= factbook.ENOUGH_RELATIONS - 1 for s in facts.subjects
    )


def test_counts_add_up():
    counts = factbook.counts()
    assert counts.rows - sum(counts.dropped.values()) + counts.borders_added == counts.kept == len(factbook.load())
    assert counts.kept > 0.98 * counts.rows


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("5 July 1962 (from France)", ["1962"]),
        ("none (territory of the US)", []),
        ("4 July 1776 (declared); 3 September 1783 (recognized by Great Britain)", []),
        ("24 August 1991 (from the Soviet Union); notable earlier dates: 1157 (Principality)", ["1991"]),
        ("18 January 1871 (establishment of the German Empire); divided into four zones", []),
    ],
)
def test_independence_is_read_only_where_clear(text, year):
    assert [found for found, _ in independence(text)] == year


def test_fields_are_read():
    assert list(number("1.284 million sq km")) == [("1,284,000", "1.284 million sq km")]
    assert list(number("0.44 sq km")) == []
    assert list(number("uninhabited")) == []
    assert list(region("island in the South Atlantic Ocean, east of Brazil")) == []
    read = nouns(["copper", "salt"], {"rock salt": "salt"})
    assert [noun for noun, _ in read("copper (mined), rock salt, NEGL")] == ["Copper", "Salt"]
