"""The teacher reads before it states, quotes what it read, and stops where the pages do not tell."""

import re

import pytest

from data_synthesis.pages import render_pages
from data_synthesis.teacher import Turn, render_turn, turn_after
from data_synthesis.tree import from_json
from data_synthesis.webhop import Rejection, WebHopConfig, generate
from data_synthesis.world import generate_world
from inference.answer import read_answer
from inference.toolcall import outside_thoughts
from inference.web.recorded_web import Page, RecordedWeb
from inference.web.text import best_sentences, sentences

WORLD = generate_world(21, 30)
WEB = RecordedWeb(Page(p.url, p.title, p.text, p.links) for p in render_pages(WORLD, 21))
PROBLEMS = [p for p in generate(WORLD, WebHopConfig(), 25, "w") if not isinstance(p, Rejection)]


def observe(turn: Turn) -> str:
    if turn.tool == "google_search":
        hits = WEB.search(turn.arguments["q"], 3)
        return "\n".join(f"[{i}] {h.title} | {h.link}\n{h.snippet}" for i, h in enumerate(hits, 1))
    page = WEB.read(turn.arguments["url"])
    assert page is not None
    return f"{page.title}\n" + "\n".join(best_sentences(turn.arguments["info_to_extract"], sentences(page.text), 4))


def play(tree, seed: str, detour: float = 0.2) -> tuple[list[Turn], list[str]]:
    turns: list[Turn] = []
    observations: list[str] = []
    while len(turns) < 25:
        turns.append(turn_after(tree, observations, seed, detour))
        if turns[-1].tool is None:
            break
        observations.append(observe(turns[-1]))
    return turns, observations


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.question.id)
def test_answers_right_and_quotes_only_what_it_read(problem):
    turns, observations = play(from_json(problem.provenance.tree), problem.question.id)
    seen = ""
    for turn, observation in zip(turns, [*observations, ""], strict=True):
        for quote in re.findall(r'"([^"]+)" \(', turn.thought):
            assert quote in seen
        seen += observation + "\n"
    if turns[-1].answer is None:
        return
    answer = read_answer(render_turn(turns[-1]))
    assert answer.text == problem.gold.canonical
    assert all(link.quote in seen and link.source in seen + str(turns) for link in answer.evidence)
    assert len(answer.evidence) >= problem.provenance.hops


def test_most_questions_are_solved():
    solved = sum(play(from_json(p.provenance.tree), p.question.id)[0][-1].answer is not None for p in PROBLEMS)
    assert solved >= 0.8 * len(PROBLEMS)


def test_another_seed_words_it_otherwise():
    tree = from_json(PROBLEMS[0].provenance.tree)
    assert len({render_turn(turn_after(tree, [], f"seed{i}", 0.2)) for i in range(8)}) > 1


def test_stops_without_an_answer_when_nothing_is_found():
    tree = from_json(PROBLEMS[0].provenance.tree)
    turn = turn_after(tree, ["No results."] * 2, "s", 0.0)
    last = turn if turn.tool is None else turn_after(tree, ["No results."] * 9, "s", 0.0)
    assert last.answer is None
    assert "boxed" not in outside_thoughts(render_turn(last))
