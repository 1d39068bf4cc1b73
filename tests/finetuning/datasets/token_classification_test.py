"""Tests of token classification's files and scores, the latter against seqeval."""

import gzip
import json
import os
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.features import featurize_tokens
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.scores.entity_scores import counts_by_label, score_entities
from finetuning.datasets.tokens.conll_tags import example_of, spans_of, unbegun
from finetuning.datasets.tokens.token_files import Sentence, read_conll

TASK = DATASETS["token_classification"]
BYTES = '{"text": "Åse met Bo.", "entities": [{"start": 9, "end": 11, "label": "P", "%s": "Bo"}]}'
ONTONOTES = """#begin document (bc/cctv/00/cctv_0000); part 000
bc/cctv 0 0 Ann NNP (TOP(S(NP*) - - - - (PERSON) (ARG0*) (1)
bc/cctv 0 1 met VBD (VP* meet 01 1 - * (V*) -
bc/cctv 0 2 Bo NNP (NP*)))) - - - - (PERSON) (ARG1*) (2)

#end document
"""
CONLL = "-DOCSTART- O\n\nIn O\nNew B-place\nYork I-place\n. O\n\t\nAnn B-person\n"


def read(folder: pathlib.Path, train: str, dev: str | None = None, name="conll", **reading):
    (folder / f"train.{name}").write_text(train, encoding="utf-8")
    (folder / f"dev.{name}").write_text(train if dev is None else dev, encoding="utf-8")
    return TASK.read(Source(str(folder), reading=Reading(**reading)))


def entities(data) -> list[list[tuple[str, str]]]:
    return [
        [(example.text[begin:end], label) for begin, end, label in example.entities]
        for example in data.train
    ]


def test_conll_columns(tmp_path, capsys):
    data = read(tmp_path, CONLL)
    assert data.task == TokenSettings(("person", "place"))
    assert data.train == [
        TokenExample("In New York .", ((0, 2), (3, 6), (7, 11), (12, 13)), ((3, 11, "place"),)),
        TokenExample("Ann", ((0, 3),), ((0, 3, "person"),)),
    ]
    assert "train: 2 texts, 2 entities: person 1, place 1" in capsys.readouterr().out
    assert TASK.read_part(Source(str(tmp_path)), "dev", data.task) == data.dev["dev"]


@pytest.mark.parametrize(
    ("text", "reading", "wanted"),
    [
        # Chosen columns; a separator of its own; tokens that begin with #; a comment without tabs.
        ("a x B-A\nb y I-A\n", {"text_column": ("1",)}, [[("x y", "A")]]),
        ("B-A a z\nI-A b z\n", {"text_column": ("1",), "label_column": "0"}, [[("a b", "A")]]),
        ("a\tB-A\nb c\tI-A\n", {"column_separator": "\\t"}, [[("a b c", "A")]]),
        ("a   x B-A\nb y  I-A\n", {"column_separator": " "}, [[("a b", "A")]]),
        ("a B-A\nb\tI-A\nc O\n", {}, [[("a b", "A")]]),  # a stray tab
        ("a\tc x B-A\nb y  I-A \n", {"column_separator": " "}, [[("a\tc b", "A")]]),
        ("# id x\tdomain=d\na _ _ B-A\nb _ _ I-A\n", {}, [[("a b", "A")]]),
        ("#begin document (a);\na B-A\n-DOCSTART- O\nb I-A\n", {}, [[("a", "A")], [("b", "A")]]),
        ("a|B-A\nb c|I-A\n", {"column_separator": "|"}, [[("a b c", "A")]]),
        ("# a comment\n#\tB-A\n#b\tI-A\n", {}, [[("# #b", "A")]]),
        ("# id=0\na B-A\n\n# newdoc\n# B-A\n#x O\n", {}, [[("a", "A")], [("#", "A")]]),
        # BIOES, BILOU and IOB1: X after Y or after O begins an entity; S and E end one.
        ("a B-A\nb I-A\nc E-A\nd S-A\ne S-A\n", {}, [[("a b c", "A"), ("d", "A"), ("e", "A")]]),
        ("a B-A\nb L-A\nc U-B\nd U-B\n", {}, [[("a b", "A"), ("c", "B"), ("d", "B")]]),
        ("a I-A\nb I-A\nc O\nd I-B\ne B-B\n", {}, [[("a b", "A"), ("d", "B"), ("e", "B")]]),
        # No prefixes: with O, neighbors are one entity; without, each token has its own label.
        ("a A\nb A\nc O\nd B\n", {}, [[("a b", "A"), ("d", "B")]]),
        ("a N\nb N\nc S-V\n", {}, [[("a", "N"), ("b", "N"), ("c", "S-V")]]),
    ],
)
def test_forms_of_columns(tmp_path, text, reading, wanted):
    data = read(tmp_path, text, **reading)
    assert entities(data) == wanted
    is_words = "a N" in text
    assert data.task.scheme == ("words" if is_words else "bio")


@pytest.mark.parametrize(("given", "written"), [("", " "), ("", "\t"), (" ", "  "), ("\\t", "\t")])
def test_other_white_space_belongs_to_tokens(tmp_path, given, written):
    """Blank lines hold spaces and tabs only, also behind a byte order mark."""
    rows = "\ufeff\n10\xa0000 B-A\n\xa0 I-A\r\n \t\r\n\u3000 B-A\n".replace(" ", written)
    data = read(tmp_path, rows, column_separator=given)
    assert entities(data) == [[("10\xa0000 \xa0", "A")], [("\u3000", "A")]]


def test_the_first_tag_that_begins_an_entity_by_itself_is_named(tmp_path, capsys):
    read(tmp_path, "a B-A\nb I-A\n\nc O\nd I-A\ne I-B\n", "a B-A\nb I-A\n")
    printed = capsys.readouterr().err
    assert "train.conll:5: the first of 2 tags I-X or E-X that begin an entity" in printed
    assert "If your data is IOB2, correct them." in printed and "dev.conll:" not in printed


def test_a_long_file_without_blank_lines(tmp_path, capsys):
    read(tmp_path, "a B-A\n" * 101, "a B-A\n" * 100)
    (note,) = capsys.readouterr().err.splitlines()
    assert "train.conll is one sentence of 101 tokens. Put a blank line after each" in note


def test_parts_of_speech_and_conllu(tmp_path):
    rows = "# text = Ann isn't\n1\tAnn\tAnn\tPROPN\tNNP\n2-3\tisn't\t_\t_\t_\n"
    rows += "2\tis\tbe\tAUX\tVBZ\n3\tn't\tnot\tPART\tRB\n3.1\tx\t_\t_\t_\n"
    data = read(tmp_path, rows, name="conllu")
    assert entities(data) == [[("Ann", "PROPN"), ("is", "AUX"), ("n't", "PART")]]
    assert data.task == TokenSettings(("AUX", "PART", "PROPN"), "words")


def test_lines_are_those_of_the_file(tmp_path):
    """Also after a range and a comment inside of a sentence; `_` is no tag."""
    rows = "1\ta\t_\tN\n# x\n2-3\tbc\t_\t_\n2\tb\t_\t{}\n"
    with pytest.raises(InputError, match=r"dev.conllu:4: label 'V' does not occur"):
        read(tmp_path, rows.format("N"), rows.format("V"), name="conllu")
    (tmp_path / "test.conllu").write_text("1\ta\t_\t_\n")
    task = TokenSettings(("N",), "words")
    assert TASK.read_part(Source(str(tmp_path)), "test", task) == [TokenExample("a", ((0, 1),))]


def test_the_number_of_a_column_is_no_key(tmp_path):
    data = read(tmp_path, "x a B-A\n", text_column=("1",), label_column="2")
    (tmp_path / "test.jsonl").write_text('{"text": "a b", "entities": [[0, 1, "A"]]}')
    source = Source(str(tmp_path), reading=Reading(text_column=("1",), label_column="2"))
    assert TASK.read_part(source, "test", data.task)[0].entities == ((0, 1, "A"),)


def test_json_lines(tmp_path):
    rows = [
        {"text": "Ann met Bo.", "entities": [{"start": 0, "end": 4, "label": "P"}, [8, 10, "P"]]},
        {"text": "No one.", "entities": []},
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    data = read(tmp_path, text, name="jsonl")
    assert entities(data) == [[("Ann", "P"), ("Bo", "P")], []]  # without the space
    renamed = text.replace('"text"', '"body"').replace('"entities"', '"names"')
    again = read(tmp_path, renamed, name="jsonl", text_column=("body",), label_column="names")
    assert again.train == data.train
    (tmp_path / "test.jsonl").write_text('{"text": ""}\n{"text": "x"}')
    test = TASK.read_part(Source(str(tmp_path)), "test", data.task)
    assert test == [TokenExample(""), TokenExample("x")]


def test_spans_that_are_not_whole_words_are_counted(tmp_path, capsys):
    """Between Chinese characters, any place may be the end of a word."""
    spans = {"我爱北京。": [[2, 4]], "Åse met Bo.": [[0, 3], [9, 11]], "A B-c 😀": [[0, 2], [2, 3]]}
    rows = [
        {"text": text, "entities": [[*span, "A"] for span in found]}
        for text, found in spans.items()
    ]
    rows.append({"text": "Åse.", "spans": [{"start": 0, "end": 3, "label": "A", "text": "as e"}]})
    data = read(
        tmp_path, "\n".join(map(json.dumps, rows)), '{"text": "a", "entities": []}', "jsonl"
    )
    wanted = [["北京"], ["Åse", "o."], ["A", "B"], ["Åse"]]
    assert entities(data) == [[(text, "A") for text in each] for each in wanted]
    (note,) = capsys.readouterr().err.splitlines()
    assert "train.jsonl:2: the span [9, 11] is 'o.', the first of 2 spans that begin or end" in note


@pytest.mark.parametrize(
    ("name", "train", "message"),
    [
        ("conll", "a B-A\nb\n", "train.conll:2: 1 column, separated by spaces and tabs; most lin"),
        ("conll", "a B-A\nb c O\n", "train.conll:2: 3 columns, .*; most lines have 2"),
        ("conll", "a\n" + "b B-A\n" * 2, "train.conll:1: 1 column, .*; most lines have 2"),
        (
            "conll",
            "a\tO\n" * 2 + "b B-A\n",
            "conll:3: 1 column, separated by tabs; .* pass another --col",
        ),
        ("conll", "a\tB-A\n\tO\n", "train.conll:2: the token or its tag is empty"),
        ("conll", "a B-A\nb X-A\n", r"train.conll:2: every tag other than O must begin.*'X-A'"),
        (
            "conll",
            "1 a O\n2 b B-A\n\n1 c O\n",
            r"train.conll: .* Pass --text_column, .*column=1, or",
        ),
        ("conll", "5-6 a O\n5 b B-A\n\n7 c O\n", "Received: '5-6' and others, 3 of 3 with a digit"),
        ("conll", "1 a O\n3 b B-A\n\n2 c O\n", "hold words"),  # a gap
        ("conll", "doc_1 0 a O\ndoc_1 1 b B-A\n", "'doc_1' and others, 2 of 2 with a digit"),
        ("conll", "w a O\nw b B-A\nw c O\n\nx d O\nx e O\n", "3 of 3 that repeat the one"),
        ("conll", "1 a O\n1 b B-A\n\n2 c O\n", "hold words"),  # of sentences
        ("conll", "1 a O\n\n2 b B-A\n", "--text_column=0 if they are the words"),
        ("conll", "1 a O\n2 b B-A\n\n" * 10 + "x c O\n", "Received: .* 20 of 21 with a digit"),
        ("txt", "Sentence #,Word,POS,Tag\nSentence: 1,a,N,O\n,b,N,O\n", "Kaggle's table `Sent"),
        ("txt", '"Sentence #","Word","POS","Tag"\n"1","b","N","O"\n', "Kaggle's table `Sent"),
        ("conll", ONTONOTES, r"train.conll must .*columns of CoNLL-2012 .* as BIO"),
        ("conll", "d 0 0 Ann NNP - (3)\nd 0 1 met VBD - -\n", "columns of CoNLL-2012"),
        ("conll", "\n\t\n", "train.conll holds no tokens"),
        ("conll", "token tag\n\na A\nb O\n", "train.conll:1 must be a token, not a header"),
        ("conll", "a b-x\nb o\n", "train.conll:1: tags must have their prefix .* in capitals"),
        ("conll", "a O\nb A-B\n", "train.conll:2: tags must have their prefix in front.*'A-B'"),
        ("conll", "a B_A\nb O\n", "train.conll:1: tags must have their prefix in front.*'B_A'"),
        (
            "conll",
            "B-PER Ann\nO left\n",
            "hold words. Received: tags alone, such as 'B-PER'. Pass --t",
        ),
        ("conll", "a O\n", "must hold labeled spans. Received: none"),
        ("conll", "a\nb\n", "train.conll:1: every token of this part must have a tag"),
        ("jsonl", "\n", "train.jsonl holds no texts"),
        ("jsonl", '{"text": "a"}', "train.jsonl:1: every text of this part must have a list"),
        ("jsonl", "[]", "train.jsonl:1 must be a JSON object whose key `text`"),
        ("jsonl", '{"text": " ", "entities": []}', "train.jsonl:1 must be a JSON object"),
        ("jsonl", '{"text": "a", "entities": {}}', "train.jsonl:1: the spans must be a list"),
        ("jsonl", '{"text": "a", "entities": [[0, 2, "A"]]}', "between characters 0 and 1"),
        ("jsonl", '{"text": "a b", "entities": [[1, 2, "A"]]}', "cover text between"),
        ("jsonl", '{"text": "a", "entities": [[0, true, "A"]]}', r"must be \[start, end, label\]"),
        (
            "jsonl",
            BYTES % "text",
            r"jsonl:1: the span \[9, 11\] is 'o.', but its text is 'Bo'. Off",
        ),
        (
            "jsonl",
            BYTES % "word",
            r"jsonl:1: the span \[9, 11\] is 'o.', but its text is 'Bo'. Off",
        ),
        (
            "jsonl",
            '{"text": "abcd", "entities": [[0, 3, "A"], [2, 4, "B"]]}',
            r"train.jsonl:1: spans must not overlap. Received: \(0, 3, 'A'\) and \(2, 4, 'B'\)",
        ),
    ],
)
def test_mistakes_name_the_line(tmp_path, name, train, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, train, name=name)


@pytest.mark.parametrize(
    ("train", "reading"),
    [
        ("1 a O\n2 b B-A\n", {"text_column": ("0",)}),
        ("1984 B-A\n", {}),
        ("1 a O\n2 b B-A\n" * 9 + "x c O\n", {}),  # 18 of 19 are fewer than 95 %
        ("1 O\n2 B-A\n", {}),  # no other column can be the words
        ("no a O\nno b B-A\n", {}),
    ],
)
def test_integers_that_are_words(tmp_path, train: str, reading: dict):
    (word, *_), *_ = [line.split() for line in train.splitlines()]
    assert read(tmp_path, train, **reading).train[0].text.startswith(word)


def test_other_layouts_are_named(tmp_path):
    source = Source(str(tmp_path))
    (tmp_path / "ner.csv").write_bytes(
        "Sentence #,Word,POS,Tag\nSentence: 1,é,N,O".encode("latin-1")
    )
    with pytest.raises(InputError, match=r"ner.csv must .* Received: Kaggle's table .* as UTF-8"):
        TASK.read(source)
    (tmp_path / "ner.csv").unlink()
    os.mkfifo(tmp_path / "a.csv")  # is never waited for
    (tmp_path / "b.csv").write_bytes(b"\0binary")
    (tmp_path / "ner.csv.gz").write_bytes(gzip.compress(b'"Sentence #","Word","POS","Tag"\n'))
    with pytest.raises(InputError, match=r"ner.csv.gz must .* Received: Kaggle's table"):
        TASK.read(source)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.ann").write_text("T1\tA 0 1\ta\n")
    (tmp_path / "ner.csv.gz").unlink()
    with pytest.raises(InputError, match=r"'.*1\.ann', in brat's layout .* a JSON line with its"):
        TASK.read(source)
    (tmp_path / "train.txt").write_text("a\n")
    (tmp_path / "train.ann").write_text("")
    with pytest.raises(InputError, match=r"'.*train\.ann', in brat's layout"):
        TASK.read(source)


def test_offsets_in_utf_16_units(tmp_path, capsys):
    row = {"text": "😀😀 Ann met Bo.", "entities": [[5, 8, "PER"], [13, 15, "PER"]]}
    with pytest.raises(
        InputError, match=r"between characters 0 and 14. .* not bytes or UTF-16 units"
    ):
        read(tmp_path, json.dumps(row), name="jsonl")
    read(tmp_path, json.dumps(row | {"entities": [[5, 8, "PER"]]}), name="jsonl")
    assert "is 'n m', the first of" in (note := capsys.readouterr().err) and "UTF-16" in note


def test_rejected_lines_of_prodigy_are_left_out(tmp_path, capsys):
    row = {"text": "Ann", "spans": [{"start": 0, "end": 3, "label": "A"}], "answer": "accept"}
    other = row | {"text": "Bob", "answer": "reject"}
    data = read(tmp_path, f"{json.dumps(row)}\n{json.dumps(other)}", name="jsonl")
    assert entities(data) == [[("Ann", "A")]]
    assert "train.jsonl: 1 lines of Prodigy" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"must hold lines that were accepted\. Received: 1 lines"):
        read(tmp_path, json.dumps(other), name="jsonl")


def test_mistakes_of_options_and_of_other_parts(tmp_path):
    with pytest.raises(InputError, match="--label_column must be the number of a column"):
        read(tmp_path, CONLL, label_column="tag")
    with pytest.raises(InputError, match=r"train.conll:1 must have a column 7"):
        read(tmp_path, "a B-A\n", text_column=("7",))
    with pytest.raises(InputError, match=r"dev.conll:3: label 'B' does not occur.*has A"):
        read(tmp_path, "a B-A\n", "a B-A\nb O\nc B-B\n")
    with pytest.raises(InputError, match=r"dev.jsonl:1: label 'B' does not occur.*has A"):
        one = '{"text": "a", "entities": [[0, 1, "A"]]}'
        other = tmp_path / "other"
        other.mkdir()
        read(other, one, one.replace("A", "B"), name="jsonl")


def test_a_text_without_tokens_is_predicted_and_not_trained_on(tmp_path, small_tokenizer):
    rows = [
        {"id": number, "tokens": tokens, "ner_tags": ["B-A"] * len(tokens)}
        for number, tokens in enumerate((["a"], [], ["b"]))
    ]
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Source(str(tmp_path))
    data = TASK.read(source)
    assert [example.text for example in data.train] == ["a", "b"]
    examples = TASK.read_part(source, "test", data.task)
    assert [example.text for example in examples] == ["a", "", "b"]
    assert [example.id for example in examples] == [0, 1, 2]
    features = featurize_tokens(examples, small_tokenizer, data.task)
    assert features.num_examples == 3 and features.word_example.tolist() == [0, 2]
    answers = [{"entities": [], "tags": ["O"]}, {"entities": [], "tags": []}] * 2
    TASK.write_submission(str(tmp_path / "out"), answers[:3], examples)
    assert (tmp_path / "out").read_text() == "a\tO\n\n\nb\tO\n\n"


def test_a_dev_part_taken_from_training(tmp_path):
    rows = [f"t{number} B-A\n" for number in range(50)]
    (tmp_path / "train.bio.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    data = TASK.read(Source(str(tmp_path), reading=Reading(dev_fraction=0.2)))
    assert len(data.train) + len(data.dev["dev"]) == 50 and 3 < len(data.dev["dev"]) < 18
    limited = TASK.read(
        Source(str(tmp_path), reading=Reading(dev_fraction=0.2, max_train_examples=5))
    )
    assert len(limited.train) == 5 and limited.dev == data.dev


LABELS = st.sampled_from(["PER", "LOC"])
TAGS = st.lists(
    st.one_of(st.just("O"), st.tuples(st.sampled_from("BIES"), LABELS).map("-".join)), max_size=12
)


@settings(max_examples=300, deadline=None)
@given(TAGS)
def test_entities_are_seqeval_s(tags):
    wanted = [(begin, last + 1, label) for label, begin, last in get_entities(tags)]
    assert spans_of(tags, "prefixes") == wanted
    assert unbegun(tags) == [begin for begin, _, _ in wanted if tags[begin][0] in "IE"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(TAGS, st.randoms(use_true_random=False)), min_size=1, max_size=6))
def test_scores_are_seqeval_s(rows):
    """Whatever is predicted: micro averages of exact spans, read leniently (mode=None)."""
    true, given_tags = [], []
    for tags, random in rows:
        choices = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "S-LOC", "E-PER"]
        true.append(tags)
        given_tags.append([t if random.random() < 0.6 else random.choice(choices) for t in tags])
    examples, predictions = [], []
    for tags, other in zip(true, given_tags, strict=True):
        words = tuple(f"w{number}" for number in range(len(tags)))
        examples.append(_example(words, tags))
        spans = _example(words, other).entities
        predictions.append(
            {"entities": [{"start": b, "end": e, "label": label} for b, e, label in spans]}
        )
    scores = score_entities(predictions, examples)
    for name, reference in (
        ("f1", f1_score),
        ("precision", precision_score),
        ("recall", recall_score),
    ):
        wanted = reference(true, given_tags, zero_division=0)
        assert scores[name] == pytest.approx(float(wanted), abs=1e-12)
    counts = counts_by_label(predictions, examples)
    for label, each in counts.items():
        assert each.true == sum(name == label for name, *_ in get_entities(true))


def _example(words, tags) -> TokenExample:
    if not words:
        return TokenExample("", (), ())
    return example_of(Sentence((1,) * len(words), words, tuple(tags)), "prefixes")


def test_scores_by_hand():
    example = TokenExample("a b c d", None, ((0, 1, "A"), (2, 5, "B")))
    found = [(0, 1, "A"), (2, 3, "B"), (6, 7, "A")]
    prediction = {"entities": [{"start": b, "end": e, "label": label} for b, e, label in found]}
    scores = score_entities([prediction], [example])
    assert scores == {"f1": 2 / 5, "precision": 1 / 3, "recall": 1 / 2}
    counts = counts_by_label([prediction], [example])
    assert counts["A"] == (1, 2, 1) and counts["B"] == (0, 1, 1)
    nothing = TokenExample("a", None, ())
    assert score_entities([{"entities": []}], [nothing]) == dict.fromkeys(scores, 0.0)
    with pytest.raises(InputError, match="Example 0 has none"):
        score_entities([prediction], [TokenExample("a")])


def test_a_submission_is_read_again(tmp_path):
    data = read(tmp_path, CONLL)
    predictions = [
        {"entities": [], "tags": ["O", "B-place", "I-place", "O"]},
        {"entities": [], "tags": ["B-person"]},
    ]
    TASK.write_submission(str(tmp_path / "test.conll"), predictions, data.train)
    assert TASK.read_part(Source(str(tmp_path)), "test", data.task) == data.train
    path = tmp_path / "out.jsonl"
    spans = [{"label": "A", "text": "x", "start": 0, "end": 1, "score": 0.5}]
    TASK.write_submission(str(path), [{"entities": spans}], [TokenExample("x")])
    assert json.loads(path.read_text()) == {"text": "x", "entities": spans}


def test_wnut(shared_data):
    """The published numbers of sentences, tokens and entities (README beside the files)."""
    folder = shared_data / "ner" / "wnut17"
    parts = {"train.conll.gz": (3394, 62730, 1975), "dev.conll": (1009, 15733, 836)}
    for part, wanted in parts.items():
        sentences = read_conll(str(folder / part), Reading())
        tokens = sum(len(sentence.tokens) for sentence in sentences)
        spans = sum(len(spans_of(sentence.tags, "prefixes")) for sentence in sentences)
        assert (len(sentences), tokens, spans) == wanted
