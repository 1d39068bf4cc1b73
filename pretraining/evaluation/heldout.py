"""Held-out records: whether a model can read them, and a note on documents it was trained on."""

from typing import Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from data.pipeline.batches import Records
from data.records import sketch

MIN_COMPARED = 100  # documents, for an estimate of the share that was trained on


def check_records(run: RunDir, model: AlbertConfig, records: Records) -> None:
    """Check that the model can read the records.

    Raises:
      InputError: the tokenizers differ, or the sequences are too long for the model.
    """
    manifest = records.manifest
    try:
        is_same = load_tokenizer(run.path).fingerprint == manifest.tokenizer_fingerprint
    except InputNotFoundError:  # a checkpoint without its vocabulary
        is_same = model.vocab_size == manifest.vocab_size
        print(f"note: {run.path} has no tokenizer: its pieces must be those of {records.folder}.")
    if not is_same:
        raise InputError(
            f"--data={records.folder} was built with another tokenizer than the model's: "
            f"rebuild it with --tokenizer={run.path}."
        )
    if manifest.seq_length > model.max_positions:
        raise InputError(
            f"--data={records.folder} has sequences of {manifest.seq_length} pieces, but the model "
            f"accepts only {model.max_positions}: rebuild it with a smaller --seq_length."
        )


def note_overlap(trained_on: dict[str, Any], its_sketch: str, records: Records) -> None:
    """Print a note if records that a run was trained on share documents with `records`.

    `trained_on` and `its_sketch` are the identity and the sketch of the former, as in config.json.
    The share is an estimate from at least `MIN_COMPARED` documents. Equal texts in documents of
    other boundaries are found only if the two builds read the same files.
    """
    build, training_build = records.manifest.build_options, trained_on["build"]
    name = records.folder
    sketches = [sketch.from_text(text) for text in (records.manifest.sketch, its_sketch)]
    share = sketch.share_in(*sketches) if all(sketches) else None
    is_same_text = trained_on["corpus"] == records.manifest.corpus_fingerprint
    is_same_split = (
        "all" in (build["split"], training_build["split"])
        or build["split"] == training_build["split"]
    )
    is_few = share is None or share.compared < min(MIN_COMPARED, len(sketches[0]))
    if share and share.value and is_few:
        print(
            f"note: {round(share.value * share.compared)} of the {share.compared} documents of "
            f"{name} that can be compared are in the training records: they are not held out."
        )
    elif share and share.value:
        error = f" ± {share.error:.0%}" if share.error else ""
        print(
            f"note: about {share.value:.0%}{error} of the documents of {name} are in the training "
            f"records ({share.compared:,} compared): they are not held out."
        )
    elif is_same_text and is_same_split:
        print(f"note: the training records share documents with {name}: they are not held out.")
    elif is_few:
        print(
            f"note: whether the training records share documents with {name} is unknown: their "
            "manifests do not describe enough documents."
        )
