"""Tests of Unicode's normal forms, also of runs of marks that no person writes, in both tokenizers.

Sorted by insertion, as in the libraries, the long ones take minutes.
"""

import random
import sys
import unicodedata

import pytest
import tensorflow as tf

from albert_tf.text.graph_tokenizer import normalize_in_graph, split_words_in_graph
from albert_tf.text.normalization import Normalization, normal_form, normalize
from albert_tf.text.wordpiece import split_words

FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1)]
# What begins with a combining character in one of the forms, and all that changes in one.
COMBINING = [c for c in CHARACTERS if unicodedata.combining(unicodedata.normalize("NFKD", c)[0])]
CHANGING = [c for c in CHARACTERS if unicodedata.decomposition(c)]
POOLS = [
    COMBINING,
    [*COMBINING, *"\u034f\u0903\u200d🙂中e"],
    [*"\u0300\u0327\u0344\u0f71\u0f73\u0f75\u0f81\u3099\uff9e\uff9f\U0001d165\U0001d16d"],
    [*COMBINING, *CHANGING],
]
MANY = 300_000


@pytest.mark.parametrize("form", FORMS)
def test_normal_forms_are_those_of_python(form):
    rng = random.Random(0)
    texts = ["".join(f"a{c}\u0327{c}\u0300b" for c in COMBINING + CHANGING), "".join(CHANGING)]
    for _ in range(300):
        runs = ["".join(rng.choices(rng.choice(POOLS), k=rng.randrange(90))) for _ in range(3)]
        texts.append(rng.choice("aé中가 \n").join(runs))
    for text in texts:
        assert normal_form(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize(
    ("form", "marks", "wanted"),
    [
        ("NFC", "\u0300\u0327", "à" + "\u0327" * MANY + "\u0300" * (MANY - 1)),
        ("NFD", "\u0f73", "a" + "\u0f71" * MANY + "\u0f72" * MANY),
        ("NFKC", "\u0300\uff9e", "à" + "\u3099" * MANY + "\u0300" * (MANY - 1)),
        ("NFKD", "\U0001d16d\U0001d165", "a" + "\U0001d165" * MANY + "\U0001d16d" * MANY),
    ],
)
def test_many_marks_in_the_wrong_order(form, marks, wanted):
    assert normal_form(form, "a" + marks * MANY) == wanted


@pytest.mark.parametrize(("category", "longest"), [("Mn", 90), ("", 30)])
def test_the_graph_agrees_on_random_marks(category, longest):
    known = unicodedata.ucd_3_2_0.category  # so old that tensorflow_text has the same
    pool = [
        c for c in COMBINING if known(c) != "Cn" and unicodedata.category(c).startswith(category)
    ]
    rng = random.Random(0)
    texts = ["".join(rng.choices(pool, k=rng.randrange(longest))) + "b c" for _ in range(300)]
    texts += [f"a{c}\u0327{c}\u0300b" for c in pool]
    rules = Normalization()
    normal = normalize_in_graph(tf.constant(texts), rules).numpy()
    assert [text.decode() for text in normal] == normalize(texts, rules)
    words = split_words_in_graph(tf.constant(texts), rules).to_list()
    assert [[word.decode() for word in row] for row in words] == split_words(texts, rules)


def test_tokenizers_drop_many_marks():
    rules = Normalization()
    text = "a" + "\u0300\u0327\u0f73\uff9e" * MANY + "b c"
    assert normalize([text, "d"], rules) == ["ab c", "d"]
    assert normalize_in_graph(tf.constant([text, "d"]), rules).numpy().tolist() == [b"ab c", b"d"]
    text = text.replace("\uff9e", "")  # a letter to BERT
    assert split_words([text, "d"], rules) == [["ab", "c"], ["d"]]
    words = split_words_in_graph(tf.constant([text, "d"]), rules)
    assert words.to_list() == [[b"ab", b"c"], [b"d"]]


def test_bert_keeps_many_marks_that_take_space():
    text = "a" + "\U0001d16d\U0001d165" * MANY
    words = split_words_in_graph(tf.constant([text]), Normalization()).to_list()
    assert sorted(words[0][0].decode()) == sorted(text)
