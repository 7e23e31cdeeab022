"""`proofhound ask "QUESTION"`: one answer, printed with its evidence.

    proofhound ask "..." --model runs/demo/grpo/model                a checkpoint, on the embedded web
    proofhound ask "..." -c configs/models/openai_chat.yaml -c configs/tools/serper_jina.yaml
    proofhound ask "..." ... agent.max_turns=50 web.num_results=5    settings of the agent and the web

* The config has three parts: `model` (inference.llm.config), `web` (inference.web.config; the pages of the embedded
  facts unless said otherwise) and, on the command line alone, `agent` (settings over those of `-a`).
* Each link of the chain carries a check mark: its words were observed at its source, or what is wrong with it.
* Exit code 0 with an answer, 1 without one.
"""

import argparse
import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict

from configs.errors import ConfigError, InputError, RunFailed
from configs.schema import Config
from inference.evidence import LinkCheck, check, passages
from inference.llm.config import EmbeddedModelConfig, ModelConfig
from inference.types import Episode, EpisodeKey, Question, StopReason
from inference.web.config import EmbeddedWebConfig, WebConfig
from scripts.compose import NO_MODEL, agent_settings, load_agent, open_agent, read_config


class AskConfig(Config):
    model: ModelConfig | None = None
    web: WebConfig = EmbeddedWebConfig()


def run(args: argparse.Namespace) -> int:
    if not args.question.strip():
        raise InputError("the question is empty")
    config = read_config(AskConfig, args)
    episode = asyncio.run(_answer(args, config))
    if episode.stop is StopReason.ERRORED:
        raise RunFailed(episode.error or "the run failed")
    checks = check_evidence(episode)
    if args.json:
        print(json.dumps(as_json(episode, checks), ensure_ascii=False))
    else:
        print("\n".join(as_text(episode, checks)))
    return 0 if episode.answer is not None else 1


def check_evidence(episode: Episode) -> tuple[LinkCheck, ...]:
    """The answer's links against what the episode observed; a forced answer may stem from any of its tries."""
    if episode.answer is None:
        return ()
    return check(episode.answer.evidence, [passage for one in episode.tries for passage in passages(one.nodes)])


def as_text(episode: Episode, checks: tuple[LinkCheck, ...]) -> Iterator[str]:
    answer = episode.answer
    if answer is None:
        yield f"No answer ({episode.stop})."
    else:
        yield f"Answer: {answer.text}" + ("  (forced: the last try ran out)" if answer.forced else "")
        yield ""
        yield "Evidence:" if checks else "Evidence: none was given."
        for link in checks:
            yield from _link(link)
    usage = episode.usage
    yield ""
    yield (
        f"{_count(episode.turns, 'turn')}, {_count(len(episode.tries), 'try', 'tries')}, {usage.completion_tokens:,} "
        f"tokens sampled, {usage.prompt_tokens:,} read, {episode.seconds:.1f} s; stopped: {episode.stop}"
    )


def as_json(episode: Episode, checks: tuple[LinkCheck, ...]) -> dict[str, object]:
    """What `as_text` says, for programs."""
    return {
        "answer": episode.answer.text if episode.answer else None,
        "forced": episode.answer.forced if episode.answer else False,
        "evidence": [asdict(link.link) | {"status": str(link.status)} for link in checks],
        "stop": str(episode.stop),
        "turns": episode.turns,
        "tries": len(episode.tries),
        "usage": asdict(episode.usage),
        "seconds": episode.seconds,
    }


def _link(link: LinkCheck) -> Iterator[str]:
    fault = "" if link.supported else f"  ({str(link.status).replace('_', ' ')})"
    yield f"  {'✓' if link.supported else '✗'} {link.link.claim}{fault}"
    yield f'      "{link.link.quote}"'
    yield f"      {link.link.source}"


def _count(n: int, noun: str, plural: str | None = None) -> str:
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


async def _answer(args: argparse.Namespace, config: AskConfig) -> Episode:
    if config.model is None:
        raise ConfigError(NO_MODEL)
    named = args.agent or ("embedded" if isinstance(config.model, EmbeddedModelConfig) else "mirothinker")
    agent_config = load_agent(named, agent_settings(args))
    digest = hashlib.sha256(args.question.encode("utf-8", "replace")).hexdigest()[:12]
    question = Question(f"ask-{digest}", args.question)
    async with open_agent(agent_config, config.model, config.web) as agent:
        return await agent.run(question, EpisodeKey(question.id, seed=args.seed))
