"""Experiments compose with every alternative of the groups whose keys they set."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ram.config import check, config_folder

FOLDER = config_folder()
GROUPS = ["core", "decoder", "encoder", "glimpse", "image_encoder", "policy", "pooling", "reward", "scenes", "sensor"]
WIDTHLESS = {"identity"}  # an encoder without the option size


def _groups(name: str) -> set[str]:
    """Returns the groups whose keys an experiment, or one that it extends, sets."""
    experiment = OmegaConf.load(FOLDER / "experiment" / f"{name}.yaml")
    bases = [base for base in experiment.get("defaults", []) if isinstance(base, str)]
    return (set(map(str, experiment)) & set(GROUPS)).union(*map(_groups, bases))


CASES = [
    (experiment.stem, group, option.stem)
    for experiment in sorted(Path(FOLDER, "experiment").glob("*.yaml"))
    for group in sorted(_groups(experiment.stem))
    for option in sorted(Path(FOLDER, group).glob("*.yaml"))
    if option.stem not in WIDTHLESS
]


@pytest.mark.parametrize(("experiment", "group", "option"), CASES)
def test_an_experiment_accepts_every_option_of_a_group(experiment: str, group: str, option: str) -> None:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        data = ["images.root=pictures"] if experiment == "pictures" else []  # its images have no default
        config = compose("config", [f"experiment={experiment}", f"{group}={option}", *data])
    check(config)
