r"""Train a sentencepiece vocabulary on text, with ALBERT's options and special pieces.

The text is normalized first. The normalization options are stored with the model, so that later
users of the tokenizer apply the same ones. Rules for typographic punctuation (docs/data.md) become
part of the model unless --nofold_punctuation is passed. The same text, options and seed produce the
same bytes. `--max_sentences` bounds the memory. The output folder appears only when it is complete;
rerunning a complete training does nothing.

    python -m data.train_tokenizer --corpus=text:'corpus/*.txt' --vocab_size=30000 \
        --output=artifacts/tokenizer

--extend keeps every piece and id of an existing vocabulary, and adds the characters that it lacks
and the words and parts of words that shorten the text most. Its normalization stays.

    python -m data.train_tokenizer --extend=albert-mini-en --new_pieces=4000 \
        --corpus=text:'corpus/*.txt' --output=artifacts/own_words
"""

import dataclasses
import io
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import sentencepiece

from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, between, one_of
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
from data.corpora.corpus import NumberedCorpus, corpus_fingerprint, read_documents, split_of
from data.corpora.glance import Glance, measured_flops_per_s
from data.corpora.options import CorpusOptions
from data.records import locations
from data.vocabulary.extending import extend, require_extensible
from data.vocabulary.sampling import released, sample

# Ids as in the published vocabulary: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, and the
# user-defined symbols 5 to 12.
CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
USER_DEFINED_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]
_MAX_SENTENCE_BYTES = 4192  # sentencepiece's default; it skips longer sentences
# Fixed, because sums are split over threads: their number changes the last digits.
_NUM_THREADS = 16
_NORMALIZE_AT_ONCE = 10_000
_SHOWN = 10  # new pieces
# Options that apply only without --extend, and only with it.
_OF_NEW_VOCABULARIES = (
    "vocab_size",
    "lowercase",
    "strip_accents",
    "unify_quotes",
    "character_coverage",
)
_OF_EXTENSIONS = ("extend", "new_pieces", "min_count")


@dataclasses.dataclass(frozen=True)
class TrainTokenizerOptions(CorpusOptions):
    """The command line of `data.train_tokenizer`."""

    output: str = commands.option("folder to create", path=True)
    vocab_size: int = commands.option("number of pieces", 30_000)
    extend: str | None = commands.option(
        "the sentencepiece vocabulary to extend: a tokenizer folder, run, included model or file",
        None,
        path=True,
    )
    new_pieces: Annotated[int, NOT_NEGATIVE] = commands.option(
        "with --extend: words and parts of words to add, besides unknown characters; 0 adds only "
        "these",
        4000,
        needs="extend",
    )
    min_count: Annotated[int, POSITIVE] = commands.option(
        "with --extend: occurrences in the text that a new piece or character needs",
        3,
        needs="extend",
    )
    lowercase: bool = commands.option("lowercase all text", True)
    strip_accents: bool = commands.option("NFKD without combining marks: é becomes e", True)
    unify_quotes: bool = commands.option("`` and '' become \"", False)
    fold_punctuation: bool = commands.option(
        "typographic quotes, dashes and bullets become ' \" - *", True
    )
    split: Annotated[str, one_of("all", "train", "heldout")] = commands.option(
        "documents to use, as in data.build: all, train or heldout", "all"
    )
    heldout_fraction: Annotated[float, between("(0, 1)")] = commands.option(
        "share of documents in the `heldout` split", 0.05
    )
    seed: int = commands.option("seed of the sample of max_sentences sentences", 0)
    max_sentences: Annotated[int, POSITIVE] = commands.option(
        "maximum number of sentences to train on; bounds the memory", 2_000_000
    )
    character_coverage: float = commands.option(
        "share of the text's characters that the vocabulary covers", 0.99995
    )

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
    old = _check(options)
    identity = _identity(options, old)
    if _is_complete(options.output, identity):
        print(f"{options.output} is already complete.")
        return 0
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return 0
    with outputs.new_folder(options.output) as folder:
        glance = Glance()
        sentences = _sentences(options, glance)
        start = time.monotonic()
        if old:
            done = _save_extension(old, released(sentences), options, identity, folder)
        else:
            model = train_model(released(sentences), options)
            Tokenizer(model, options.normalization, identity).save(folder)
            done = f"trained {options.vocab_size:,} pieces"
        seconds = time.monotonic() - start
    print(f"{done} in {seconds:.1f} s: {options.output}")
    if options.fold_punctuation:
        print("the model reads typographic quotes, dashes and bullets as ' \" - * (docs/data.md)")
    facts = glance.facts(load_tokenizer(options.output))
    print(f"\n{facts.table()}\n\n{facts.recommendation(measured_flops_per_s())}")
    return 0


def _sentences(options: TrainTokenizerOptions, glance: Glance) -> list[str]:
    """Return the sample of sentences of the split, whose documents `glance` sees."""
    documents = read_documents(*options.reading)
    if options.split != "all":
        share = options.heldout_fraction
        documents = (
            document for document in documents if split_of(document, share) == options.split
        )
    sentences = sample(glance.watched(documents), options.max_sentences, options.seed)
    if not sentences:
        raise InputError(
            f"--split={options.split} selects no document of --corpus={options.corpus!r} "
            f"(--heldout_fraction={options.heldout_fraction}). Change --heldout_fraction."
        )
    return sentences


def _save_extension(
    old: Tokenizer,
    sentences: Iterator[str],
    options: TrainTokenizerOptions,
    identity: dict[str, object],
    folder: str,
) -> str:
    """Extend `old`, write the result to the folder, and return a line about it."""
    new, added = extend(
        old, sentences, options.new_pieces, options.min_count, options.fold_punctuation
    )
    training = identity | {"added": settings.to_dict(added)}
    Tokenizer(new.model, new.normalization, training).save(folder)
    print(added.report())
    best = new.vocabulary.pieces[new.vocab_size - added.pieces :][:_SHOWN]
    print(f"new characters: {added.characters or 'none'}; new pieces: {' '.join(best) or 'none'}")
    return (
        f"added {len(added.characters):,} characters and {added.pieces:,} pieces to "
        f"{old.vocab_size:,}"
    )


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
            input_sentence_size=0,  # all, because `sample` has already sampled
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


def _check(options: TrainTokenizerOptions) -> Tokenizer | None:
    """Check the options; return the vocabulary of --extend."""
    locations.require_local(options.output, "--output")
    NumberedCorpus(*options.reading).require_text()
    if options.extend is not None:
        for name in _OF_NEW_VOCABULARIES:
            if (value := getattr(options, name)) != getattr(TrainTokenizerOptions, name):
                raise InputError(
                    f"--{name} does not apply to --extend, whose vocabulary has its own. "
                    f"Received: {value}. Leave it out."
                )
        return require_extensible(options.extend)
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
    return None


def _identity(options: TrainTokenizerOptions, old: Tokenizer | None) -> dict[str, object]:
    """Return the settings that determine the result, as stored in albert_tokenizer.json."""
    values = settings.to_dict(options)
    others = _OF_NEW_VOCABULARIES if old else _OF_EXTENSIONS
    splits = ("split", "heldout_fraction") if options.split == "all" else ()
    for name in ("output", "dry_run", "data_dir", *others, *splits):
        del values[name]
    values["corpus_fingerprint"] = corpus_fingerprint(options.corpus, options.data_dir)
    return values | ({"extend_fingerprint": old.fingerprint} if old else {})


def _is_complete(folder: str, identity: dict[str, object]) -> bool:
    if not os.path.isfile(os.path.join(folder, SETTINGS_FILE)):
        outputs.require_new(folder)
        return False
    training = load_tokenizer(folder).training
    if not training:
        outputs.require_new(folder)  # raises: not trained here, e.g. a published vocabulary
    # Informative only; fingerprints cover the content of the two paths.
    ignored = ("corpus", "extend", "added")
    training, expected = (
        {k: v for k, v in d.items() if k not in ignored} for d in (training, identity)
    )
    if differing := settings.differing_keys(training, expected):
        raise InputError(
            f"--output={folder} holds a tokenizer with other options ({'; '.join(differing)}). "
            "Name another folder."
        )
    return True


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
