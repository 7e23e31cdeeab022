"""The steps of the demo and of the study, from their configs.

    factbook ── heldout_questions ── heldout ─────────────────────────────────┬──────────┬─────── ...
        └─ world ─┴─ train_questions ── train ─┬─ data_mid ── mid ── eval_mid ┘          │
                                               └─ data_sft ── sft ── eval_sft ───────────┘
                      sft ── sft_rollouts ── pairs ── dpo ── grpo ── candidates_I ── verified ── report

* `heldout` and `train` are the teacher's steps: of the questions, those it solves.
* A seed draws the world, its questions, the order of training and every sample; held-out questions are drawn once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import training
from configs.errors import ConfigError
from configs.loader import load, resolve
from configs.schema import Config
from inference.agent import AgentConfig
from scripts.pipeline import Ref, Step, closure, outside, step
from scripts.stages_config import DemoConfig, DpoSettings, GrpoSettings, LmSettings, StudyConfig
from scripts.steps.comparison import ComparisonSettings
from scripts.steps.corpus import CorpusSettings
from scripts.steps.datasets import DatasetSettings
from scripts.steps.questions import QuestionsSettings
from scripts.steps.report import ReportSettings
from scripts.steps.rollouts import RolloutSettings
from scripts.steps.teacher import TeacherSettings
from scripts.steps.train import MODEL, TrainSettings
from scripts.steps.verified import VerifiedSettings

EMBEDDED_BASE = Path(training.__file__).parent / "base"
_MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
_EMBEDDED_SEED = 0
"""Seed of the factbook's pages, the same as when `ask` is given no corpus."""

Stage = Literal["mid", "sft", "dpo", "grpo"]


@dataclass(frozen=True, slots=True)
class Common:
    """What the runs of all seeds share."""

    config: DemoConfig
    agent: AgentConfig
    base: Ref
    factbook: Step
    questions: Step
    heldout: Step

    @property
    def problems(self) -> Ref:
        """The held-out problems."""
        return self.heldout / "heldout.jsonl"


@dataclass(frozen=True, slots=True)
class Run:
    """One seed's pipeline."""

    questions: Step
    train: Step
    data: dict[str, Step]
    stages: dict[str, Step]
    evals: dict[str, Step]
    verified: Step

    @property
    def arms(self) -> dict[str, Ref]:
        """Folders with scores.jsonl, in the order of the stages."""
        return {name: one.ref for name, one in self.evals.items()} | {"grpo": self.verified / "first"}


def common(config: DemoConfig, seed: int) -> Common:
    """Raises UsageError where the agent or the base model is not there."""
    agent = load(AgentConfig, [resolve("agents", config.agent)], environ={})
    if config.grpo.engine.context < agent.context_tokens:
        raise ConfigError(f"grpo.engine.context: below the agent's context_tokens ({agent.context_tokens})")
    base = outside(config.base or EMBEDDED_BASE, _MODEL_FILES)
    factbook = step("factbook", "corpus", CorpusSettings(source="factbook"), _EMBEDDED_SEED)
    sets = QuestionsSettings(sets={"heldout": config.heldout.sources})
    questions = step("heldout_questions", "questions", sets, seed, corpus_factbook=factbook)
    teacher = TeacherSettings(
        agent=agent, web=config.web, sets={"heldout": config.heldout.keep}, detour=config.teacher.detour
    )
    heldout = step(
        "heldout",
        "teacher",
        teacher,
        seed,
        questions=questions,
        corpus_factbook=factbook,
        tokenizer=base / "tokenizer.json",
    )
    return Common(config, agent, base, factbook, questions, heldout)


def run_of(common: Common, seed: int, prefix: str = "", *, without_mid: bool = False) -> Run:
    """The pipeline of one seed, its steps' names beginning with `prefix`.

    `without_mid` adds an arm: sft from the base, on the same data for as long.
    """
    builder = _Builder(common, seed, prefix)
    run = builder.build()
    if without_mid:
        inputs = {"data_sft": run.data["sft"] / "sft.jsonl"}
        alone = builder.train("sft_nomid", "sft", common.config.sft, common.base, **inputs)
        run.stages["sft_nomid"] = alone
        run.evals["sft_nomid"] = builder.evaluation("sft_nomid", alone / MODEL)
    return run


def demo(config: DemoConfig, seed: int) -> Step:
    """The report, which needs everything else."""
    shared = common(config, seed)
    run = run_of(shared, seed)
    inputs: dict[str, Step | Ref] = {
        "problems": shared.problems,
        "verified": run.verified,
        **{f"arm_{name}": ref for name, ref in run.arms.items()},
        **{f"stage_{name}": one for name, one in run.stages.items()},
        "funnel_heldout_questions": shared.questions,
        "funnel_heldout": shared.heldout,
        "funnel_train_questions": run.questions,
        "funnel_train": run.train,
        **{f"funnel_data_{name}": one for name, one in run.data.items()},
    }
    inputs |= {f"other_{one.name}": one for one in closure([run.verified])}
    settings = ReportSettings(title="Proofhound demo", samples=config.verified.samples)
    return step("report", "report", settings, seed, **inputs)


def study(config: StudyConfig, seed: int) -> Step:
    """The comparison over seeds, which needs everything else. Held-out questions are the same for all of them."""
    shared = common(config, seed)
    inputs: dict[str, Step | Ref] = {}
    for number in range(config.seeds):
        run = run_of(shared, seed + number, f"seed{number}/", without_mid=True)
        readings = {name: run.verified / name for name in ("single", "majority", "verified")}
        inputs |= {f"arm_{number}_{name}": ref for name, ref in (run.arms | readings).items()}
        inputs |= {f"stage_{number}_{name}": one for name, one in run.stages.items()}
        inputs |= {f"other_{number}_{i}": one for i, one in enumerate(closure([run.verified]))}
    settings = ComparisonSettings(title="Proofhound: what each stage is worth", samples=config.verified.samples)
    return step("comparison", "comparison", settings, seed, **inputs)


class _Builder:
    def __init__(self, common: Common, seed: int, prefix: str) -> None:
        self._common = common
        self._config = common.config
        self._seed = seed
        self._prefix = prefix

    def build(self) -> Run:
        config, base = self._config, self._common.base
        world = self._step("world", "corpus", CorpusSettings(source="world", countries=config.countries))
        corpora: dict[str, Step | Ref] = {"corpus_factbook": self._common.factbook, "corpus_world": world}
        questions, train = self._questions(corpora)
        data_mid, data_sft = self._teacher_sets(train)
        mid = self.train("mid", "mid", config.mid, base, data_mid=data_mid / "mid.jsonl")
        sft = self.train("sft", "sft", config.sft, mid / MODEL, data_sft=data_sft / "sft.jsonl")
        rollouts = self._step(
            "sft_rollouts",
            "rollouts",
            self._rollouts(config.pairs.samples, on_policy=True),
            model=sft / MODEL,
            problems=train / "pairs.jsonl",
            **corpora,
        )
        made = DatasetSettings(made="pairs", per_question=config.pairs.per_question)
        pairs = self._step("pairs", "datasets", made, episodes=rollouts, problems_pairs=train / "pairs.jsonl")
        dpo = self.train("dpo", "dpo", config.dpo, sft / MODEL, data_pairs=pairs / "pairs.jsonl")
        grpo = self.train("grpo", "grpo", config.grpo, dpo / MODEL, problems=train / "rl.jsonl", corpus=world)
        models = {"base": base, "mid": mid / MODEL, "sft": sft / MODEL, "dpo": dpo / MODEL}
        data = {"mid": data_mid, "sft": data_sft, "pairs": pairs}
        return Run(
            questions=questions,
            train=train,
            data=data,
            stages={"mid": mid, "sft": sft, "dpo": dpo, "grpo": grpo},
            evals={name: self.evaluation(name, model) for name, model in models.items()},
            verified=self._verified(grpo / MODEL),
        )

    def evaluation(self, name: str, model: Ref) -> Step:
        """The step that lets `model` answer the held-out questions."""
        return self._step(
            f"eval_{name}",
            "rollouts",
            self._rollouts(self._config.evaluation.samples),
            model=model,
            problems=self._common.problems,
            corpus_factbook=self._common.factbook,
        )

    def _questions(self, corpora: dict[str, Step | Ref]) -> tuple[Step, Step]:
        """(the questions, those that the teacher solves)."""
        sets = {name: getattr(self._config.train, name) for name in type(self._config.train).model_fields}
        drawn = QuestionsSettings(sets={name: one.sources for name, one in sets.items()})
        sealed = self._common.questions / "heldout.jsonl"
        questions = self._step("train_questions", "questions", drawn, sealed=sealed, **corpora)
        teacher = TeacherSettings(
            agent=self._common.agent,
            web=self._config.web,
            sets={name: one.keep for name, one in sets.items()},
            detour=self._config.teacher.detour,
        )
        tokenizer = self._common.base / "tokenizer.json"
        return questions, self._step("train", "teacher", teacher, questions=questions, tokenizer=tokenizer, **corpora)

    def _teacher_sets(self, train: Step) -> tuple[Step, Step]:
        """The data of mid and of sft."""
        mid, sft = self._config.data_mid, self._config.data_sft
        inputs: dict[str, Step | Ref] = {"episodes": train, "problems_sft": train / "sft.jsonl"}
        rewritten = DatasetSettings(made="mid", plans=mid.plans, steps=mid.steps, limit=mid.questions)
        imitated = DatasetSettings(made="sft", limit=sft.questions)
        return (
            self._step("data_mid", "datasets", rewritten, **inputs),
            self._step("data_sft", "datasets", imitated, **inputs),
        )

    def train(
        self,
        name: str,
        stage: Stage,
        config: LmSettings | DpoSettings | GrpoSettings,
        model: Ref,
        **inputs: Step | Ref,
    ) -> Step:
        """The step that trains `stage`, starting from `model`."""
        options = config.model_dump(mode="json", exclude={"model", "data", "seed", "stage", "agent", "web", "problems"})
        settings = TrainSettings(stage=stage, options=options)
        if stage == "grpo":
            settings = TrainSettings(stage=stage, options=options, agent=self._common.agent, web=self._config.web)
        return self._step(name, "train", settings, model=model, **inputs)

    def _rollouts(self, samples: int, *, on_policy: bool = False, shard: int = 0, shards: int = 1) -> RolloutSettings:
        agent, concurrency = self._common.agent, self._config.evaluation.concurrency
        if on_policy:
            sampling = agent.sampling.model_copy(update={"temperature": 1.0, "top_p": 1.0})
            agent = agent.model_copy(update={"sampling": sampling})
        return RolloutSettings(
            agent=agent,
            web=self._config.web,
            samples=samples,
            concurrency=concurrency,
            slots=concurrency,
            shard=shard,
            shards=shards,
        )

    def _verified(self, model: Ref) -> Step:
        n, shards = self._config.verified.samples, self._config.verified.shards
        candidates = {
            f"candidates_{shard}": self._step(
                f"candidates_{shard}",
                "rollouts",
                self._rollouts(n, shard=shard, shards=shards),
                model=model,
                problems=self._common.problems,
                corpus_factbook=self._common.factbook,
            )
            for shard in range(shards)
        }
        settings = VerifiedSettings(samples=n, first=self._config.evaluation.samples)
        return self._step("verified", "verified", settings, problems=self._common.problems, **candidates)

    def _step(self, name: str, kind: str, settings: Config, **inputs: Step | Ref) -> Step:
        return step(f"{self._prefix}{name}", kind, settings, self._seed, **inputs)
