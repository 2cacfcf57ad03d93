"""A user's own pair of files: how their lines go together, how they are parted, and what is refused by name."""

import gzip
from pathlib import Path

import pytest

from envs.errors import InputError
from ram.corpora import Examples, detokenize
from ram.corpora.parallel_files import ParallelFiles, read_pairs

SPLITS = ("train", "validation", "test")


def _write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    return str(path)


def _numbered(folder: Path, count: int) -> dict[str, str]:
    """Two files whose lines have the same numbers."""
    return {
        "source": _write(folder / "a.de", *(f"Satz {number}" for number in range(count))),
        "target": _write(folder / "a.en", *(f"Sentence {number}" for number in range(count))),
    }


def _pair(folder: Path, source: bytes, target: bytes, suffix: str = "") -> Examples:
    """The examples of two files of these bytes."""
    paths = []
    for name, data in [("b.de", source), ("b.en", target)]:
        paths.append(folder / (name + suffix))
        paths[-1].write_bytes(gzip.compress(data) if suffix == ".gz" else data)
    return read_pairs(paths[0], paths[1], lower=True)


def test_what_is_written_as_usual_is_written_as_the_reference(tmp_path: Path) -> None:
    lines = ["It\u2019s 3.5 km.", 'He says "no", "yes" and (at 10:30) 1,000 words...', "Cafe\u0301?"]
    examples = _pair(tmp_path, b"a\nb\nc\n", "\n".join(lines).encode())
    assert examples.references is not None and examples.targets is not None
    assert tuple((detokenize(target),) for target in examples.targets) == examples.references
    assert examples.references[0] == ("it's 3.5 km.",)


def test_lines_go_together_and_the_second_is_the_reference(tmp_path: Path) -> None:
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
def test_marks_and_line_ends_are_no_matter(source: bytes, target: bytes, suffix: str, tmp_path: Path) -> None:
    examples = _pair(tmp_path, source, target, suffix)
    assert examples == Examples((("eins",), ("zwei",)), (("one",), ("two",)), (("one",), ("two",)))


def test_a_pair_of_which_either_line_is_empty_is_passed_over(tmp_path: Path) -> None:
    examples = _pair(tmp_path, b"eins\n\nzwei\n \t\ndrei\nvier\n", b"one\n-\n\ntwo\n  \nfour\n")
    assert examples == Examples((("eins",), ("vier",)), (("one",), ("four",)), (("one",), ("four",)))


def test_one_pair_of_files_is_parted(tmp_path: Path) -> None:
    source = ParallelFiles(**_numbered(tmp_path, 50), validation_share=0.2, test_share=0.1)
    parts = [source.load(split) for split in SPLITS]  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [35, 10, 5]
    for part in parts:
        assert part.targets is not None and part.references is not None
        numbers = [int(text[1]) for text in part.texts]
        assert numbers == sorted(numbers), "the order of the file is kept"
        assert [target[1] for target in part.targets] == [text[1] for text in part.texts]
        assert [reference for (reference,) in part.references] == [f"sentence {number}" for number in numbers]
    assert len({text for part in parts for text in part.texts}) == 50, "the splits overlap or lack something"
    assert [source.load(split) for split in SPLITS] == parts  # type: ignore[arg-type]


def test_own_files_for_both_others_leave_training_whole(tmp_path: Path) -> None:
    source = ParallelFiles(
        **_numbered(tmp_path, 10),
        validation_source=_write(tmp_path / "v.de", "eins"),
        validation_target=_write(tmp_path / "v.en", "one"),
        test_source=_write(tmp_path / "t.de", "zwei"),
        test_target=_write(tmp_path / "t.en", "two"),
    )
    assert len(source.load("train")) == 10
    assert source.load("validation") == Examples((("eins",),), (("one",),), (("one",),))
    assert source.load("test") == Examples((("zwei",),), (("two",),), (("two",),))


@pytest.mark.parametrize(("own", "held_out"), [("validation", "test"), ("test", "validation")])
def test_own_files_for_one_leave_the_other_its_share(own: str, held_out: str, tmp_path: Path) -> None:
    more = {f"{own}_source": _write(tmp_path / "o.de", "eins"), f"{own}_target": _write(tmp_path / "o.en", "one")}
    source = ParallelFiles(**_numbered(tmp_path, 20), **more, **{f"{held_out}_share": 0.3})  # type: ignore[arg-type]
    train, other = source.load("train"), source.load(held_out)  # type: ignore[arg-type]
    assert (len(train), len(other)) == (14, 6)
    assert set(train.texts).isdisjoint(other.texts)
    assert source.load(own).texts == (("eins",),)  # type: ignore[arg-type]


def test_capital_letters_are_kept_on_request(tmp_path: Path) -> None:
    paths = _write(tmp_path / "a.de", *["Der Hund"] * 5), _write(tmp_path / "a.en", *["The Dog"] * 5)
    source = ParallelFiles(*paths, validation_share=0.2, test_share=0.2, lower=False)
    examples = source.load("train")
    assert examples.texts[0] == ("Der", "Hund") and examples.targets is not None
    assert examples.targets[0] == ("The", "Dog") and examples.references == (("The Dog",),) * 3
    assert source.tokenize("Der Hund!") == ("Der", "Hund", "!")
    assert ParallelFiles("a", "b").tokenize("Der Hund!") == ("der", "hund", "!")
    assert source.detokenize(("The", "Dog", "!")) == "The Dog!"


def test_paths_may_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _numbered(tmp_path, 10)
    assert len(ParallelFiles("~/a.de", "~/a.en").load("train")) == 8
    own = ParallelFiles("~/a.de", "~/a.en", test_source="~/a.de", test_target="~/a.en")
    assert len(own.load("test")) == 10


# What is refused.


@pytest.mark.parametrize(("more", "fewer"), [(b"eins\nzwei\ndrei\n", b"one\ntwo\n"), (b"eins\n\n", b"one\n")])
def test_unequal_numbers_of_lines_are_refused_by_file(more: bytes, fewer: bytes, tmp_path: Path) -> None:
    told = [len(data.splitlines()) for data in (more, fewer)]
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.de has {told[0]} lines and {tmp_path}/b\.en {told[1]}: "):
        _pair(tmp_path, more, fewer)
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.de has {told[1]} lines and {tmp_path}/b\.en {told[0]}: "):
        _pair(tmp_path, fewer, more)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_bytes_that_are_not_utf_8_are_refused_by_file_and_line(suffix: str, tmp_path: Path) -> None:
    fine, spoilt = b"one\n\nthree\n", b"fine\n\ncaf\xe9\n"
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.de{suffix}, line 3: byte 0xe9 is not UTF-8"):
        _pair(tmp_path, spoilt, fine, suffix)
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.en{suffix}, line 3: byte 0xe9 is not UTF-8"):
        _pair(tmp_path, fine, spoilt, suffix)


@pytest.mark.parametrize(("source", "target"), [(b"", b""), (b"\n \n", b"one\ntwo\n"), (b"eins\n\n", b"\ntwo\n")])
def test_files_without_a_pair_are_refused(source: bytes, target: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^{tmp_path}/b\.de and {tmp_path}/b\.en hold no pair of lines"):
        _pair(tmp_path, source, target)


@pytest.mark.parametrize("missing", ["source", "target"])
def test_a_missing_file_is_refused(missing: str, tmp_path: Path) -> None:
    files = _numbered(tmp_path, 10) | {missing: str(tmp_path / "nowhere")}
    with pytest.raises(InputError, match=rf"^{tmp_path}/nowhere cannot be read"):
        ParallelFiles(**files).load("train")  # type: ignore[arg-type]


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_half_a_pair_of_paths_is_refused_on_construction(split: str, side: str) -> None:
    told = rf"^corpus\.{split}_source and corpus\.{split}_target go together: give both or neither\.$"
    with pytest.raises(InputError, match=told):
        ParallelFiles("a", "b", **{f"{split}_{side}": "c"})  # type: ignore[arg-type]


def test_too_few_lines_to_part_are_refused(tmp_path: Path) -> None:
    source = ParallelFiles(**_numbered(tmp_path, 2))
    assert len(source.load("train")) == len(source.load("test")) == 1
    with pytest.raises(InputError, match=r"^The validation split would be empty: 2 examples are too few to part by"):
        source.load("validation")


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
@pytest.mark.parametrize("name", ["validation_share", "test_share"])
def test_shares_are_checked_on_construction(name: str, share: float) -> None:
    with pytest.raises(InputError, match=rf"^corpus\.{name} must lie between 0 and 1, got {share}"):
        ParallelFiles("a", "b", **{name: share})  # type: ignore[arg-type]


def test_shares_must_leave_something() -> None:
    with pytest.raises(InputError, match="must leave something to train on"):
        ParallelFiles("a", "b", validation_share=0.5, test_share=0.5)
