"""Writes the question of a tree, and the plan to solve it.

Clauses about leaves come before the one clause that opens a nested description, so every clause belongs to the
innermost description opened before it and the sentence has one reading. Entities on the path are never named.
"""

import random

from data_synthesis.relations import EDITION, RELATIONS
from data_synthesis.tree import Edge, Leaf, Variable

_WHICH = ("which is the country {c}?", "which country is meant: the one {c}?", "name the country {c}.")
_WHAT = ("what is {c}?", "tell {c}.", "find {c}.")


def write_question(root: Variable, rng: random.Random) -> str:
    """The question whose answer is the root of the tree."""
    first = root.edges[0]
    if len(root.edges) == 1 and first.inverse and isinstance(first.child, Variable):
        phrase = RELATIONS[first.relation].noun.format(s=describe(first.child))
        return f"As of {EDITION}, " + rng.choice(_WHAT).format(c=phrase)
    return f"As of {EDITION}, " + rng.choice(_WHICH).format(c=clauses(root))


def describe(variable: Variable) -> str:
    """Noun phrase of a country variable."""
    return f"the country {clauses(variable)}"


def clauses(variable: Variable) -> str:
    """Its clauses, leaves first, joined by "and"."""
    ordered = sorted(variable.edges, key=lambda e: isinstance(e.child, Variable))
    return " and ".join(clause(e) for e in ordered)


def clause(edge: Edge) -> str:
    """One relative clause."""
    relation = RELATIONS[edge.relation]
    other = edge.child.text if isinstance(edge.child, Leaf) else describe(edge.child)
    return f"that is {relation.noun.format(s=other)}" if edge.inverse else relation.clause.format(o=other)
