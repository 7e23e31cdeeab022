"""Mid-training targets: the right next turn in the context as it was, quoting nothing unseen."""

import asyncio
import re
from dataclasses import replace

import pytest

from configs.loader import load, resolve
from data_synthesis import webhop
from data_synthesis.ledger import Rejection
from data_synthesis.midtrain import MidRow, MidtrainConfig, opening_of, plan_rows, step_rows
from data_synthesis.pages import render_pages
from data_synthesis.sculptor import SCRAPE, SEARCH, Observation, next_turn
from data_synthesis.sft_set import SftSetConfig, sft_episodes
from data_synthesis.teacher import Stuck, Teacher
from data_synthesis.tree import Edge, Leaf, Variable, from_json, to_json
from data_synthesis.world import generate_world
from inference.agent import Agent, AgentConfig
from inference.llm.render import ChatMLRenderer
from inference.records import append_record, read_records
from inference.types import EpisodeKey, Role, ViewItem
from inference.web.config import EmbeddedWebConfig
from inference.web.open import open_web
from inference.web.recorded_web import Page, RecordedWeb
from rollout_env.problem import Problem
from tests.chatml_tokenizer import write_tokenizer
from tests.episodes import HITS, PAGE, SENTENCE, call_turn, episode, final_turn, problem
from training.rows import Target

TREE = Variable((Edge("capital", Variable((Edge("highest point", Leaf("Mount Orn")),)), inverse=True),))
"""The capital of the country whose highest point is Mount Orn."""
SUMMIT_PAGE = "https://summits.example/Heights_of_Norland"
SUMMIT = "The highest point of Norland is Mount Orn."
SUMMIT_HITS = f"[1] Heights of Norland | {SUMMIT_PAGE}\n{SUMMIT}"
PROBLEM = problem(tree={**to_json(TREE), "path": ["Vesk", "Norland"]})
FOUND_SUMMIT = Observation(SEARCH, "Mount Orn highest point", SUMMIT_HITS)
FOUND_CAPITAL = Observation(SEARCH, "capital Norland", HITS)
MISS = Observation(SEARCH, "Mount", "No results.")


def test_nothing_seen_plans_and_searches_for_the_first_clue():
    turn = next_turn(TREE, (), "a")
    assert turn.tool == SEARCH
    assert "Mount Orn" in turn.arguments["q"]
    assert "tell its capital" in turn.thought


def test_the_next_missing_fact_is_asked_with_the_sentence_just_read():
    turn = next_turn(TREE, (FOUND_SUMMIT,), "a")
    assert turn.tool == SEARCH
    assert {"Norland", "capital"} <= set(turn.arguments["q"].replace("of ", "").split())
    assert SUMMIT in turn.thought


def test_a_miss_is_noticed_and_not_repeated():
    turn = next_turn(TREE, (FOUND_SUMMIT, MISS), "a")
    assert turn.tool == SEARCH
    assert turn.arguments["q"] not in ("Mount", FOUND_SUMMIT.wanted)
    assert SUMMIT not in turn.thought
    tried = turn.arguments["q"]
    again = next_turn(TREE, (FOUND_SUMMIT, Observation(SEARCH, tried, "No results.")), "a")
    assert again.arguments["q"] != tried


def test_a_promising_hit_is_opened():
    hits = Observation(SEARCH, "x", f"[1] Cities of Norland | {PAGE}\nVesk is old.")
    turn = next_turn(TREE, (FOUND_SUMMIT, hits), "a")
    assert (turn.tool, turn.arguments["url"]) == (SCRAPE, PAGE)
    failed = Observation(SCRAPE, PAGE, "The page could not be read.", is_error=True, info="capital")
    assert next_turn(TREE, (FOUND_SUMMIT, hits, failed), "a").tool == SEARCH


def test_all_seen_answers_with_the_chain():
    turn = next_turn(TREE, (FOUND_SUMMIT, FOUND_CAPITAL), "a")
    assert turn.answer is not None
    assert turn.answer.splitlines() == [
        f'- Norland highest point Mount Orn | "{SUMMIT}" | {SUMMIT_PAGE}',
        f'- Norland capital Vesk | "{SENTENCE}" | {PAGE}',
        r"\boxed{Vesk}",
    ]


def test_everything_tried_in_vain_is_no_target():
    def search_on(tried):
        turn = next_turn(TREE, tried, "a")
        search_on((*tried, Observation(SEARCH, turn.arguments["q"], "No results.")))

    with pytest.raises(Stuck):
        search_on(())


def _astray():
    """A search that found the summit, a stray one, a right one, the answer."""
    turns = [call_turn(0, "Mount Orn"), call_turn(1, "Mount"), call_turn(2, "capital of Norland"), final_turn()]
    return episode(turns, observation=SUMMIT_HITS)


def test_a_step_is_rewritten_in_the_very_context_it_was_sampled_in():
    made = _astray()
    rows = [o for o in step_rows([made], {"q1": PROBLEM}, MidtrainConfig(steps=None)) if isinstance(o, MidRow)]
    attempt = made.tries[0]
    assert [row.id for row in rows] == ["step/q1/0/0/1", "step/q1/0/0/2", "step/q1/0/0/3"]
    for row, step in zip(rows, attempt.steps[1:], strict=True):
        assert row.prompt == tuple(attempt.nodes[item.node] for item in step.view)
        assert row.limits == tuple(item.limit for item in step.view)
    assert '"q": "Mount"' not in rows[0].target
    assert "Norland" in rows[0].target


def _viewed(limit):
    """The astray episode whose last step sees its first observation, the summit at its end, in form `limit`."""
    made = _astray()
    (attempt,) = made.tries
    items = [ViewItem(i, 0 if attempt.nodes[i].role is Role.TOOL else None) for i in range(attempt.steps[2].completion)]
    items[3] = ViewItem(3, limit)
    steps = (*attempt.steps[:2], replace(attempt.steps[2], view=tuple(items)))
    return replace(made, tries=(replace(attempt, steps=steps),))


@pytest.mark.parametrize(
    ("limit", "measured", "reasons"),
    [
        (None, False, []),
        (0, False, ["unseen"]),
        (len(SUMMIT_HITS), False, []),
        (len(SUMMIT_HITS) - 1, False, ["unseen"]),
        ("all", True, []),
        ("all but one", True, ["unseen"]),
        ("all", False, ["unseen"]),
    ],
)
def test_what_the_view_cuts_off_is_not_quoted(tmp_path, limit, measured, reasons):
    path = write_tokenizer(tmp_path)
    size = len(ChatMLRenderer(path).encode(SUMMIT_HITS))
    limit = {"all": size, "all but one": size - 1}.get(limit, limit)
    config = MidtrainConfig(steps=None, tokenizer=path if measured else None)
    outcomes = list(step_rows([_viewed(limit)], {"q1": PROBLEM}, config))[1:]
    assert [o.reason for o in outcomes if isinstance(o, Rejection)] == reasons
    assert [o.limits[3] for o in outcomes if isinstance(o, MidRow)] == [limit] * (1 - len(reasons))


def test_rows_are_drawn_by_the_seed_and_read_back_by_training(tmp_path):
    config = MidtrainConfig(steps=1, seed=5)
    first = list(step_rows([_astray()], {"q1": PROBLEM}, config))
    assert first == list(step_rows([_astray()], {"q1": PROBLEM}, config))
    assert len(first) == 1
    append_record(tmp_path / "mid.jsonl", "midtrain", first[0].id, first[0])
    read = next(read_records(tmp_path / "mid.jsonl", Target))
    assert (read.id, read.prompt, read.target) == (first[0].id, first[0].prompt, first[0].target)


def test_plans_stand_in_the_agents_opening_and_differ_in_wording():
    opening = opening_of(episode())
    rows = list(plan_rows([PROBLEM], opening, MidtrainConfig(plans=4)))
    assert all(isinstance(row, MidRow) for row in rows)
    assert [node.role for node in rows[0].prompt] == [Role.SYSTEM, Role.USER]
    assert rows[0].prompt[1].text == PROBLEM.question.text
    assert len({row.target for row in rows}) == len(rows) > 1


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (problem(split="heldout", tree=PROBLEM.provenance.tree), "held_out"),
        (problem(), "no_tree"),
        (problem(answer="Oslo", tree=PROBLEM.provenance.tree), "early_answer"),
    ],
)
def test_what_cannot_be_a_target_is_turned_down(given, reason):
    made = episode([call_turn(0), final_turn()], observation=f"{SUMMIT_HITS}\n{HITS.replace('[1]', '[2]')}")
    outcomes = list(step_rows([made], {"q1": given}, MidtrainConfig()))
    assert [o.reason for o in outcomes if isinstance(o, Rejection)] == [reason]


def test_an_episode_of_another_question_is_named_as_such():
    (outcome,) = step_rows([_astray()], {}, MidtrainConfig())
    assert outcome == Rejection("step/q1/0/0", "unknown_question")


def _rolled_out():
    """(problems, the teacher's episodes with detours) through the real loop and tools, over a small world."""
    facts = generate_world(21, 16)
    web = RecordedWeb(Page(p.url, p.title, p.text, p.links) for p in render_pages(facts, 21))
    problems = [p for p in webhop.generate(facts, webhop.WebHopConfig(), 16, "w") if isinstance(p, Problem)]
    config = load(AgentConfig, [resolve("agents", "embedded")], environ={})

    async def play():
        async with open_web(EmbeddedWebConfig(), recorded=web) as tools:
            agents = [(p, Agent(config, _teacher(p), list(tools.values()))) for p in problems]
            return [await agent.run(p.question, EpisodeKey(p.question.id)) for p, agent in agents]

    return {p.question.id: p for p in problems}, asyncio.run(play())


def _teacher(p):
    return Teacher(from_json(p.provenance.tree), p.question.id, detour=0.4)


def test_targets_over_real_conversations_quote_only_what_their_context_shows():
    problems, episodes = _rolled_out()
    kept = [o for o in sft_episodes(episodes, problems, SftSetConfig()) if not isinstance(o, Rejection)]
    assert len(kept) > len(episodes) / 2
    outcomes = list(step_rows(kept, problems, MidtrainConfig(steps=None)))
    rows = [o for o in outcomes if isinstance(o, MidRow)]
    assert len(rows) == sum(e.turns - 1 for e in kept) == len(outcomes)
    for row in rows:
        shown = "\n".join(n.text for n, limit in zip(row.prompt, row.limits, strict=True) if limit != 0)
        words = row.target.split("<tool_call>")[0]
        assert all(quote in shown for quote in words.split('"')[1::2])
    finals = [row for row in rows if "\\boxed" in row.target]
    assert len(finals) >= len(kept)
    strays = [row for row in rows if re.search(r"Let me try|First a look", row.target)]
    assert strays == []
