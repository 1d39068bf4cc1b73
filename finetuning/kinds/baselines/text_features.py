"""TF-IDF features of texts and of pairs of texts."""

from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.tasks.examples import TextExample
from albert_tf.text.words import folded, word


def features_of(train: Sequence[TextExample], test: Sequence[TextExample]) -> tuple[Any, Any]:
    """Return the features of both parts, sparse [examples, features].

    Words and their rarity are those of the training texts. A pair of texts has the features of
    each, their products and absolute differences, and its cosine.
    """
    from scipy.sparse import csr_matrix, hstack

    texts = [text for example in train for text in example.texts if text]
    vectors = tf_idf(texts)

    def features(examples: Sequence[TextExample]) -> Any:
        a = vectors([example.first for example in examples])
        if examples[0].second is None:
            return a
        b = vectors([example.second for example in examples])
        products = a.multiply(b).tocsr()
        cosine = csr_matrix(products.sum(axis=1))
        return hstack([a, b, products, abs(a - b), cosine]).tocsr()

    return features(train), features(test)


def tf_idf(training: Sequence[str]) -> Callable[[Sequence[str]], Any]:
    """Return a function from texts to sparse TF-IDF vectors [texts, words] of length 1.

    Counts are logarithmic; words and their rarity are those of the training texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    tokens = rf"{word().pattern}|\S"  # words of any length, and punctuation marks
    return (
        TfidfVectorizer(sublinear_tf=True, preprocessor=folded, token_pattern=tokens)
        .fit(training)
        .transform
    )
