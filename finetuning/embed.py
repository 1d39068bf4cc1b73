r"""Store a teacher's vectors of the texts to train embeddings on, in DATA_DIR/train.vectors.

    python -m finetuning.embed --teacher=runs/large --data_dir=texts
    python -m finetuning.train --task=embedding --data_dir=texts --init=albert-mini-en \
        --run_dir=runs/small

--teacher is one of: whatever `albert_tf.load_embedder` takes; another SavedModel with a signature
that takes strings and returns one matrix; an ONNX model with its tokenizer.json, or a folder of
sentence-transformers with onnx/model.onnx (both with the extra `teacher`); any other folder of
sentence-transformers, which must be installed.

The vectors are float16, and are written as they are computed; training holds them in memory. If the
command is interrupted, run it again: it continues after the last complete chunk.
"""

import dataclasses
import os
from typing import Annotated

from albert_tf.runtime import commands, pretrained
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.embeddings.embedding_data import EmbeddingData
from finetuning.datasets.embeddings.teacher_vectors import TEXTS, VECTORS, digest_of
from finetuning.datasets.embeddings.teachers import load_teacher, teacher_fingerprint
from finetuning.datasets.embeddings.vector_file import store_vectors

CHUNK = 4096  # texts between two points from which the command can continue
_DONE = f"{outputs.MARK}_done"


@dataclasses.dataclass(frozen=True)
class EmbedOptions(commands.CommandOptions):
    """The command line of `finetuning.embed`."""

    teacher: str = commands.option("the model whose vectors to store", path=True)
    data_dir: str = commands.option("the folder with train.tsv, .csv or .jsonl", path=True)
    text_column: tuple[str, ...] = commands.option(
        "the column of the text, as for finetuning.train", ()
    )
    prompt: str = commands.option("what to put before each text", "")
    batch_size: Annotated[int | None, POSITIVE] = commands.option(
        "texts per batch; by default 32, and 256 of a model of this package, which bounds the "
        "memory by itself",
        None,
    )
    dry_run: bool = commands.option("read the texts and load the teacher only", False)


def main(options: EmbedOptions, chunk: int = CHUNK) -> None:
    """Store the vectors that `options` describe, unless they are stored already.

    Raises:
      InputError: the texts are pairs, the teacher cannot be loaded, a vector is not of finite
        numbers, or there are other vectors already.
    """
    folder = os.path.join(options.data_dir, "train.vectors")
    if os.path.lexists(folder) and not os.path.isfile(os.path.join(folder, TEXTS)):
        raise InputError(f"{folder!r} exists, but without {TEXTS}. Remove it to store vectors.")
    source = Source(options.data_dir, reading=Reading(options.text_column))
    examples = EmbeddingData().examples(source, "train")
    if any(example.second is not None for example in examples):
        raise InputError(
            f"--data_dir={options.data_dir} must hold single texts, in a column text. Received: "
            "pairs."
        )
    texts = [example.first for example in examples]
    about = {"teacher": pretrained.name_of(options.teacher), "prompt": options.prompt}
    about["weights"] = teacher_fingerprint(options.teacher)
    if os.path.lexists(folder):
        _require_same(folder, about)
        print(f"{folder} is already complete")
        return
    teacher = load_teacher(options.teacher, options.batch_size, options.prompt)
    width = teacher(texts[:1]).shape[1]
    if options.dry_run:
        print(f"{len(texts):,} texts, vectors of width {width}")
        return
    identity = {"count": len(texts), "width": width, "sha256": digest_of(texts), **about}
    with outputs.new_folder(folder, "--data_dir", repr(identity)) as partial:
        path, done_path = os.path.join(partial, VECTORS), os.path.join(partial, _DONE)
        store_vectors(path, done_path, texts, teacher, width, chunk, "--teacher")
        outputs.write_json(os.path.join(partial, TEXTS), identity)
    print(f"{folder}: {len(texts):,} vectors of width {width}")


def _require_same(folder: str, teacher: dict[str, str]) -> None:
    known = outputs.read_json(os.path.join(folder, TEXTS))
    if any(known.get(key) != teacher[key] for key in ("weights", "prompt")):
        raise InputError(
            f"{folder!r} exists, but its vectors are of another teacher or --prompt. Remove it to "
            "store others."
        )


if __name__ == "__main__":
    commands.run(main, EmbedOptions, __doc__)
