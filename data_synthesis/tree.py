"""The answer-rooted tree that a question is made of, and its exact solver.

A `Variable` is an unknown entity; its edges say what holds of it. The root is the answer. An `Edge` is one fact: with
`inverse=False` (variable, relation, child), with `inverse=True` (child, relation, variable). A child is another
variable or a `Leaf`: a name, or a description that several values fit (the decade of a year).

`solve` returns every entity that fits the root: exact, by set intersection over a `FactTable`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_synthesis.facts import FactTable


@dataclass(frozen=True, slots=True)
class Leaf:
    value: str
    decade: bool = False
    """True: `value` is a year's decade such as "1960", and every year of it fits."""

    @property
    def text(self) -> str:
        return f"the {self.value}s" if self.decade else self.value

    def fits(self, obj: str) -> bool:
        return obj[:3] == self.value[:3] and len(obj) == len(self.value) if self.decade else obj == self.value


@dataclass(frozen=True, slots=True)
class Edge:
    relation: str
    child: "Variable | Leaf"
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    edges: tuple[Edge, ...]

    def walk(self) -> Iterator["Variable"]:
        """This variable and all below it, root first."""
        yield self
        for edge in self.edges:
            if isinstance(edge.child, Variable):
                yield from edge.child.walk()


def num_edges(root: Variable) -> int:
    """Facts the question rests on: its hops."""
    return sum(len(v.edges) for v in root.walk())


def depth(root: Variable) -> int:
    """Edges on the longest path from the root to a leaf."""
    return max(1 + (depth(e.child) if isinstance(e.child, Variable) else 0) for e in root.edges)


def leaves(root: Variable) -> tuple[tuple[str, Leaf], ...]:
    """(relation, leaf) of every leaf, in order."""
    return tuple((e.relation, e.child) for v in root.walk() for e in v.edges if isinstance(e.child, Leaf))


def solve(root: Variable, facts: FactTable) -> frozenset[str]:
    """Every entity that fits `root`."""
    found: set[str] | None = None
    for edge in root.edges:
        fits = _fit(edge, facts)
        found = fits if found is None else found & fits
        if not found:
            break
    return frozenset(found or ())


def _fit(edge: Edge, facts: FactTable) -> set[str]:
    if isinstance(edge.child, Variable):
        targets = solve(edge.child, facts)
    else:
        leaf = edge.child
        pool = dict.fromkeys(f.object for f in facts if f.relation == edge.relation) if leaf.decade else (leaf.value,)
        targets = frozenset(o for o in pool if leaf.fits(o))
    look = facts.objects if edge.inverse else facts.holders
    return {x for t in targets for x in look(t, edge.relation)}


def to_json(root: Variable) -> dict[str, Any]:
    """Plain JSON of the tree, read back by `from_json`."""
    return {
        "edges": [
            {
                "relation": e.relation,
                "inverse": e.inverse,
                "child": to_json(e.child)
                if isinstance(e.child, Variable)
                else {"leaf": e.child.value, "decade": e.child.decade},
            }
            for e in root.edges
        ]
    }


def from_json(data: dict[str, Any]) -> Variable:
    """The tree of `to_json`."""
    return Variable(
        tuple(
            Edge(
                e["relation"],
                Leaf(e["child"]["leaf"], e["child"]["decade"]) if "leaf" in e["child"] else from_json(e["child"]),
                e["inverse"],
            )
            for e in data["edges"]
        )
    )
