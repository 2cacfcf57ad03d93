"""Sequence pairs of a user's files: formats, splits and errors."""

import gzip
from pathlib import Path

import pytest

from envs.errors import InputError
from ram.corpora import Examples, tokenize_reversibly
from ram.corpora.parallel_files import ParallelFiles, read_pairs
from ram.corpora.spacing import detokenize

SPLITS = ("train", "validation", "test")


def _write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    return str(path)


def _numbered(folder: Path, count: int) -> dict[str, str]:
    """Writes two files of ``count`` numbered lines."""
    return {
        "source": _write(folder / "a.de", *(f"Satz {number}" for number in range(count))),
        "target": _write(folder / "a.en", *(f"Sentence {number}" for number in range(count))),
    }


def _pair(folder: Path, source: bytes, target: bytes, suffix: str = "") -> Examples:
    """Reads two files with the given bytes."""
    paths = []
    for name, data in [("b.de", source), ("b.en", target)]:
        paths.append(folder / (name + suffix))
        paths[-1].write_bytes(gzip.compress(data) if suffix == ".gz" else data)
    return read_pairs(paths[0], paths[1], tokenize_reversibly, lower=True)


def test_detokenized_targets_are_the_references(tmp_path: Path) -> None:
    lines = ["It\u2019s 3.5 km.", 'He says "no", "yes" and (at 10:30) 1,000 words...', "Cafe\u0301?"]
    examples = _pair(tmp_path, b"a\nb\nc\n", "\n".join(lines).encode())
    assert examples.references is not None and examples.targets is not None
    assert tuple((detokenize(target),) for target in examples.targets) == examples.references
    assert examples.references[0] == ("it's 3.5 km.",)


def test_lines_are_paired_and_the_target_line_is_the_reference(tmp_path: Path) -> None:
    examples = _pair(tmp_path, "Zwei Hunde, müde.\nDie Katze\n".encode(), b"  Two dogs, tired.\nThe Cat \n")
    assert examples == Examples(
        (("zwei", "hunde", ",", "müde", "."), ("die", "katze")),
        (("two", "dogs", ",", "tired", "."), ("the", "cat")),
        (("two dogs, tired.",), ("the cat",)),
    )


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (b"eins\nzwei\n", b"one\ntwo\n"),
        (b"eins\nzwei", b"one\ntwo\n"),
        (b"eins\r\nzwei\r\n", b"one\ntwo"),
        (b"\xef\xbb\xbfeins\nzwei\n", b"\xef\xbb\xbfone\r\ntwo\r\n"),
        (b"eins\xe2\x80\xa8\nzwei\x0c\n", b"one\n\xc2\x85two\n"),
    ],
)
def test_byte_order_marks_and_line_ends_are_ignored(source: bytes, target: bytes, suffix: str, tmp_path: Path) -> None:
    examples = _pair(tmp_path, source, target, suffix)
    assert examples == Examples((("eins",), ("zwei",)), (("one",), ("two",)), (("one",), ("two",)))


def test_pairs_with_a_blank_line_are_skipped(tmp_path: Path) -> None:
    examples = _pair(tmp_path, b"eins\n\nzwei\n \t\ndrei\nvier\n", b"one\n-\n\ntwo\n  \nfour\n")
    assert examples == Examples((("eins",), ("vier",)), (("one",), ("four",)), (("one",), ("four",)))


def test_one_pair_of_files_is_split(tmp_path: Path) -> None:
    corpus = ParallelFiles(**_numbered(tmp_path, 50), validation_share=0.2, test_share=0.1)
    parts = [corpus.load(split) for split in SPLITS]  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [35, 10, 5]
    for part in parts:
        assert part.targets is not None and part.references is not None
        numbers = [int(text[1]) for text in part.texts]
        assert numbers == sorted(numbers), "the order of the file is changed"
        assert [target[1] for target in part.targets] == [text[1] for text in part.texts]
        assert [reference for (reference,) in part.references] == [f"sentence {number}" for number in numbers]
    assert len({text for part in parts for text in part.texts}) == 50, "the splits overlap or are incomplete"
    assert [corpus.load(split) for split in SPLITS] == parts  # type: ignore[arg-type]


def test_files_of_validation_and_test_keep_training_whole(tmp_path: Path) -> None:
    corpus = ParallelFiles(
        **_numbered(tmp_path, 10),
        validation_source=_write(tmp_path / "v.de", "eins"),
        validation_target=_write(tmp_path / "v.en", "one"),
        test_source=_write(tmp_path / "t.de", "zwei"),
        test_target=_write(tmp_path / "t.en", "two"),
    )
    assert len(corpus.load("train")) == 10
    assert corpus.load("validation") == Examples((("eins",),), (("one",),), (("one",),))
    assert corpus.load("test") == Examples((("zwei",),), (("two",),), (("two",),))


@pytest.mark.parametrize(("own", "held_out"), [("validation", "test"), ("test", "validation")])
def test_files_of_one_split_keep_the_share_of_the_other(own: str, held_out: str, tmp_path: Path) -> None:
    more = {f"{own}_source": _write(tmp_path / "o.de", "eins"), f"{own}_target": _write(tmp_path / "o.en", "one")}
    corpus = ParallelFiles(**_numbered(tmp_path, 20), **more, **{f"{held_out}_share": 0.3})  # type: ignore[arg-type]
    train, other = corpus.load("train"), corpus.load(held_out)  # type: ignore[arg-type]
    assert (len(train), len(other)) == (14, 6)
    assert set(train.texts).isdisjoint(other.texts)
    assert corpus.load(own).texts == (("eins",),)  # type: ignore[arg-type]


def test_lower_false_keeps_capital_letters(tmp_path: Path) -> None:
    paths = _write(tmp_path / "a.de", *["Der Hund"] * 5), _write(tmp_path / "a.en", *["The Dog"] * 5)
    corpus = ParallelFiles(*paths, validation_share=0.2, test_share=0.2, lower=False)
    examples = corpus.load("train")
    assert examples.texts[0] == ("Der", "Hund") and examples.targets is not None
    assert examples.targets[0] == ("The", "Dog") and examples.references == (("The Dog",),) * 3
    assert corpus.tokenize("Der Hund!") == ("Der", "Hund", "!")
    assert ParallelFiles("a", "b").tokenize("Der Hund!") == ("der", "hund", "!")
    assert corpus.detokenize(("The", "Dog", "!")) == "The Dog!"


def test_paths_may_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _numbered(tmp_path, 10)
    assert len(ParallelFiles("~/a.de", "~/a.en").load("train")) == 8
    own = ParallelFiles("~/a.de", "~/a.en", test_source="~/a.de", test_target="~/a.en")
    assert len(own.load("test")) == 10


# Errors


@pytest.mark.parametrize(("more", "fewer"), [(b"eins\nzwei\ndrei\n", b"one\ntwo\n"), (b"eins\n\n", b"one\n")])
def test_different_numbers_of_lines_are_refused_with_both_files(more: bytes, fewer: bytes, tmp_path: Path) -> None:
    counts = [len(data.splitlines()) for data in (more, fewer)]
    with pytest.raises(
        InputError, match=rf"^{tmp_path}/b\.de has {counts[0]} lines and {tmp_path}/b\.en has {counts[1]}: "
    ):
        _pair(tmp_path, more, fewer)
    with pytest.raises(
        InputError, match=rf"^{tmp_path}/b\.de has {counts[1]} lines and {tmp_path}/b\.en has {counts[0]}: "
    ):
        _pair(tmp_path, fewer, more)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_invalid_utf_8_is_refused_with_file_and_line(suffix: str, tmp_path: Path) -> None:
    valid, invalid = b"one\n\nthree\n", b"fine\n\ncaf\xe9\n"
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.de{suffix}, line 3: byte 0xe9 is not UTF-8"):
        _pair(tmp_path, invalid, valid, suffix)
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.en{suffix}, line 3: byte 0xe9 is not UTF-8"):
        _pair(tmp_path, valid, invalid, suffix)


@pytest.mark.parametrize(("source", "target"), [(b"", b""), (b"\n \n", b"one\ntwo\n"), (b"eins\n\n", b"\ntwo\n")])
def test_files_without_a_pair_are_refused(source: bytes, target: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.de and {tmp_path}/b\.en have no pair of lines with text"):
        _pair(tmp_path, source, target)


@pytest.mark.parametrize("missing", ["source", "target"])
def test_missing_file_is_refused(missing: str, tmp_path: Path) -> None:
    files = _numbered(tmp_path, 10) | {missing: str(tmp_path / "nowhere")}
    with pytest.raises(InputError, match=rf"^{tmp_path}/nowhere cannot be read"):
        ParallelFiles(**files).load("train")  # type: ignore[arg-type]


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_one_path_without_the_other_is_refused(split: str, side: str) -> None:
    message = rf"^corpus\.{split}_source and corpus\.{split}_target go together: give both or neither\.$"
    with pytest.raises(InputError, match=message):
        ParallelFiles("a", "b", **{f"{split}_{side}": "c"})  # type: ignore[arg-type]


def test_too_few_lines_for_all_splits_are_refused(tmp_path: Path) -> None:
    corpus = ParallelFiles(**_numbered(tmp_path, 2))
    assert len(corpus.load("train")) == len(corpus.load("test")) == 1
    with pytest.raises(InputError, match=r"^The validation split would be empty: 2 examples are too few to divide by"):
        corpus.load("validation")


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
@pytest.mark.parametrize("name", ["validation_share", "test_share"])
def test_invalid_shares_are_refused(name: str, share: float) -> None:
    with pytest.raises(InputError, match=rf"^corpus\.{name} must be between 0 and 1, got {share}"):
        ParallelFiles("a", "b", **{name: share})  # type: ignore[arg-type]


def test_shares_without_training_examples_are_refused() -> None:
    with pytest.raises(InputError, match="must leave training examples"):
        ParallelFiles("a", "b", validation_share=0.5, test_share=0.5)


def test_letters_are_tokens_of_languages_without_spaces(tmp_path: Path) -> None:
    paths = _write(tmp_path / "a.ja", *["彼は 犬だ。"] * 5), _write(tmp_path / "a.en", *["he is a dog."] * 5)
    corpus = ParallelFiles(*paths, validation_share=0.2, test_share=0.2, unit="letters")
    examples = corpus.load("train")
    assert examples.texts[0] == tuple("彼は␣犬だ。") and examples.targets is not None
    assert examples.targets[0] == tuple("he␣is␣a␣dog.")
    assert corpus.detokenize(examples.texts[0]) == "彼は 犬だ。"
    with pytest.raises(InputError, match=r"^corpus.unit must be"):
        ParallelFiles(*paths, unit="bytes")  # type: ignore[arg-type]


def test_files_have_any_encoding(tmp_path: Path) -> None:
    for name, line in (("a.ja", "犬だ。"), ("a.en", "a dog.")):
        (tmp_path / name).write_bytes(f"{line}\n".encode("shift_jis") * 20)
    paths = str(tmp_path / "a.ja"), str(tmp_path / "a.en")
    assert ParallelFiles(*paths, encoding="shift_jis").load("train").texts[0] == ("犬だ", "。")
    with pytest.raises(InputError, match=r"line 1: byte 0x8c is not UTF-8"):
        ParallelFiles(*paths).load("train")
    with pytest.raises(InputError, match=r"^corpus\.encoding=klingon is unknown"):
        ParallelFiles(*paths, encoding="klingon")
    with pytest.raises(InputError, match=r"^corpus\.encoding=utf-16 is not supported"):
        ParallelFiles(*paths, encoding="utf-16")
