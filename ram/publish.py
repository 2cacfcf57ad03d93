"""Publishes the best weights of a run with the package.

  run=DIR           folder of the run (required)
  name=NAME         name of the model (required)
  images.root=DIR   where users have the data; data by default

Writes ram/weights/NAME.safetensors, and the card NAME.md beside it. ram.load("NAME") loads the model.
"""

from __future__ import annotations

import json
from pathlib import Path

from omegaconf import OmegaConf

from envs.errors import InputError
from ram import published
from ram.config import override
from ram.training import checkpoint
from ram.training.command_line import assignments, import_from_current_folder, positional_arguments, report_errors
from ram.training.run_folder import RunFolder

_USAGE = "python -m ram.publish run=DIR name=NAME [images.root=DIR]"


def publish(run: RunFolder, name: str, root: str = "data") -> Path:
    """Writes the weights and the card of a run; returns the path of the weights."""
    config, state = run.read_config(), checkpoint.load(run.best)
    if OmegaConf.select(config, "images.root") is not None:
        override(config, {"images.root": root}, ("images.root",), f"name={name}")
    record = json.loads((run.path / "metrics.json").read_text())
    measured = {key: value for key, value in record.items() if "/" in key}
    options = [each for each in run.read_overrides() if not each.startswith(("images.root=", "hydra."))]
    card = {
        "command": " ".join(["python -m ram.train", *options]),
        "commit": record["commit"],
        "seed": record["seed"],
        "seconds": record["seconds"],
        "validation": state["progress"]["best"],
        "metrics": measured,
    }
    path = published.FOLDER / f"{name}.safetensors"
    plain = OmegaConf.to_container(config)
    assert isinstance(plain, dict)
    published.write(path, checkpoint.inference_state(state), {str(key): value for key, value in plain.items()}, card)
    rows = [f"| `{key}` | {value:.2f} |" for key, value in measured.items()]
    text = [f"# {name}", "", f"`{card['command']}`", ""]
    text += [f"Commit {card['commit']}, {card['seconds']:.0f} seconds. Weights in float16.", ""]
    path.with_suffix(".md").write_text("\n".join([*text, "| metric | value |", "| --- | ---: |", *rows, ""]))
    return path


def main() -> None:
    """The command ``python -m ram.publish``."""
    import_from_current_folder()
    with report_errors():
        options = assignments(positional_arguments(_USAGE, str(__doc__)))
        if not {"run", "name"} <= options.keys() or options.keys() - {"run", "name", "images.root"}:
            raise InputError(f"Give a run and a name: {_USAGE}.")
        run = RunFolder.open(Path(options["run"]))
        print(publish(run, options["name"], options.get("images.root", "data")))


if __name__ == "__main__":
    main()
