"""Evaluate: ``python -m ram.evaluate run=DIR`` measures a run's best checkpoint on the test split again.

What speaks searches as ``task.search`` says, such as ``task.search.beam_size=5``; ``beam_sizes=1,2,5`` shows what wider
beams gain on the validation split, and what they cost. With ``source=FILE`` a translator translates that file line by
line; ``n_best=3`` says the three best of every line, ``target=FILE`` measures it against that file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from envs.errors import InputError
from envs.rendering import save_png
from ram.config import assignments, build, check, override
from ram.corpora import normalised
from ram.corpora.files import read_lines
from ram.corpora.parallel_files import read_both
from ram.plots.text import beam_curve
from ram.run_folder import RunFolder, report_errors, table
from ram.tasks import Task
from ram.tasks.caption import CaptionTask
from ram.tasks.translate import TextTranslator, TranslateTask, bleu_and_chrf
from ram.training import checkpoint

_AT_ONCE = 2000  # lines of a file
_SEARCH = tuple(f"task.search.{name}" for name in ("beam_size", "length_penalty", "max_length"))
_OVERRIDES = (
    "device",
    "num_threads",
    "images.root",
    "images.objects.root",
    *(f"corpus.{name}" for name in ("root", "path", "validation_path", "test_path")),
    *(f"corpus.{split}{side}" for split in ("", "validation_", "test_") for side in ("source", "target")),
    "corpus.test",
    *_SEARCH,
)


def evaluate(task: Task, best_value: float) -> dict[str, float]:
    """The figures that end a run, by the names of ``metrics.json``.

    Args:
        task: with the weights to judge.
        best_value: of the monitor on the validation split.
    """
    task.eval()
    measured = {f"test/{name}": value for name, value in task.evaluate("test").items()}
    return measured | {f"validation/{task.monitor}": best_value}


def load_model(path: Path, device: str = "cpu") -> Any:
    """See :func:`ram.load`."""
    run = RunFolder.open(path)
    config = run.read_config()
    OmegaConf.update(config, "device", device)
    return _restored(run, config)


def _restored(run: RunFolder, config: DictConfig) -> Any:
    check(config)
    state = checkpoint.load(run.best, config.device)
    task = build(config.task, _partial_=True)
    try:
        return task.func.restore(state["task"] | state["average"], task.keywords)
    except (RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{run.best} does not fit {run.path}/.hydra/config.yaml: restore either.") from error


def translate(translator: TextTranslator, source: Path, number: int = 1) -> Iterator[str]:
    """What a model makes of every line of a file: the best ``number`` that are found, line by line.

    Of an empty line, and where fewer are found, they are empty.

    Raises:
        InputError: the file cannot be read, or a line is longer than the model's positions.
    """
    lines = read_lines(source)
    texts = [translator.corpus.tokenize(line) for line in lines]
    if not any(texts):
        raise InputError(f"{source} has no line with a word.")
    for place, text in enumerate(texts, start=1):
        translator.check(f"in {source}, line {place},", text)
    with tqdm(total=len(lines), unit="texts", disable=len(lines) <= _AT_ONCE) as bar:
        for start in range(0, len(lines), _AT_ONCE):
            some = range(start, min(start + _AT_ONCE, len(lines)))
            full = [lines[place] for place in some if texts[place]]
            said = iter(translator.n_best(full, number) if full else ())
            for place in some:
                yield from islice(chain(next(said) if texts[place] else (), repeat("")), number)
            bar.update(len(some))


def score(translator: TextTranslator, source: Path, target: Path) -> dict[str, float]:
    """Exact matches in percent, BLEU and chrF against a file of references, without regard to capital letters."""
    references = [normalised(line.strip()) for _, line in read_both(source, target)]
    said = list(translate(translator, source))
    exact = [normalised(text) == line for text, line in zip(said, references, strict=True)]
    return {"exact": 100 * sum(exact) / len(exact)} | bleu_and_chrf(said, [(line,) for line in references])


def beams(task: Task, sizes: Sequence[int]) -> tuple[str, np.ndarray]:
    """What a wider beam gains on the validation split, and what it costs.

    Returns:
        A table of all that is measured, and a picture (H, W, 3) uint8 of what matters most.
    """
    if not isinstance(task, TranslateTask | CaptionTask):
        raise InputError("beam_sizes needs the run of a translator or captioner.")
    task.eval()
    rows = []
    for size in tqdm(sizes, unit="beams", disable=len(sizes) < 2):
        start = time.perf_counter()
        measured = task.evaluate_generation("validation", size)
        rows.append({"beam": size} | measured | {"seconds": time.perf_counter() - start})
    metric = next(name for name in (task.monitor, "bleu", "cider", "exact") if name in rows[0])
    lines = [f"| {' | '.join(rows[0])} |", f"|{' ---: |' * len(rows[0])}"]
    lines += [f"| {row['beam']} | {' | '.join(f'{value:.2f}' for value in list(row.values())[1:])} |" for row in rows]
    return "\n".join(lines), beam_curve(metric, [(int(row["beam"]), row[metric], row["seconds"]) for row in rows])


def main() -> None:
    """The command ``ram-evaluate``."""
    sys.path.insert(0, str(Path.cwd()))  # a user's own modules, named by _target_
    with report_errors():
        options = assignments(sys.argv[1:])
        if "run" not in options:
            raise InputError("Name the folder of a run: python -m ram.evaluate run=DIR.")
        run = RunFolder.open(Path(options.pop("run")))
        config = run.read_config()
        if "source" in options:
            _use(run, config, options)
            return
        sizes = options.pop("beam_sizes", None)
        override(config, options, _OVERRIDES, f"run={run.path}")
        check(config)
        torch.set_num_threads(config.num_threads)
        task: Task = build(config.task)
        state = checkpoint.load(run.best, config.device)
        checkpoint.load_weights(task, state, run.best)
        if sizes is None:
            print(table(evaluate(task, state["progress"]["best"])))
            return
        told, drawn = beams(task, [_whole("beam_sizes", size) for size in sizes.split(",")])
        save_png(run.path / "beams.png", drawn)
        print(f"{told}\n  {run.path / 'beams.png'}")


def _use(run: RunFolder, config: DictConfig, options: dict[str, str]) -> None:
    """Translates a user's file, or measures how well that goes."""
    source, target = Path(options.pop("source")), options.pop("target", None)
    number = _whole("n_best", options.pop("n_best", "1")) if target is None else 1
    override(config, options, ("device", "num_threads", *_SEARCH), f"source={source}")
    torch.set_num_threads(config.num_threads)
    translator = _restored(run, config)
    if not isinstance(translator, TextTranslator):
        raise InputError(f"source={source}: {run.path} has not learnt to translate; name a run of task=translate.")
    if target is not None:
        print(table(score(translator, source, Path(target))))
        return
    for line in translate(translator, source, number):
        print(line)


def _whole(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise InputError(f"{name} must be whole numbers of at least 1, got {value!r}.")
    return int(value)


if __name__ == "__main__":
    main()
