"""`proofhound study stages --out DIR [--quick] [--seed N] [key=value ...]`: what each stage of training is worth.

The demo's pipeline for several seeds on the same held-out questions, with a second sft that skips mid; one table over
all of them: study.md, study.html and study.json in DIR. Hours long: interrupt it at will, the same command goes on.
Settings are those of the demo with configs/study/stages.yaml laid over them.
"""

import argparse
from pathlib import Path

from configs.loader import load, resolve
from scripts.commands.demo import About, accuracies, publish
from scripts.pipeline import closure
from scripts.stages import study
from scripts.stages_config import StudyConfig
from scripts.steps.comparison import HTML, JSON, MARKDOWN
from scripts.steps.folder import read_done
from scripts.workers import run_pipeline


def run(args: argparse.Namespace) -> int:
    layers = [resolve("demo", "full"), resolve("study", args.name)]
    layers += [resolve("demo", "quick")] if args.quick else []
    config = load(StudyConfig, [*layers, *args.config], args.overrides)
    comparison = study(config, args.seed)
    out: Path = args.out
    about = About(out, config, args.seed)
    run_pipeline(out, f"study {args.name}", closure([comparison]), config.workers, about.update)
    publish(out / comparison.name, out, (HTML, MARKDOWN, JSON))
    done = read_done(out / comparison.name, comparison.key)
    assert done is not None
    for line in accuracies(done):
        print(line)
    print(out / MARKDOWN)
    return 0
