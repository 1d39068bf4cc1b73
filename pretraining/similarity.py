r"""Measure how far each layer moves its input, as in Figure 1 of the paper (section 3.1).

For every layer, the L2 distance and the angle between its input and its output are averaged over
the pieces of held-out records. The angle is in degrees, the arccosine of the cosine similarity. The
input of layer 1 is the embedding that enters the stack, of width H. Outputs of a pre-norm model are
taken after its last LayerNorm. Padding is excluded; the records are masked with the default
settings of training. The command prints a table, draws a PNG and writes the values next to it as
JSON. Several models share one plot:

    python -m pretraining.similarity --run_dir=runs/bert --run_dir=runs/albert \
        --data=artifacts/heldout --output=similarity.png
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import load_config, note_unfinished
from albert_tf.models.encoder import INPUTS, AlbertEncoder, load_encoder
from albert_tf.runtime import commands, pretrained
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.plots import plot_lines
from albert_tf.runtime.report_text import markdown_table
from albert_tf.runtime.run_dir import RunDir
from albert_tf.training.progress import Progress
from data.objectives.masking import MaskingConfig
from data.objectives.pair_objective import NoPairs
from data.pipeline.batches import Records, evaluation_batches
from pretraining.evaluation.heldout import check_records

L2, ANGLE = "L2 distance", "angle in degrees"


@dataclasses.dataclass(frozen=True)
class SimilarityOptions(commands.CommandOptions):
    """The command line of `pretraining.similarity`."""

    run_dir: tuple[str, ...] = commands.option(
        "a run or converted checkpoint; may be repeated", path=True
    )
    data: str = commands.option("held-out records, a folder made by data.build", path=True)
    output: str | None = commands.option(
        "the PNG file; by default, for a run, in the first one's plots/", None, path=True
    )
    batch_size: Annotated[int, POSITIVE] = commands.option("sequences in a batch", 32)
    dry_run: bool = commands.option("check the options and the folders without computing", False)


def main(options: SimilarityOptions) -> None:
    """Compute the distances and angles, print them and plot them."""
    options = dataclasses.replace(options, run_dir=tuple(map(pretrained.locate, options.run_dir)))
    records = Records.open(options.data)
    for path in options.run_dir:
        check_records(RunDir(path), load_config(path), records)
    image = options.output or os.path.join(RunDir(options.run_dir[0]).plots_path, "similarity.png")
    if options.output:
        outputs.require_file(image, "--output")
        if not image.endswith(".png"):
            raise InputError(f"--output must end in .png. Received: {image!r}.")
    else:
        first = options.run_dir[0]
        if "records" not in RunDir(first).config():
            raise InputError(f"--output is required, since {first} is not a run of pretraining.")
        outputs.require_folder(first, "--run_dir")
    if options.dry_run:
        print(f"{', '.join(options.run_dir)} on {records.manifest.num_records:,} sequences")
        return
    for path in options.run_dir:
        note_unfinished(path)
    results = {}
    with records.damage_as_input_error():
        for path in options.run_dir:
            results[path] = layer_similarity(load_encoder(path), records, options.batch_size)
            print(f"{path}\n\n{table(results[path])}\n")
    panels = {
        name: {path: result[name] for path, result in results.items()} for name in (L2, ANGLE)
    }
    plot_lines(image, panels, "layer", first=1)
    outputs.write_json(f"{os.path.splitext(image)[0]}.json", results)
    print(image)


def layer_similarity(
    encoder: AlbertEncoder, records: Records, batch_size: int = 32
) -> dict[str, list[float]]:
    """Return `L2` and `ANGLE` of each layer, means over the real pieces of all records."""

    @tf.function
    def sums_of(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        states = [encoder.embeddings(inputs), *encoder(inputs)["encoder_outputs"]]
        return distance_sums(states, inputs["input_mask"])

    sums, pieces, done = np.zeros((2, encoder.config.num_layers)), 0, 0
    total = records.manifest.num_records
    with Progress("sequences", total) as progress:
        for batch in evaluation_batches(records, NoPairs(), MaskingConfig(), batch_size):
            count = min(batch_size, total - done)  # the last batch is padded with copies
            inputs = {name: batch[name][:count] for name in INPUTS}
            sums += sums_of(inputs).numpy()
            pieces += int(tf.reduce_sum(inputs["input_mask"]))
            done += count
            progress.advance(count)
    distances, angles = sums / pieces
    return {L2: distances.tolist(), ANGLE: angles.tolist()}


def distance_sums(states: Sequence[tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
    """Return sums of distances and angles in degrees from each state to the next, float32 [2, L].

    Args:
      states: L + 1 tensors [B, S, H].
      mask: int32 [B, S]; 1 for the positions to include.
    """
    rows = []
    for before, after in zip(states, states[1:], strict=False):
        x, y = tf.cast(before, tf.float32), tf.cast(after, tf.float32)
        distance = tf.norm(y - x, axis=-1)  # [B, S]
        u, v = tf.math.l2_normalize(x, -1), tf.math.l2_normalize(y, -1)
        # Exact for small angles too, unlike the arccosine of a float32 cosine.
        angle = 2 * tf.atan2(tf.norm(u - v, axis=-1), tf.norm(u + v, axis=-1))
        rows.append(tf.stack([distance, angle * (180 / np.pi)]))
    weights = tf.cast(mask, tf.float32)
    return tf.reduce_sum(tf.stack(rows, axis=1) * weights, axis=[2, 3])  # [2, L, B, S] -> [2, L]


def table(result: dict[str, list[float]]) -> str:
    """Return a Markdown table with one row per layer."""
    rows = [
        (str(layer), f"{distance:.3f}", f"{angle:.2f}")
        for layer, (distance, angle) in enumerate(zip(result[L2], result[ANGLE], strict=True), 1)
    ]
    return markdown_table(("layer", L2, ANGLE), rows)


if __name__ == "__main__":
    commands.run(main, SimilarityOptions, __doc__)
