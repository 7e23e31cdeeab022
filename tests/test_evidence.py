"""Evidence links against observations."""

import pytest

from data_synthesis import factbook
from data_synthesis.relations import RELATIONS
from data_synthesis.world import generate_world
from inference.assertion import asserted
from inference.evidence import LinkStatus, check, passages, supported_share, terms, words
from inference.types import Evidence, Node, Role, ToolCall

HITS = """[1] Avaland | http://a.example/avaland
The capital of Avaland is Bremont...
[2] Borders of Avaland | http://b.example/borders
Avaland touches Corvia."""
PAGE = (
    "Avaland\nThe  capital of\nAvaland is Bremont. Its population is 2,381,741. See [9] Forged | http://c.example/\n"
    "Long ago the capital of Avaland was Elmstead."
)

NODES = (
    Node(Role.USER, "q"),
    Node(Role.ASSISTANT, "", calls=(ToolCall("s", "google_search", {"q": "x"}),)),
    Node(Role.TOOL, HITS, call_id="s"),
    Node(
        Role.ASSISTANT,
        "",
        calls=(
            ToolCall("r", "scrape", {"url": "http://a.example/avaland/"}),
            ToolCall("e", "scrape", {"url": "http://d.example"}),
        ),
    ),
    Node(Role.TOOL, PAGE, call_id="r"),
    Node(Role.TOOL, "The capital of Dorn is Elm.", call_id="e", is_error=True),
    Node(Role.TOOL, "The capital of Nowhere is Zed.", call_id="of no call"),
    Node(Role.ASSISTANT, "The capital of Avaland is Fake."),
)
A, B = "http://a.example/avaland", "http://b.example/borders"
CAPITAL = "The capital of Avaland is Bremont"
FORMER = "Long ago the capital of Avaland was Elmstead."


@pytest.mark.parametrize(
    ("claim", "quote", "source", "status"),
    [
        ("Avaland's capital is Bremont", CAPITAL, A, LinkStatus.SUPPORTED),
        ("Avaland's capital is Bremont", "The capital\n of Avaland  is Bremont", A + "/", LinkStatus.SUPPORTED),
        ("Avaland touches Corvia", "Avaland touches Corvia.", B, LinkStatus.SUPPORTED),
        ("Borders of Avaland", "Borders of Avaland", B, LinkStatus.SUPPORTED),
        ("2381741 people", "Its population is 2,381,741.", A, LinkStatus.SUPPORTED),
        ("the capital", "The capital of Avaland", A, LinkStatus.SUPPORTED),
        ("Avaland's capital is Bremont", "the capital of Avaland is Bremont", A, LinkStatus.QUOTE_NOT_FOUND),
        ("x", "", A, LinkStatus.QUOTE_NOT_FOUND),
        ("Elm", "The capital of Dorn is Elm.", "http://d.example", LinkStatus.QUOTE_NOT_FOUND),
        ("Zed", "The capital of Nowhere is Zed.", A, LinkStatus.QUOTE_NOT_FOUND),
        ("Fake", "The capital of Avaland is Fake.", A, LinkStatus.QUOTE_NOT_FOUND),
        ("Avaland's capital is Bremont", CAPITAL, B, LinkStatus.WRONG_SOURCE),
        ("Avaland touches Corvia", "Avaland touches Corvia.", A, LinkStatus.WRONG_SOURCE),
        ("Forged", "Forged", "http://c.example", LinkStatus.WRONG_SOURCE),
        ("Avaland's capital is Corvia", CAPITAL, A, LinkStatus.CLAIM_NOT_IN_QUOTE),
        ("2,381,742 people", "Its population is 2,381,741.", A, LinkStatus.CLAIM_NOT_IN_QUOTE),
        ("a large sea", "The capital of Avaland", A, LinkStatus.CLAIM_NOT_IN_QUOTE),
        ("Avaland's capital is Elmstead", FORMER, A, LinkStatus.QUOTE_SAYS_OTHERWISE),
        ("Avaland's capital was Elmstead", FORMER, A, LinkStatus.SUPPORTED),
        ("Avaland's former capital: Elmstead", FORMER, A, LinkStatus.SUPPORTED),
    ],
)
def test_status(claim, quote, source, status):
    (result,) = check([Evidence(claim, quote, source)], passages(NODES))
    assert result.status is status
    assert (result.node is not None) is result.supported


def test_the_supported_share():
    good, bad = Evidence("Bremont", CAPITAL, A), Evidence("Bremont", "nowhere said", A)
    observed = passages(NODES)
    assert supported_share(check([good, bad, good, bad], observed)) == 0.5
    assert supported_share(check([], observed)) == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Which country has the code .fj?", {".fj"}),
        ("The capital of Guinea-Bissau's neighbour, 1,234 km away", {"guinea-bissau", "1234"}),
        ("in 1990, not 1,99", {"1990", "1,99"}),
        ("What is it?", set()),
    ],
)
def test_terms(text, expected):
    assert terms(text) == expected


CLAIM = "Avaland capital Bremont"


@pytest.mark.parametrize(
    ("quote", "claim", "stated"),
    [
        ("The capital of Avaland is Bremont.", CLAIM, True),
        ("Bremont was once the capital of Avaland.", CLAIM, False),
        ("Long ago, the capital of Avaland was Bremont.", CLAIM, False),
        ("Bremont is no longer the capital of Avaland.", CLAIM, False),
        ("Bremont has never been the capital of Avaland.", CLAIM, False),
        ("The capital of Avaland isn't Bremont.", CLAIM, False),
        ("Former capital of Avaland: Bremont", CLAIM, False),
        ("Bremont, once a fishing village, is the capital of Avaland.", CLAIM, True),
        ("Formerly part of Corvia, Avaland has its capital at Bremont.", CLAIM, True),
        ("Bremont is not only the capital of Avaland but its port.", CLAIM, True),
        ("The capital of Avaland is Bremont. It never was Elmstead.", CLAIM, True),
        ("The capital of Avaland is Bremont. It never was Elmstead.", "Avaland capital Elmstead", False),
        ("The Never Never is a river of Avaland.", "Avaland river Never Never", True),
        ("Once is a river of Avaland.", "Avaland river Once", True),
        ("Former envoys of Avaland met Bremont.", "Bremont met envoys of Avaland", False),
        ("Bremont is a former president of Avaland.", "Bremont was president of Avaland", True),
        ("Bremont is a former president of Avaland.", "Bremont served Avaland", True),
        ("Bremont was not president of Avaland.", "Bremont was president of Avaland", False),
        ("Bremont was not president of Avaland.", "Bremont was never president of Avaland", True),
        ("The United States used to export to Avaland.", "United States export partner Avaland", False),
        ("Former area of Avaland: 2,381,741, now less; its capital is Bremont.", CLAIM, False),
        ("Norsk has died out in Avaland.", "Avaland language Norsk", False),
        ("Norsk is extinct in Avaland.", "Avaland language Norsk", False),
        ("Avaland has left ORD.", "Avaland member of ORD", False),
        ("Avaland has since formally left the ORD.", "Avaland member of ORD", False),
        ("Avaland left ORD in 1990.", "Avaland member of ORD", False),
        ("Avaland withdrew from ORD.", "Avaland member of ORD", False),
        ("Avaland left ORD in 1990.", "Avaland was a member of ORD", True),
        ("Avaland had hoped to be free by 1960.", "Avaland independence 1960", False),
        ("Avaland had hoped to be free by 1960.", "Avaland was free by 1960", False),
        ("Avaland had hoped to be free by 1960.", "Avaland hoped to be free by 1960", True),
        ("Avaland plans to join ORD.", "Avaland member of ORD", False),
        ("Avaland failed to join ORD.", "Avaland joined ORD", False),
        ("Mount Orn was long taken for the highest point of Avaland.", "Avaland highest point Mount Orn", False),
        ("Mount Orn was widely believed to be its top.", "Mount Orn was its top", False),
        ("Mount Orn is mistakenly called the top of Avaland.", "Avaland top Mount Orn", False),
        ("Old maps put the lowest point of Avaland at Lake Ur.", "Avaland lowest point Lake Ur", False),
        ("An older anthem of Avaland was Hail.", "Avaland anthem Hail", False),
        ("The previous capital of Avaland was Bremont.", CLAIM, False),
        ("Until 1990 the capital of Avaland was Bremont.", CLAIM, False),
        ("Bremont is older than any town of Avaland.", "Avaland town Bremont", True),
        ("On the left bank lies Bremont, capital of Avaland.", CLAIM, True),
        ("Bremont has left its mark on Avaland.", "Avaland mark Bremont", True),
        ("Avaland has a lost city, Bremont.", "Avaland city Bremont", True),
        ("The Old Town of Bremont is the capital of Avaland.", CLAIM, True),
        ("Bremont, which hopes to host the games, is the capital of Avaland.", CLAIM, True),
    ],
)
def test_what_a_quote_asserts(quote, claim, stated):
    part = asserted(quote, claim)
    assert (terms(claim) <= words(part)) is stated
    assert part == quote or set(words(part)) < set(words(quote))


def test_true_sentences_of_the_pages_bear_out_their_claim_and_former_ones_do_not():
    """Every template of every relation, over real and random names."""
    checked = set()
    for facts in (factbook.load(), generate_world(3, 40)):
        for fact in list(facts)[::5]:
            relation, names = RELATIONS[fact.relation], {"s": fact.subject, "o": fact.object}
            claim = relation.claim.format(**names)
            for template in (*relation.sentences, *relation.inverse_sentences):
                assert asserted(template.format(**names), claim) == template.format(**names)
            # A name with a comma ("All Hail, Liberia, Hail") falls apart into clauses.
            for template in relation.former if "," not in fact.object else ():
                checked.add(template)
                assert not terms(claim) <= words(asserted(template.format(**names), claim)), template.format(**names)
    assert checked == {template for relation in RELATIONS.values() for template in relation.former}
