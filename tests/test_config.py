from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from configs import yaml_text
from configs.errors import ConfigError, InputError
from configs.loader import PACKAGED, content_hash, load, resolve, save_resolved
from configs.run_folder import open_run
from configs.schema import Config
from data_synthesis.midtrain import MidtrainConfig
from data_synthesis.pairs import PairsConfig
from data_synthesis.sft_set import SftSetConfig
from eval.config import EvalConfig
from inference.agent import AgentConfig
from inference.llm.config import EmbeddedModelConfig, ModelChoice
from inference.web.config import WebChoice
from rollout_env.config import RolloutConfig
from scripts.commands.synth import CorpusSynthConfig, WebHopSynthConfig
from scripts.stages_config import DemoConfig, StudyConfig
from training.train_config import DpoConfig, GrpoConfig, LmConfig


class Mode(StrEnum):
    FAST = "fast"


class Remote(Config):
    kind: Literal["remote"] = "remote"
    url: str
    api_key_env: str = "KEY"


class Local(Config):
    kind: Literal["local"] = "local"
    folder: Path


Web = Annotated[Remote | Local, Field(discriminator="kind")]


class Sampling(Config):
    temperature: float = 1.0
    stops: tuple[str, ...] = ()


class Demo(Config):
    k: int = 5
    seed: int | None = None
    mode: Mode = Mode.FAST
    sampling: Sampling = Sampling()
    web: Web = Local(folder=Path("web"))
    roles: dict[str, Sampling] = {}
    webs: tuple[Web, ...] = ()


SCHEMAS: dict[str, type[BaseModel]] = {
    "agents": AgentConfig,
    "models": ModelChoice,
    "tools": WebChoice,
    "rollout": RolloutConfig,
    "eval": EvalConfig,
    "synth/webhop": WebHopSynthConfig,
    "synth/corpus": CorpusSynthConfig,
    "data/midtrain": MidtrainConfig,
    "data/sft": SftSetConfig,
    "data/pairs": PairsConfig,
    "train/mid": LmConfig,
    "train/sft": LmConfig,
    "train/dpo": DpoConfig,
    "train/grpo": GrpoConfig,
    "demo": DemoConfig,
    "study": StudyConfig,
}
"""File or folder under configs/ -> the schema its YAML loads with."""
GIVEN = {
    "train": ["model=model", "data=[data.jsonl]"],
    "train/grpo": ["model=model", "problems=problems.jsonl"],
}
"""File or folder under configs/ -> what its YAML leaves to the command line."""
BELOW = {"demo/quick": ["demo/full"], "study/stages": ["demo/full"]}
"""File under configs/ -> the files it is laid over."""


@pytest.mark.parametrize("path", sorted(PACKAGED.rglob("*.yaml")), ids=lambda path: str(path.relative_to(PACKAGED)))
def test_every_packaged_yaml_loads(path: Path):
    name = path.relative_to(PACKAGED).with_suffix("").as_posix()
    schema = SCHEMAS.get(name) or SCHEMAS[path.parent.name]
    below = [PACKAGED / f"{lower}.yaml" for lower in BELOW.get(name, [])]
    assert load(schema, [*below, path], GIVEN.get(name) or GIVEN.get(path.parent.name, []), environ={})


def test_the_packaged_engines_hold_the_conversations_of_the_packaged_agent():
    needed = load(AgentConfig, [resolve("agents", "embedded")], environ={}).context_tokens
    served = load(ModelChoice, [resolve("models", "embedded")], environ={}).model
    assert isinstance(served, EmbeddedModelConfig)
    trained = load(GrpoConfig, [resolve("train", "grpo")], GIVEN["train/grpo"], environ={})
    rows = [load(LmConfig, [resolve("train", s)], GIVEN["train"], environ={}).max_tokens for s in ("mid", "sft")]
    default = EmbeddedModelConfig(path="").context
    assert min(served.context, default, trained.engine.context, trained.max_tokens, *rows) >= needed


@pytest.mark.parametrize(
    ("overrides", "environ", "expected"),
    [
        (["k=3"], {}, Demo(k=3)),
        (["sampling.temperature=1e-3"], {}, Demo(sampling=Sampling(temperature=0.001))),
        (["sampling.temperature=2"], {}, Demo(sampling=Sampling(temperature=2.0))),
        (["sampling.stops=[no, 12:30]"], {}, Demo(sampling=Sampling(stops=("no", "12:30")))),
        (["mode=fast", "seed=null"], {}, Demo()),
        (["web.kind=remote", "web.url=h"], {}, Demo(web=Remote(url="h"))),
        (["web={kind: remote, url: h}", "web={kind: local, folder: x}"], {}, Demo(web=Local(folder=Path("x")))),
        (["roles.a.temperature=0"], {}, Demo(roles={"a": Sampling(temperature=0.0)})),
        (["k=3"], {"PROOFHOUND__K": "4"}, Demo(k=3)),
        ([], {"PROOFHOUND__SAMPLING__STOPS": "[a]", "OTHER__K": "1"}, Demo(sampling=Sampling(stops=("a",)))),
    ],
)
def test_layers(overrides: list[str], environ: dict[str, str], expected: Demo):
    assert load(Demo, [], overrides, environ) == expected


def test_files_merge_left_to_right_and_lists_are_replaced(tmp_path: Path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("k: 1\nsampling: {temperature: 0.5, stops: [a, b]}\n", encoding="utf-8")
    second.write_text("sampling:\n  stops: [c]\n", encoding="utf-8")
    assert load(Demo, [first, second], ["k=2"], {}) == Demo(k=2, sampling=Sampling(temperature=0.5, stops=("c",)))


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("sampling.temprature=1", ("unknown key sampling.temprature", "closest known key is sampling.temperature")),
        ("temperature=1", ("unknown key temperature", "is sampling.temperature")),
        ("web={kind: remote, urll: x}", ("web.urll", "is web.url")),
        ("webs=[{kind: local, foldr: x}]", ("webs.0.foldr", "is webs.0.folder")),
        ("roles.a.stop=[]", ("roles.a.stop", "is roles.a.stops")),
        ("k='3'", ("override k", "integer", "'3'")),
        ("k=3.5", ("integer", "3.5")),
        ("k=true", ("integer", "True")),
        ("mode=slow", ("'fast'", "'slow'")),
        ("sampling.stops=a", ("a list", "'a'")),
        ("sampling=3", ("a mapping", "3")),
        ("web={kind: remot, url: x}", ("'remote', 'local'", "'remot'")),
        ("web={url: x}", ("web", "'kind' is required")),
        ("web={kind: remote}", ("web.url", "required")),
        ("web={kind: remote, url: h, api_key_env: 3}", ("web.api_key_env", "string")),
        ("k=[1", ("override k", "expected")),
        ("k", ("'k'", "key.path=value")),
        ("sampling..x=1", ("a part of the key is empty",)),
        ("sampling={stops: [], stops: []}", ("stops stands twice",)),
    ],
)
def test_a_wrong_override_is_one_line_that_names_it(override: str, parts: tuple[str, ...]):
    with pytest.raises(ConfigError) as caught:
        load(Demo, [], [override], {})
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"k: 1\nk: 2\n", "c.yaml:2: key k stands twice"),
        (b"- a\n", "found a list"),
        (b"k: [1\n", "c.yaml:2"),
        (b"k: &a [*a]\n", "c.yaml:1"),
        (b"k: !!python/name:os.system\n", "c.yaml:1"),
        (b"\xff\xfe", "not UTF-8"),
        (b"kk: 1\n", "c.yaml: unknown key kk; the closest known key is k"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, part: str):
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=part.replace("[", r"\[")):
        load(Demo, [tmp_path / "c.yaml"], environ={})


def test_a_missing_file_and_a_wrong_variable_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"gone\.yaml: No such file"):
        load(Demo, [tmp_path / "gone.yaml"], environ={})
    with pytest.raises(ConfigError, match="PROOFHOUND__KK: unknown key kk"):
        load(Demo, [], environ={"PROOFHOUND__KK": "1"})


def test_no_value_that_may_be_secret_is_repeated():
    for override in (
        "web={kind: remote, url: h, api_key: sk-123}",
        "web={kind: remote, url: h, api_key_env: [sk-123]}",
    ):
        with pytest.raises(ConfigError) as caught:
            load(Demo, [], [override], {})
        assert "sk-123" not in str(caught.value)


def test_models_are_frozen():
    with pytest.raises(ValidationError):
        Demo().k = 3  # type: ignore[misc]


def test_resolved_config_loads_back_and_keeps_its_hash(tmp_path: Path):
    config = load(Demo, [], ["sampling={stops: ['1e-3', 'yes', 'ünï']}", "web={kind: remote, url: h}"], {})
    save_resolved(config, tmp_path / "config.yaml")
    again = load(Demo, [tmp_path / "config.yaml"], environ={})
    assert again == config
    assert content_hash(again) == content_hash(config) != content_hash(Demo())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_yaml_text_reads_back_what_it_writes(value: object):
    assert yaml_text.parse(yaml_text.dump(value), "text") == value


def test_packaged_names_and_paths(tmp_path: Path):
    assert resolve("agents", "some/agent") == Path("some/agent")
    assert resolve("agents", "agent.yaml") == Path("agent.yaml")
    with pytest.raises(ConfigError, match="no config 'nothing'"):
        resolve("agents", "nothing")


def test_a_run_folder_is_claimed_once(tmp_path: Path):
    out = tmp_path / "deep" / "run"
    assert not open_run(out, "sft", Demo()).resumed
    (out / "log.txt").write_text("kept", encoding="utf-8")
    assert open_run(out, "sft", Demo()).resumed
    assert load(Demo, [out / "config.yaml"], environ={}) == Demo()
    for kind, config in (("dpo", Demo()), ("sft", Demo(k=1))):
        with pytest.raises(InputError, match=r"holds another run \(kind sft, .*choose another --out"):
            open_run(out, kind, config)
    assert (out / "log.txt").read_text(encoding="utf-8") == "kept"


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("mine", encoding="utf-8")
    for out in (tmp_path, tmp_path / "config.yaml", tmp_path / "config.yaml" / "below"):
        with pytest.raises(InputError, match="choose another --out"):
            open_run(out, "sft", Demo())
    assert [(file.name, file.read_text(encoding="utf-8")) for file in tmp_path.iterdir()] == [("config.yaml", "mine")]


def test_a_claim_cut_short_is_made_again(tmp_path: Path):
    (tmp_path / ".run.json.tmp").write_text("{", encoding="utf-8")
    assert not open_run(tmp_path, "sft", Demo()).resumed


def test_the_name_of_a_packaged_file_works_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    name = "configs/models/vllm.yaml"
    packaged = load(ModelChoice, [name], environ={})
    assert packaged == load(ModelChoice, [resolve("models", "vllm")], environ={})
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("model: {kind: embedded, path: mine}\n", encoding="utf-8")
    assert load(ModelChoice, [name], environ={}).model.kind == "embedded"
    with pytest.raises(ConfigError, match=r"^configs/models/none\.yaml: No such file"):
        load(ModelChoice, ["configs/models/none.yaml"], environ={})
