r"""Train a sentencepiece vocabulary on text, with ALBERT's options and special pieces.

The text is normalized first. The normalization options are stored with the model, so that later
users of the tokenizer apply the same ones. Rules for typographic punctuation (docs/data.md) become
part of the model unless --nofold_punctuation is passed. The same text, options and seed produce the
same bytes. `--max_sentences` bounds the memory. The output folder appears only when it is complete;
rerunning a complete training does nothing.

    python -m data.train_tokenizer --corpus=text:'corpus/*.txt' --vocab_size=30000 \
        --output=artifacts/tokenizer
"""

import dataclasses
import io
import json
import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Any

import sentencepiece

from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.text.normalization import Normalization, normalize
from albert_tf.text.tokenizer import (
    SETTINGS_FILE,
    SpecialIds,
    Tokenizer,
    load_tokenizer,
)
from albert_tf.text.typography import folding_normalizer
from albert_tf.training.progress import Progress
from data.corpora.corpus import NumberedCorpus, corpus_fingerprint, read_documents
from data.corpora.glance import Glance, measured_flops_per_s
from data.records import locations

# Ids as in the published vocabulary: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, and the
# user-defined symbols 5 to 12.
CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
USER_DEFINED_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]
_MAX_SENTENCE_BYTES = 4192  # sentencepiece's default; it skips longer sentences
_PART_CHARACTERS = 400  # below that limit even as decomposed Hangul, 9 bytes each
# sentencepiece takes each part for a word, of whose characters each takes 20 bytes and 10 us.
_MAX_UNBROKEN_PARTS = 10_000
# Fixed, because sums are split over threads: their number changes the last digits.
_NUM_THREADS = 16
_NORMALIZE_AT_ONCE = 10_000


@dataclasses.dataclass(frozen=True)
class TrainTokenizerOptions(commands.CommandOptions):
    """The command line of `data.train_tokenizer`."""

    corpus: str = commands.option("text to train on, e.g. text:'corpus/*.txt'", path=True)
    output: str = commands.option("folder to create", path=True)
    vocab_size: int = commands.option("number of pieces", 30_000)
    lowercase: bool = commands.option("lowercase all text", True)
    strip_accents: bool = commands.option("NFKD without combining marks: é becomes e", True)
    unify_quotes: bool = commands.option("`` and '' become \"", False)
    fold_punctuation: bool = commands.option(
        "typographic quotes, dashes and bullets become ' \" - *", True
    )
    document_boundary: str = commands.option(
        "what separates documents: blank_line, file or regex:RE, whose line is dropped",
        "blank_line",
    )
    seed: int = commands.option("seed of the sample of max_sentences sentences", 0)
    max_sentences: Annotated[int, POSITIVE] = commands.option(
        "maximum number of sentences to train on; bounds the memory", 2_000_000
    )
    character_coverage: float = commands.option(
        "share of the text's characters that the vocabulary covers", 0.99995
    )
    errors: str = commands.option("on invalid UTF-8: strict = fail, replace = U+FFFD", "strict")
    data_dir: str | None = commands.option("data folder of TFDS", None, path=True)
    text_column: str = commands.option(
        "the key of the text in JSON lines, its column in parquet and Arrow files", "text"
    )
    dry_run: bool = commands.option("check the options, and that the files can be read", False)

    @property
    def normalization(self) -> Normalization:
        """The three normalization options as one object."""
        return Normalization(self.lowercase, self.strip_accents, self.unify_quotes)


def train_tokenizer(options: TrainTokenizerOptions) -> int:
    """Run the command and return its exit status.

    Raises:
      InputError: an option is invalid, the text cannot fill the vocabulary, or the output exists
        with other content or cannot be written.
    """
    _check(options)
    identity = _identity(options)
    if _is_complete(options.output, identity):
        print(f"{options.output} is already complete.")
        return 0
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return 0
    with outputs.new_folder(options.output) as folder:
        glance = Glance()
        sentences = _sample(options, glance)
        start = time.monotonic()
        model = train_model(_released(sentences), options)
        tokenizer = Tokenizer(model, options.normalization, identity)
        tokenizer.save(folder)
        seconds = time.monotonic() - start
    print(f"trained {options.vocab_size:,} pieces in {seconds:.1f} s: {options.output}")
    if options.fold_punctuation:
        print("the model reads typographic quotes, dashes and bullets as ' \" - * (docs/data.md)")
    facts = glance.facts(tokenizer)
    print(f"\n{facts.table()}\n\n{facts.recommendation(measured_flops_per_s())}")
    return 0


def train_model(sentences: Iterable[str], options: TrainTokenizerOptions) -> bytes:
    """Normalize the sentences, train on them, and return the serialized model.

    Raises:
      InputError: the text has too few pieces, or too many characters, for `vocab_size`.
    """
    stream = io.BytesIO()
    # None means sentencepiece's default, nmt_nfkc.
    normalizer = folding_normalizer(USER_DEFINED_SYMBOLS) if options.fold_punctuation else None
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(_normalized(sentences, options.normalization)),
            model_writer=stream,
            model_type="unigram",
            vocab_size=options.vocab_size,
            hard_vocab_limit=True,
            character_coverage=options.character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=CONTROL_SYMBOLS,
            user_defined_symbols=USER_DEFINED_SYMBOLS,
            normalizer=normalizer,
            input_sentence_size=0,  # all, because `_sample` has already sampled
            shuffle_input_sentence=False,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _as_input_error(error, options) from None
    model = stream.getvalue()
    special = Tokenizer(model, options.normalization).special
    assert special == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4), special
    return model


def _check(options: TrainTokenizerOptions) -> None:
    locations.require_local(options.output, "--output")
    NumberedCorpus(*_corpus(options)).require_text()
    meta = 2 + len(CONTROL_SYMBOLS) + len(USER_DEFINED_SYMBOLS)
    if options.vocab_size <= meta:
        raise InputError(
            f"--vocab_size must be above {meta}, the number of special pieces. "
            f"Received: {options.vocab_size}."
        )
    if not 0.9 <= options.character_coverage <= 1:
        raise InputError(
            "--character_coverage must be between 0.9 and 1, because all other characters become "
            f"the unknown piece. Received: {options.character_coverage}."
        )


def _corpus(options: TrainTokenizerOptions) -> tuple[Any, ...]:
    return (
        options.corpus,
        options.document_boundary,
        options.errors,
        options.data_dir,
        options.text_column,
    )


def _identity(options: TrainTokenizerOptions) -> dict[str, object]:
    """Return the settings that determine the result, as stored in albert_tokenizer.json."""
    values = settings.to_dict(options)
    for name in ("output", "dry_run", "data_dir"):
        del values[name]
    fingerprint = corpus_fingerprint(options.corpus, options.data_dir)
    return values | {"corpus_fingerprint": fingerprint}


def _is_complete(folder: str, identity: dict[str, object]) -> bool:
    if not os.path.isfile(os.path.join(folder, SETTINGS_FILE)):
        outputs.require_new(folder)
        return False
    found = load_tokenizer(folder).training
    if not found:
        outputs.require_new(folder)  # raises: not trained here, e.g. a published vocabulary
    # The corpus's path is informative only; the fingerprint covers its content.
    found, expected = ({k: v for k, v in d.items() if k != "corpus"} for d in (found, identity))
    if differing := settings.differing_keys(found, expected):
        raise InputError(
            f"--output={folder} holds a tokenizer with other options ({'; '.join(differing)}). "
            "Name another folder."
        )
    return True


def _sample(options: TrainTokenizerOptions, glance: Glance) -> list[str]:
    """Return a uniform sample of at most `max_sentences` sentences (reservoir sampling).

    Long sentences are split, and each part counts as a sentence. Splitting between words does not
    change the training, which uses words. Of parts without a space, at most `_MAX_UNBROKEN_PARTS`
    are used.
    """
    documents = glance.watched(read_documents(*_corpus(options)))
    sample = _Reservoir(options.max_sentences, options.seed)
    unbroken = _Reservoir(_MAX_UNBROKEN_PARTS, options.seed)
    num_documents = 0
    with Progress("sentences") as progress:
        for num_documents, document in enumerate(documents, start=1):  # noqa: B007
            for sentence in chain.from_iterable(map(_parts, document.sentences)):
                is_unbroken = len(sentence) == _PART_CHARACTERS and " " not in sentence
                (unbroken if is_unbroken else sample).add(sentence)
            progress.advance(len(document.sentences))
    kept, num_sentences = sample.items + unbroken.items, sample.count + unbroken.count
    used = f", used {len(kept):,}" if len(kept) < num_sentences else ""
    print(f"read {num_sentences:,} sentences from {num_documents:,} documents{used}")
    if unbroken.count > len(unbroken.items):
        print(
            f"note: {unbroken.count:,} parts of {_PART_CHARACTERS} characters have no space; used "
            f"{len(unbroken.items):,} of them."
        )
    return kept


class _Reservoir:
    """A uniform sample of at most `size` of the items that are added."""

    def __init__(self, size: int, seed: int) -> None:
        self.items: list[str] = []
        self.count, self._size, self._random = 0, size, random.Random(seed)

    def add(self, item: str) -> None:
        self.count += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif (slot := self._random.randrange(self.count)) < self._size:
            self.items[slot] = item


def _parts(sentence: str) -> Iterator[str]:
    """Yield the sentence in parts that sentencepiece accepts, split at spaces where possible."""
    begin = 0
    while len(sentence) - begin > _PART_CHARACTERS:
        space = sentence.rfind(" ", begin + 1, begin + _PART_CHARACTERS)
        end = begin + _PART_CHARACTERS if space < 0 else space
        yield sentence[begin:end]
        begin = end
    yield sentence[begin:]


def _released(items: list[str]) -> Iterator[str]:
    """Yield the items in order and remove them, so that no copy stays beside sentencepiece's."""
    items.reverse()
    while items:
        yield items.pop()


def _normalized(sentences: Iterable[str], rules: Normalization) -> Iterator[str]:
    stream = iter(sentences)
    while batch := list(islice(stream, _NORMALIZE_AT_ONCE)):
        yield from normalize(batch, rules)


def _as_input_error(error: RuntimeError, options: TrainTokenizerOptions) -> InputError:
    """Convert sentencepiece's error to an InputError that states a valid size, if known."""
    message = str(error)
    received = f"Received: {options.vocab_size}."
    if too_high := re.search(r"value <= (\d+)", message):
        return InputError(
            f"--vocab_size must be at most {too_high[1]} for this text. {received} "
            "Choose that or less, or pass more text."
        )
    if too_low := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return InputError(
            f"--vocab_size must be at least {too_low[1]}, the number of characters in the text and "
            f"special pieces. {received} Raise it, or lower --character_coverage."
        )
    return InputError(f"training on --corpus={options.corpus} failed: {message.strip()}")


if __name__ == "__main__":
    commands.run(train_tokenizer, TrainTokenizerOptions, __doc__)
