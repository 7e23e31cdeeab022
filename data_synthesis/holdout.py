"""Which countries of the embedded facts are kept for evaluation.

A fixed property of the name, so that the base model, every training set and every test agree on it without a file:
65% are held out. Held-out questions have their answer on a held-out country; training questions about real facts, and
the real names that generated worlds borrow, come from the others alone.
"""

import hashlib

from data_synthesis.facts import FactTable
from data_synthesis.names import pools_of

SHARE = 0.65


def is_held_out(country: str) -> bool:
    return int.from_bytes(hashlib.sha256(country.encode()).digest()[:4], "big") < SHARE * 2**32


def training_pools(facts: FactTable) -> dict[str, tuple[str, ...]]:
    """The names in `facts` that generated worlds may borrow, by kind: none of a held-out country is among them."""
    return pools_of(facts, {country for country in facts.subjects if not is_held_out(country)})
