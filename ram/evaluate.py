"""Evaluates the best checkpoint of a run on the test split and prints the metrics.

  run=DIR             folder of the run, or the name of a published model (required)
  device=NAME         device, such as cuda
  precision=NAME      float32, where the device does not compute the run's bf16
  num_threads=N       threads of torch on the CPU
  corpus.root=DIR     other options that say where the data is: corpus.path, corpus.source, images.root, ...

Models that generate text (task=translate, decoder_only, caption):

  task.search.beam_size=N        number of hypotheses; also task.search.length_penalty and task.search.max_length
  beam_sizes=1,2,5               compare beam sizes on the validation split: metrics and seconds, and DIR/beams.png

Models that translate (task=translate, decoder_only):

  source=FILE                    translate the file line by line
  source=FILE n_best=3           print the three best translations of every line
  source=FILE target=FILE        score the translations against a file of references: exact matches, BLEU, chrF
"""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import DictConfig

from envs.errors import InputError
from envs.rendering import save_png
from ram.config import override
from ram.inference.translation import TextTranslator
from ram.inference.translation_files import score_file, translate_file
from ram.tasks.beam_sizes import compare_beam_sizes
from ram.training import checkpoint
from ram.training.command_line import (
    assignments,
    format_metrics,
    import_from_current_folder,
    positional_arguments,
    report_errors,
)
from ram.training.job import Job
from ram.training.run_folder import RunFolder, restore_model

_USAGE = "python -m ram.evaluate run=DIR [name=value ...]"
_SEARCH = tuple(f"task.search.{name}" for name in ("beam_size", "length_penalty", "max_length"))
_OVERRIDES = (
    "device",
    "precision",
    "num_threads",
    "images.root",
    *(f"corpus.{name}" for name in ("root", "path", "validation_path", "test_path")),
    *(f"corpus.{split}{side}" for split in ("", "validation_", "test_") for side in ("source", "target")),
    "corpus.test",
    *_SEARCH,
)


def _evaluate(run: RunFolder, config: DictConfig, options: dict[str, str]) -> None:
    """Prints the test metrics, or with ``beam_sizes`` a table of beam sizes."""
    sizes = options.pop("beam_sizes", None)
    override(config, options, _OVERRIDES, f"run={run.path}")
    job = Job(config)
    if sizes is None:
        print(format_metrics(job.test(run)))
    else:
        checkpoint.load_weights(job.task, checkpoint.load(run.best, config.device), run.best)
        table, figure = compare_beam_sizes(job.task, [_positive("beam_sizes", size) for size in sizes.split(",")])
        save_png(run.path / "beams.png", figure)
        print(f"{table}\n  {run.path / 'beams.png'}")


def _translate(run: RunFolder, config: DictConfig, options: dict[str, str]) -> None:
    """Prints the translations of ``source``, or with ``target`` their scores."""
    source, target = Path(options.pop("source")), options.pop("target", None)
    n_best = _positive("n_best", options.pop("n_best", "1")) if target is None else 1
    override(config, options, ("device", "num_threads", *_SEARCH), f"source={source}")
    torch.set_num_threads(config.num_threads)
    translator = restore_model(run, config)
    if not isinstance(translator, TextTranslator):
        raise InputError(f"source={source}: {run.path} is not a run of a translator; name a run of task=translate.")
    if target is not None:
        print(format_metrics(score_file(translator, source, Path(target), config.task.get("bleu_tokenizer"))))
        return
    for line in translate_file(translator, source, n_best):
        print(line)


def _positive(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise InputError(f"{name} must be whole numbers of at least 1, got {value!r}.")
    return int(value)


def main() -> None:
    """The command ``ram-evaluate``."""
    import_from_current_folder()
    with report_errors():
        options = assignments(positional_arguments(_USAGE, str(__doc__)))
        if "run" not in options:
            raise InputError("Name the folder of a run: python -m ram.evaluate run=DIR.")
        run = RunFolder.open(Path(options.pop("run")))
        (_translate if "source" in options else _evaluate)(run, run.read_config(), options)


if __name__ == "__main__":
    main()
