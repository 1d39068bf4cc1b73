"""Tests of Chinese scores and CMRC 2018's layout: by hand, against the scorer's rules, on files."""

import gzip
import json
import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import featurize_spans
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.text.tokenizer import Normalization, Tokenizer
from finetuning import predict, train
from finetuning.datasets.dataset import Source
from finetuning.datasets.scores.cmrc_metrics import is_chinese, units, words
from finetuning.datasets.scores.squad_metrics import CMRC, score_answer, scorer_of
from finetuning.datasets.scores.squad_metrics import SQUAD as WORDS
from finetuning.datasets.spans.squad import SQUAD
from finetuning.datasets.spans.squad_reader import questions_of

ONE, TWO = SQUAD["squad1"], SQUAD["squad2"]
CONTEXT = "游戏由韩国Nexon开发与发行。"


def scored(text: str, *answers: str, answerable: bool = False) -> tuple[float, float]:
    example = SpanExample("？", CONTEXT, answers=tuple((0, each) for each in answers))
    return score_answer(text, example, answerable)


@pytest.mark.parametrize(
    ("text", "answers", "wanted"),
    [
        ("韩国", ["韩国"], (1, 1)),
        ("《韩国》。", ["韩国"], (1, 1)),  # without punctuation
        ("由韩国", ["韩国"], (0, 0.8)),  # precision 2/3, recall 1
        ("韩国", ["国韩"], (0, 0.5)),  # the longest run is one character
        ("开发发行", ["开发与发行"], (0, 4 / 9)),  # two of four, of five: not four
        ("韩国 NEXON", ["韩国nexon"], (0, 1)),  # lower case; the space tells for the exact match
        ("nexon", ["韩国Nexon"], (0, 0.5)),  # one unit of three
        ("nex", ["nexon"], (0, 0)),
        ("1,000年", ["1,000年"], (1, 1)),
        ("日本", ["韩国", "日本国"], (0, 0.8)),  # the best annotator
        ("the 韩国", ["韩国"], (0, 0.8)),  # articles count
        ("", ["韩国"], (0, 0)),
        ("。", ["，"], (1, 0)),
    ],
)
def test_scores_by_hand(text, answers, wanted):
    assert scored(text, *answers) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("text", "answers", "wanted"),
    [("", [], 1), ("韩", [], 0), ("", ["韩"], 0), ("。", ["！"], 1), ("韩", ["韩", "。"], 1)],
)
def test_questions_that_may_have_no_answer(text, answers, wanted):
    """As of SQuAD 2.0: an annotation without a unit counts as none."""
    assert scored(text, *answers, answerable=True) == (wanted, wanted)


# As nltk 3.9.1 cuts them.
WORDS_OF_NLTK = {
    "2v2": "2v2",
    "1,000": "1,000",
    "3.5%": "3.5 %",
    "$1.5": "$ 1.5",
    "u.s.": "u.s .",
    "(1546)": "( 1546 )",
    " queen sirikit park ": "queen sirikit park",
    "a,b": "a , b",
    "windows 98, xp": "windows 98 , xp",
    "e.g. this": "e.g. this",
    "3, 4 5": "3 , 4 5",
    '"macropus eugenii"': "`` macropus eugenii ''",
    '("abc")': "( `` abc '' )",
    "it's": "it 's",
    "don't": "do n't",
    "dogs' ": "dogs '",
    "at&t": "at & t",
    "c#": "c #",
    "...": "...",
    "v2.0.": "v2.0 .",
    "end.)": "end . )",
    "a....b": "a .... b",
    "……": "……",
    "——": "——",
    "100%": "100 %",
    "a;b": "a ; b",
    "x!?": "x ! ?",
    "[1] <2>": "[ 1 ] < 2 >",
    " ": "",
}


def test_words_are_those_of_nltk():
    assert {text: " ".join(words(text)) for text in WORDS_OF_NLTK} == WORDS_OF_NLTK


def reference_units(text: str) -> list[str]:
    """The rule, character by character, for runs of letters, digits, brackets and spaces."""
    found, run = [], ""
    for character in [*text.lower().strip(), "一"]:  # the last ends the last run
        if character in "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』":
            continue
        if "\u4e00" <= character <= "\u9fa5":
            found += re.findall(r"[()%]|[^()%\s]+", run) + [character]
            run = ""
        else:
            run += character
    return found[:-1]


def reference_f1(text: str, answer: str) -> float:
    one, two = reference_units(text), reference_units(answer)
    runs = {tuple(one[i:j]) for i in range(len(one)) for j in range(i + 1, len(one) + 1)}
    same = [run for run in runs if run in {tuple(two[i : i + len(run)]) for i in range(len(two))}]
    longest = max(map(len, same), default=0)
    # 2 p r / (p + r) with p = n / a and r = n / b
    return 2 * longest / (len(one) + len(two)) if longest else 0.0


TEXT = st.text(alphabet="中国人龥一鿿〇あAbé12%() -_/:，。！、“”’《》…—", max_size=14)


@settings(max_examples=100, deadline=None)
@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_scores_by_the_rule(text, answers):
    exact, f1 = scored(text, *answers)
    assert units(text) == reference_units(text)
    assert f1 == pytest.approx(max(reference_f1(text, answer) for answer in answers))
    kept = [re.sub(r"[-_/:，。！、“”’《》]", "", each.lower().strip()) for each in [text, *answers]]
    assert exact == (kept[0] in kept[1:])


def test_the_context_tells_the_scorer():
    contexts = {
        CONTEXT: True,
        "Nexon": False,
        "": False,
        "1999年": True,
        "ここに日本語の文がある。": False,
        "東京都千代田区永田町一丁目に国会議事堂がある。": False,
        "游戏以战国时代为舞台，日文名为「の」。": True,
        "한국어 中文": False,
        "The word 中国 means China.": False,
        "让-皮埃尔（Jean-Pierre Balligand），法国政治家": True,
    }
    assert {text: is_chinese(text) for text in contexts} == contexts
    for text, chinese in contexts.items():
        assert scorer_of(SpanExample("中国？", text)) is (CMRC if chinese else WORDS)


@pytest.mark.parametrize(("language", "chinese"), [("en", 0), ("de", 0), ("zh", 1190)])
def test_xquad_gold_answers(shared_data, language, chinese):
    examples = list(questions_of(str(shared_data / "squad" / f"xquad.{language}.json.gz")))
    assert sum(scorer_of(example) is CMRC for example in examples) == chinese
    predictions = [{"answer": example.answers[0][1]} for example in examples]
    assert ONE.score(predictions, examples) == {"f1": 1.0, "exact_match": 1.0}
    half = [{"answer": example.answers[0][1][:-1]} for example in examples]
    whole = ONE.score(half, examples)["f1"]
    parts = [ONE.score([one], [example])["f1"] for one, example in zip(half, examples, strict=True)]
    assert whole == pytest.approx(sum(parts) / len(parts)) and whole < 1


def test_xquad_zh_by_the_rule(shared_data):
    """Answers that overlap the gold ones at either end, without marks that part words."""
    scores = []
    for number, example in enumerate(questions_of(str(shared_data / "squad" / "xquad.zh.json.gz"))):
        start, gold = example.answers[0]
        text = example.context[max(start - number % 4, 0) : start + len(gold) - number % 3]
        if not re.search(r"""["',.;&#$?!\[]""", text + gold):
            _, f1 = score_answer(text, example, answerable=False)
            assert f1 == pytest.approx(reference_f1(text, gold)), (text, gold)
            scores.append(f1)
    assert len(scores) > 1000 and 0.5 < sum(scores) / len(scores) < 0.95


def passage(*questions: tuple, context: object = CONTEXT) -> dict:
    qas = [
        {"query_id": name, "query_text": "由谁开发？", "answers": answers}
        for name, answers in questions
    ]
    return {"context_id": "C", "context_text": context, "title": "t", "qas": qas}


GOOD = [
    passage(("q1", ["韩国Nexon"]), ("q2", ["Nexon", "韩国Nexon"])),
    passage(("q3", ["美国"]), ("q4", ["发"])),
]


def write(folder: pathlib.Path, train: object, dev: object = GOOD) -> Source:
    (folder / "train.json").write_text(json.dumps(train), encoding="utf-8")
    (folder / "dev.json.gz").write_bytes(gzip.compress(json.dumps(dev).encode()))
    return Source(str(folder))


@pytest.mark.parametrize("task", [ONE, TWO])
def test_a_folder_in_cmrc_s_layout(tmp_path, capsys, task):
    data = task.read(write(tmp_path, GOOD))
    assert data.dev["dev"] == [
        SpanExample("由谁开发？", CONTEXT, "q1", ((3, "韩国Nexon"),)),
        SpanExample("由谁开发？", CONTEXT, "q2", ((5, "Nexon"), (3, "韩国Nexon"))),
        SpanExample("由谁开发？", CONTEXT, "q3", ((-1, "美国"),)),
        SpanExample("由谁开发？", CONTEXT, "q4", ((11, "发"),)),  # the first of two
    ]
    assert [example.id for example in data.train] == ["q1", "q2", "q4"]
    assert "4 questions, 1 dropped" in (said := capsys.readouterr().out) and "'q3'" in said


def test_dev_answers_out_of_the_context_count(tmp_path):
    """Three right of four; the fourth is told as one that no window holds."""
    examples = ONE.read(write(tmp_path, GOOD)).dev["dev"]
    predictions = [{"answer": example.answers[0][1]} for example in examples]
    predictions[2]["answer"] = "韩国"  # one of two characters of "美国"
    scores = ONE.score(predictions, examples)
    assert scores == {"f1": 3.5 / 4, "exact_match": 3 / 4}
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(CONTEXT)), "nexon"]
    tokenizer = Tokenizer("\n".join(pieces).encode(), Normalization())
    features = featurize_spans(examples, tokenizer, SpanSettings(seq_length=32))
    assert (features.lost, features.undecodable) == ((2,), (2,))


def test_a_part_without_answers_and_its_submission(tmp_path):
    (tmp_path / "test.json").write_text(json.dumps([passage(("q1", [])), passage(("q2", []))]))
    examples = ONE.read_part(Source(str(tmp_path)), "test", SpanSettings())
    assert [(example.id, example.answers) for example in examples] == [("q1", ()), ("q2", ())]
    predictions = [{"answer": text, "n_best": []} for text in ("韩国", "开发")]
    ONE.write_submission(str(tmp_path / "out.json"), predictions, examples)
    assert json.loads((tmp_path / "out.json").read_text()) == {"q1": "韩国", "q2": "开发"}


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ([passage(("q1", ["美国"]))], ("'q1'", "must be in the context")),
        ([passage(("q1", []))], ("'q1'", "must have an answer")),
        ([passage(("q1", ["发"]), ("q1", ["发"]))], ("2 questions with id 'q1'",)),
        ([passage(("q1", ["发"])), passage(("q2", [{"text": "发"}]))], ("[1].qas[0]", "{'text'")),
        ([passage(("q1", "发"))], ("`answers` '发'", "[0].qas[0]")),
        ([passage((None, ["发"]))], ("`query_id` None", "[0].qas[0]")),
        ([passage(("q1", ["发"]), context=" ")], ("`context_text` is empty", "[0]")),
        ([passage(context=None)], ("`context_text` None", "[0]")),
        ([{"context_text": "x"}], ("no `qas` at [0]", "CMRC's layout")),
        (["x"], ("'x' at [0]", "CMRC's layout", "query_text")),
        ([], ("no questions",)),
        ("x", ("'x' at the top", "SQuAD's layout")),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, train, words):
    with pytest.raises(InputError) as error:
        ONE.read(write(tmp_path, train))
    assert all(word in str(error.value) for word in (*words, "train.json")), error.value
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_run_on_it_and_its_submission(start: str, tmp_path):
    source = write(tmp_path, GOOD)
    (tmp_path / "test.json").write_text(json.dumps([passage(("q7", []), ("q8", []))]))
    run = str(tmp_path / "run")
    train.main(
        train.FinetuneOptions(
            "squad1",
            run,
            source.data_dir,
            init=start,
            recipe="none",
            set=("training.steps=2", "task.seq_length=32", "task.query_length=8"),
        )
    )
    result = RunDir(run).result()
    assert (result["train_examples"], result["dev_examples"]) == (3, 4)
    path = tmp_path / "out" / "answers.json"
    path.parent.mkdir()
    predict.main(
        predict.PredictOptions(
            run,
            data_dir=source.data_dir,
            part="test",
            submission=str(path),
        )
    )
    answers = json.loads(path.read_text())
    assert set(answers) == {"q7", "q8"} and all(text in CONTEXT for text in answers.values())
