"""`proofhound rollout --problems FILE --out DIR`: episodes of an agent on problems.

    proofhound rollout --problems set/problems.jsonl --model runs/demo/sft/model --samples 4 --out runs/r4
    proofhound rollout ... -a mirothinker -c configs/models/openai_chat.yaml -c configs/tools/serper_jina.yaml

The config is `rollout_env.config.RolloutConfig`, with `agent.*` for settings over those of `-a`. The same command again
goes on where it stopped, runs errored episodes again, and adds samples when `--samples` has grown.
"""

import argparse
import sys
from collections import Counter

from rollout_env.config import RolloutConfig
from rollout_env.runner import EPISODES
from scripts.compose import read_config
from scripts.rollouts import carry_out, plan, warning


def run(args: argparse.Namespace) -> int:
    config = read_config(RolloutConfig, args)
    episodes = carry_out(plan(args, config, args.problems, args.samples), "rollout")
    if (told := warning(episodes)) is not None:
        print(told, file=sys.stderr)
    stops = Counter(episode.stop.value for episode in episodes)
    ends = ", ".join(f"{count} {stop}" for stop, count in stops.most_common())
    print(f"{args.out / EPISODES}: {len(episodes)} episodes ({ends})")
    return 0
