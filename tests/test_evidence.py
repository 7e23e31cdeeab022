"""Evidence links against observations."""

import pytest

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
    ],
)
def test_what_a_quote_asserts(quote, claim, stated):
    part = asserted(quote, claim)
    assert (terms(claim) <= words(part)) is stated
    assert part == quote or set(words(part)) < set(words(quote))
