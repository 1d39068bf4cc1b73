"""Time SQuAD featurization, ours and Model Garden's `squad_lib_sp`, on the same questions.

    python -m benchmarks.squad_features --data=squad/dev-v1.1.json --tokenizer=spiece.model

The output is one JSON line: the examples per CPU second of each, where ours is the best of the
rounds, and their ratio. Both build windows of 384 pieces with targets, from examples in memory.
Model Garden aligns the context again for every question, in Python, which takes seconds each, so
both are timed on only the first questions. We align a context once: `ours_all` is our speed on the
whole file. tf-models-official must be installed.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.commands import CommandOptions, option, run

if TYPE_CHECKING:
    from albert_tf.tasks.examples import SpanExample
    from albert_tf.tasks.spans.model import SpanSettings


@dataclasses.dataclass(frozen=True)
class SquadFeaturesOptions(CommandOptions):
    """The command line of `benchmarks.squad_features`."""

    data: str = option("a file in SQuAD's layout", path=True)
    tokenizer: str = option("a sentencepiece model, spiece.model", path=True)
    examples: Annotated[int, POSITIVE] = option(
        "number of questions for both, from the start of the file", 20
    )
    rounds: Annotated[int, POSITIVE] = option("rounds of ours; theirs has one", 5)
    dry_run: bool = option("check the options and print what would be measured", False)


def squad_features(options: SquadFeaturesOptions) -> None:
    """Measure and print the line."""
    if options.dry_run:
        print(json.dumps(dataclasses.asdict(options)))
        return
    print(json.dumps(measure(options)), flush=True)


def measure(options: SquadFeaturesOptions) -> dict:
    """Return the line."""
    from albert_tf.tasks.spans.features import featurize_spans
    from albert_tf.tasks.spans.model import SpanSettings
    from albert_tf.text.tokenizer import load_tokenizer
    from finetuning.datasets.spans.squad_reader import questions_of

    examples = [example for example in questions_of(options.data) if example.answers]
    sample = examples[: options.examples]
    tokenizer, task = load_tokenizer(options.tokenizer), SpanSettings()
    ours, ours_all = (
        max(
            len(part) / _cpu_seconds(lambda part=part: featurize_spans(part, tokenizer, task))
            for _ in range(options.rounds)
        )
        for part in (sample, examples)
    )
    theirs = len(sample) / _cpu_seconds(_model_garden_run(sample, options.tokenizer, task))
    return {
        "benchmark": "squad_features",
        "examples": len(sample),
        "ours_per_cpu_s": round(ours, 1),
        "theirs_per_cpu_s": round(theirs, 3),
        "ratio": round(ours / theirs),
        "examples_all": len(examples),
        "ours_all_per_cpu_s": round(ours_all, 1),
    }


def _model_garden_run(
    examples: Sequence["SpanExample"], model: str, task: "SpanSettings"
) -> Callable[[], object]:
    """Return a function that runs Model Garden's featurization."""
    from absl import logging
    from official.nlp.data import squad_lib_sp
    from official.nlp.tools import tokenization

    logging.set_verbosity(logging.ERROR)  # it logs every example
    tokenizer = tokenization.FullSentencePieceTokenizer(model)
    squad_examples = [
        squad_lib_sp.SquadExample(
            each.id, each.question, each.context, each.answers[0][1], each.answers[0][0]
        )
        for each in examples
    ]
    return lambda: squad_lib_sp.convert_examples_to_features(
        squad_examples,
        tokenizer,
        task.seq_length,
        task.doc_stride,
        task.query_length,
        is_training=True,
        output_fn=lambda feature: None,
        do_lower_case=True,
    )


def _cpu_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


if __name__ == "__main__":
    run(squad_features, SquadFeaturesOptions, __doc__)
