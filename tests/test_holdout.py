"""What is kept for evaluation: names that training may borrow are of other countries alone."""

import pytest

from data_synthesis import factbook
from data_synthesis.holdout import SHARE, is_held_out, training_pools
from data_synthesis.world import RELIGIONS, RESOURCES, generate_world


@pytest.fixture(scope="module")
def held_out_names():
    """Every name that held-out countries bear or have, and nobody else; numbers, codes and common nouns apart."""
    facts = factbook.load()
    ours = {c for c in facts.subjects if is_held_out(c)}
    theirs = {f.object for f in facts if f.subject not in ours} | set(facts.subjects) - ours
    found = ours | {f.object for f in facts if f.subject in ours and f.object[0].isalpha()}
    return found - theirs - set(RESOURCES) - set(RELIGIONS) | ours


def test_the_share_is_kept_and_does_not_move():
    countries = factbook.load().subjects
    assert sum(map(is_held_out, countries)) / len(countries) == pytest.approx(SHARE, abs=0.05)
    assert [c for c in ("Algeria", "Chad", "Denmark", "Haiti", "Zambia") if is_held_out(c)] == ["Algeria", "Chad"]


def test_pools_hold_no_name_of_a_held_out_country(held_out_names):
    pools = training_pools(factbook.load())
    borrowed = {name for names in pools.values() for name in names}
    assert {"country", "city", "person", "summit", "anthem", "organisation"} <= pools.keys()
    assert len(held_out_names) > 1000
    assert not borrowed & held_out_names


@pytest.mark.parametrize("seed", range(3))
def test_generated_worlds_borrow_names_of_other_countries_alone(seed, held_out_names):
    pools = training_pools(factbook.load())
    world = generate_world(seed, 60, pools)
    spoken = {f.subject for f in world} | {f.object for f in world}
    borrowed = {name for kind in ("country", "city", "person", "summit") for name in pools[kind]}
    assert len(spoken & borrowed) > 20
    assert not spoken & held_out_names
