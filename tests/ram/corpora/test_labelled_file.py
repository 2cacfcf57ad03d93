"""Labelled texts of a user's file: splits, formats and errors."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.labelled_file import LabelledFile

SPLITS = ("train", "validation", "test")


def _write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    return str(path)


def _numbered(**counts: int) -> list[str]:
    """Returns numbered lines of every class."""
    return [f"{label}\tthis is {label}{number}" for label, count in counts.items() for number in range(count)]


def _texts(*splits: Examples) -> list[set[tuple[str, ...]]]:
    return [set(split.texts) for split in splits]


def _load_as_test(path: Path, data: bytes, **options: object) -> Examples:
    """Loads a file as the test split."""
    path.write_bytes(data)
    train = _write(path.parent / "train.tsv", *_numbered(pos=3, neg=3))
    return LabelledFile(train, test_path=str(path), **options).load("test")  # type: ignore[arg-type]


def test_one_file_is_split_class_by_class(tmp_path: Path) -> None:
    corpus = LabelledFile(_write(tmp_path / "a.tsv", *_numbered(pos=20, neg=40)), validation_share=0.2, test_share=0.1)
    parts = [corpus.load(split) for split in SPLITS]
    assert [Counter(part.targets) for part in parts] == [
        {"pos": 14, "neg": 28},
        {"pos": 4, "neg": 8},
        {"pos": 2, "neg": 4},
    ]
    for part in parts:
        assert all(text[-1].startswith(label) for text, label in zip(part.texts, part.targets, strict=True))
    assert len(set.union(*_texts(*parts))) == 60, "the splits overlap or are incomplete"
    assert [corpus.load(split) for split in SPLITS] == parts


def test_splits_keep_the_order_of_the_file(tmp_path: Path) -> None:
    lines = _numbered(pos=20, neg=20)
    order = {line.split()[-1]: number for number, line in enumerate(lines)}
    for split in SPLITS:
        numbers = [order[text[-1]] for text in LabelledFile(_write(tmp_path / "a.tsv", *lines)).load(split).texts]
        assert numbers == sorted(numbers)


def test_rare_labels_are_in_training(tmp_path: Path) -> None:
    corpus = LabelledFile(_write(tmp_path / "a.tsv", *_numbered(pos=20, rare=2, single=1)))
    assert set(corpus.load("train").targets) == {"pos", "rare", "single"}


def test_files_of_validation_and_test_keep_training_whole(tmp_path: Path) -> None:
    corpus = LabelledFile(
        _write(tmp_path / "a.tsv", *_numbered(pos=10, neg=10)),
        validation_path=_write(tmp_path / "b.tsv", "pos\tone", "neg\ttwo"),
        test_path=_write(tmp_path / "c.tsv", "neg\tthree"),
    )
    assert len(corpus.load("train")) == 20
    assert corpus.load("validation") == Examples((("one",), ("two",)), ("pos", "neg"))
    assert corpus.load("test") == Examples((("three",),), ("neg",))


@pytest.mark.parametrize(("own", "held_out"), [("validation", "test"), ("test", "validation")])
def test_file_of_one_split_keeps_the_share_of_the_other(own: str, held_out: str, tmp_path: Path) -> None:
    corpus = LabelledFile(
        _write(tmp_path / "a.tsv", *_numbered(pos=10, neg=10)),
        **{f"{own}_path": _write(tmp_path / "b.tsv", "pos\tone"), f"{held_out}_share": 0.3},  # type: ignore[arg-type]
    )
    train, other = corpus.load("train"), corpus.load(held_out)  # type: ignore[arg-type]
    assert Counter(train.targets) == {"pos": 7, "neg": 7} and Counter(other.targets) == {"pos": 3, "neg": 3}
    assert set(train.texts).isdisjoint(other.texts)
    assert corpus.load(own).texts == (("one",),)  # type: ignore[arg-type]


def test_line_is_label_tab_and_text(tmp_path: Path) -> None:
    data = b"pos\tIt's Good,\treally!\n neg \t a  Bore \n"
    assert _load_as_test(tmp_path / "b.tsv", data) == Examples(
        (("it's", "good", ",", "really", "!"), ("a", "bore")), ("pos", "neg")
    )


def test_labels_are_arbitrary_strings(tmp_path: Path) -> None:
    lines = ["Very Good\tone", "très bon\ttwo", "0\tthree", "Very Good\tfour", "très bon\tfive", "0\tsix"]
    assert set(LabelledFile(_write(tmp_path / "a.tsv", *lines)).load("train").targets) == {"Very Good", "très bon", "0"}


def test_lower_false_keeps_capital_letters(tmp_path: Path) -> None:
    assert _load_as_test(tmp_path / "b.tsv", b"pos\tGood\n", lower=False).texts == (("Good",),)
    assert LabelledFile("a.tsv", lower=False).tokenize("Good") == ("Good",)
    assert LabelledFile("a.tsv").tokenize("Good") == ("good",)


@pytest.mark.parametrize(
    "data",
    [
        b"pos\tone\nneg\ttwo\n",
        b"pos\tone\nneg\ttwo",
        b"pos\tone\r\nneg\ttwo\r\n",
        b"\xef\xbb\xbfpos\tone\nneg\ttwo\n",
        b"\xef\xbb\xbfpos\tone\r\n\r\nneg\ttwo\r\n\r\n",
        b"\n\npos\tone\n   \n\t\nneg\ttwo\n\n",
        b"pos\t\x0cone\nneg\t\x0btwo\n",
        b"pos\tone\xe2\x80\xa8\nneg\t\xc2\x85two\n",
    ],
)
def test_byte_order_marks_line_ends_and_blank_lines_are_ignored(data: bytes, tmp_path: Path) -> None:
    expected = Examples((("one",), ("two",)), ("pos", "neg"))
    assert _load_as_test(tmp_path / "b.tsv", data) == expected
    assert _load_as_test(tmp_path / "b.tsv.gz", gzip.compress(data)) == expected


def test_path_may_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _write(tmp_path / "a.tsv", *_numbered(pos=10))
    assert len(LabelledFile("~/a.tsv").load("train")) == 8


# Errors


@pytest.mark.parametrize("line", ["good film", "pos good film", "\tgood film", "  \tgood film", "pos\t", "pos\t  \t"])
@pytest.mark.parametrize("option", ["path", "validation_path", "test_path"])
def test_lines_without_label_tab_or_text_are_refused_with_file_and_line(line: str, option: str, tmp_path: Path) -> None:
    files = {"path": _write(tmp_path / "a.tsv", "pos\tone", "neg\ttwo", "pos\tthree")}
    files[option] = _write(tmp_path / "invalid.tsv", "pos\tone", "", "neg\ttwo", line, "neg\tthree")
    split = {"path": "train"}.get(option, option.removesuffix("_path"))
    with pytest.raises(InputError, match=rf"{tmp_path / 'invalid.tsv'}, line 4: expected a label, a tab and a text"):
        LabelledFile(**files).load(split)  # type: ignore[arg-type]


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("label", ["Pos", "neutral", "1"])
def test_label_missing_in_training_is_refused_with_file_and_line(split: str, label: str, tmp_path: Path) -> None:
    train = _write(tmp_path / "a.tsv", *_numbered(pos=5, neg=5))
    other = _write(tmp_path / "b.tsv", "pos\tone", "", f"{label}\ttwo", "neg\tthree")
    corpus = LabelledFile(train, **{f"{split}_path": other})
    with pytest.raises(InputError, match=f"{other}, line 3: '{label}' is not a label of {train}"):
        corpus.load(split)  # type: ignore[arg-type]


def test_invalid_utf_8_is_refused_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{tmp_path / 'b.tsv'}, line 3: byte 0xe9 is not UTF-8"):
        _load_as_test(tmp_path / "b.tsv", b"pos\tone\n\nneg\tcaf\xe9\n")


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b" \n\t\n\r\n"])
def test_empty_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(data)
    with pytest.raises(InputError, match=f"{tmp_path / 'a.tsv'} is empty"):
        LabelledFile(str(tmp_path / "a.tsv")).load("train")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{tmp_path / 'a.tsv'} cannot be read"):
        LabelledFile(str(tmp_path / "a.tsv")).load("train")


def test_too_few_lines_for_all_splits_are_refused(tmp_path: Path) -> None:
    corpus = LabelledFile(_write(tmp_path / "a.tsv", "pos\tone", "neg\ttwo"))
    assert len(corpus.load("train")) == 2
    with pytest.raises(InputError, match=r"corpus\.validation_share"):
        corpus.load("validation")


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
@pytest.mark.parametrize("name", ["validation_share", "test_share"])
def test_invalid_shares_are_refused(name: str, share: float) -> None:
    with pytest.raises(InputError, match=rf"corpus\.{name}"):
        LabelledFile("a.tsv", **{name: share})  # type: ignore[arg-type]


def test_shares_without_training_examples_are_refused() -> None:
    with pytest.raises(InputError, match="must leave training examples"):
        LabelledFile("a.tsv", validation_share=0.5, test_share=0.5)
