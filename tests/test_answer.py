"""Final turns: boxes, placeholders, evidence lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.answer import is_placeholder, last_boxed, read_answer, read_evidence
from inference.types import Answer, Evidence


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\boxed{Paris}", "Paris"),
        (r"first \boxed{2}, correction: \boxed{3}", "3"),
        (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}"),
        (r"\boxed{a {b {c}} d}", "a {b {c}} d"),
        (r"\boxed{a \{ b}", "a { b"),
        (r"\boxed{50\% \& more\_}", "50% & more_"),
        (r"\boxed{\text{New York}}", "New York"),
        (r"\boxed{\textbf{x}}", "x"),
        (r"\fbox{42}", "42"),
        (r"\boxed 5$ ... \boxed{7}", "7"),
        (r"\boxed{7} ... \boxed 5$", "5"),
        (r"<answer>\boxed{42}</answer>", "42"),
        ("\\boxed{two\n  lines}", "two lines"),
        (r"\boxed{good} then \boxed{open", "good"),
        ("\\boxed{open to the end\nnext line", "open to the end"),
        (r"\boxed{}", ""),
        ("no box", None),
        ("", None),
    ],
)
def test_the_last_balanced_box(text, value):
    assert last_boxed(text) == value


BRACED = st.recursive(
    st.text("abc 1", max_size=4), lambda inner: st.tuples(inner, inner).map(lambda t: f"{t[0]}{{{t[1]}}}x")
)


@given(BRACED, st.text("ab\\{}boxed ", max_size=20))
def test_nesting_of_any_depth_survives(content, before):
    assert last_boxed(f"{before} \\boxed{{{content}}}") == " ".join(content.split())


@pytest.mark.parametrize(
    "value", ["?", "??", "???", "…", "……", "...", "", " ", "Unknown", "unknown.", "N/A", "[answer]"]
)
def test_placeholders_are_refused(value):
    assert is_placeholder(value)
    assert "placeholder" in read_answer(f"\\boxed{{{value}}}")


@pytest.mark.parametrize("value", ["0", "Nowhere", "None", "Unknown Pleasures", "C++", ".fj", "-1"])
def test_answers_that_look_like_placeholders_are_not(value):
    assert read_answer(f"\\boxed{{{value}}}").text == value


def test_a_box_in_a_thought_is_no_answer():
    assert "states an answer" in read_answer(r"<think>maybe \boxed{4}</think> I go on.")
    assert read_answer('<think>\\boxed{4}</think>\n- c | "q" | http://a\n\\boxed{5}') == Answer(
        "5", (Evidence("c", "q", "http://a"),)
    )


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ('- c d | "q r" | http://a.example/x', ("c d", "q r", "http://a.example/x")),
        ('  *  c |"q"|  http://a  ', ("c", "q", "http://a")),
        ("• c | “q” | <http://a>", ("c", "q", "http://a")),
        ('- c | "he said "no" twice" | http://a', ("c", 'he said "no" twice', "http://a")),
        ('- c | "a | b" | http://a', ("c", "a | b", "http://a")),
        ("- c | q | http://a", ("c", "q", "http://a")),
        ('- c | "q"', None),
        ('c | "q" | http://a', None),
        ('- c | "q" | two words', None),
        ("- plain list item", None),
    ],
)
def test_evidence_lines(line, link):
    assert read_evidence(f"So:\n{line}\nend") == ((Evidence(*link),) if link else ())
