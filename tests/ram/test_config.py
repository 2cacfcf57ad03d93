"""Configurations: every option is built, its defaults are the constructor's, and wrong options are refused."""

import inspect
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from envs import InputError
from ram.config import build, check, config_folder, flatten, override
from ram.training.command_line import assignments

FOLDER = config_folder()
OPTIONS = sorted(FOLDER.glob("*/*.yaml"))
DATA = {
    "corpus/labelled_file": ["corpus.path=texts.tsv"],
    "corpus/parallel_files": ["corpus.source=texts.de", "corpus.target=texts.en"],
    "images/folder": ["images.root=pictures"],
    "images/arrays": ["images.path=arrays.npz"],
    "experiment/pictures": ["images.root=pictures"],
}
TEXT = ["~experiment", "task=classify_text"]
CONTEXTS = {  # the place of a group where it is not at the root, and the options it needs
    "augmentation": ("images.augmentation", ["experiment=mnist_28x28"]),
    "corpus": ("corpus", TEXT),
    "decoder": ("decoder", ["~experiment", "task=translate"]),
    "embedding": ("task.model.embedding", TEXT),
    "encoder": ("encoder", TEXT),
    "image_encoder": ("image_encoder", ["~experiment", "task=caption"]),
    "pooling": ("pooling", TEXT),
    "score": ("pooling.score", [*TEXT, "pooling=contextual"]),
    "select": ("pooling.select", [*TEXT, "pooling=contextual"]),
    "task": ("task", ["~experiment"]),
    "model/captioner": ("task.model", ["~experiment", "task=caption"]),
    "model/classifier": ("task.model", TEXT),
    "model/decoder_only": ("task.model", ["~experiment", "task=decoder_only"]),
    "model/encoder_decoder": ("task.model", ["~experiment", "task=translate"]),
    "model/language_model": ("task.model", ["~experiment", "task=language_model"]),
    "model/tagger": ("task.model", ["~experiment", "task=tag"]),
    "corpus/scenes": ("corpus", ["~experiment", "task=caption"]),
    "corpus/ucm_captions": ("corpus", ["~experiment", "task=caption"]),
    "decoder/glimpse": ("decoder", ["~experiment", "task=caption", "image_encoder=pixels"]),
    "baseline/leave_one_out": ("baseline", ["task.rollouts_per_image=2"]),
}


def _compose(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        return compose("config", list(overrides))


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_option_is_composed_checked_and_built(path: Path) -> None:
    group, name = path.parent.name, path.stem
    place, options = CONTEXTS.get(f"{group}/{name}", CONTEXTS.get(group, (group, [])))
    at = group if place == group else f"{group}@{place}"
    config = _compose(f"{at}={name}", *options, *DATA.get(f"{group}/{name}", []))
    check(config)
    if group == "experiment":  # sets options of the other groups; the random policy is its control
        if "policy" in config:
            check(_compose(f"{group}={name}", "policy=random", *DATA.get(f"{group}/{name}", [])))
    elif group == "task":
        assert build(config[group], _partial_=True).func.__name__.endswith("Task")
    elif group == "answers":  # values of the environment
        assert config.env.answer == config.answers.answer
        assert build(config.env).keywords["glimpses_per_answer"] == config.answers.glimpses_per_answer
    else:
        assert build(OmegaConf.select(config, place)) is not None


@pytest.mark.parametrize(("decoder", "place"), [("luong", "decoder.context"), ("transformer", "decoder")])
@pytest.mark.parametrize("group", ["score", "select"])
def test_a_decoder_accepts_every_score_and_selection(decoder: str, place: str, group: str) -> None:
    for path in FOLDER.glob(f"{group}/*.yaml"):
        config = _compose("~experiment", "task=translate", f"decoder={decoder}", f"{group}@{place}.{group}={path.stem}")
        check(config)
        assert OmegaConf.select(config, f"{place}.{group}") == OmegaConf.load(path)
        assert build(config.decoder) is not None


def _targets(name: str, node: Any, found: dict[str, list[tuple[str, Mapping[str, Any]]]]) -> None:
    """Collects the nodes with a ``_target_`` by their class, with the file they are in."""
    if isinstance(node, dict):
        if "_target_" in node:
            found[node["_target_"]].append((name, node))
        for value in node.values():
            _targets(name, value, found)


def _load_merged(path: Path) -> DictConfig:
    """Loads an option with the options of the same group that it is derived from."""
    node = OmegaConf.load(path)
    bases = [entry for entry in node.pop("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    return OmegaConf.merge(*(_load_merged(path.with_name(f"{base}.yaml")) for base in bases), node)  # type: ignore[return-value]


def _differences(node: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the options that differ from the default of the constructor, as (option, default)."""
    parameters = inspect.signature(get_object(node["_target_"])).parameters
    plain = (bool, int, float, str, type(None))
    differing = {}
    for name, value in node.items():
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if name.startswith("_") or default is inspect.Parameter.empty or str(value).startswith(("${", "???")):
            continue
        default = list(default) if isinstance(default, tuple) else default
        if isinstance(value, (*plain, list)) and isinstance(default, (*plain, list)) and value != default:
            differing[name] = (value, default)
    return differing


def _all_targets() -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    found: dict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for path in OPTIONS:
        if path.parent.name != "experiment":
            _targets(f"{path.parent.name}/{path.stem}", OmegaConf.to_container(_load_merged(path)), found)
    return {target: nodes for target, nodes in found.items() if target.startswith(("ram.", "envs."))}


@pytest.mark.parametrize(("target", "nodes"), sorted(_all_targets().items()), ids=lambda value: str(value)[:60])
def test_an_option_of_every_class_has_the_defaults_of_the_constructor(
    target: str, nodes: list[tuple[str, Mapping[str, Any]]]
) -> None:
    differences = {name: _differences(node) for name, node in nodes}
    assert {} in differences.values(), f"no yaml of {target} has its defaults: {differences}"


@pytest.mark.parametrize("corpus", ["reversal", "names", "latin", "arithmetic_results", "cmudict", "inflection"])
def test_a_translator_accepts_every_corpus_of_pairs(corpus: str) -> None:
    for task in ("translate", "decoder_only"):
        config = _compose("~experiment", f"task={task}", f"corpus={corpus}", "seed=7")
        check(config)
        built = build(config.corpus)
        assert callable(built.detokenize)
        assert getattr(built, "seed", 0) == 0  # not the training seed
        assert (getattr(built, "targets", "result"), getattr(built, "root", "data")[:4]) == ("result", "data")


def test_building_keeps_the_interpolations_of_a_configuration() -> None:
    config = _compose("scenes=translated")
    before = OmegaConf.to_yaml(config)
    build(config.task, _partial_=True)
    build(config.env, num_envs=2)
    assert OmegaConf.to_yaml(config) == before
    config.images.size = 20
    assert config.env.images.objects.size == 20


def test_the_default_job_is_glyphs() -> None:
    assert _compose().images._target_ == "envs.images.glyphs.Glyphs"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+extra=1"], "extra is not an option"),
        (["+task.extra=1"], r"task\.extra is not an option of ram\.tasks\.glimpse\.GlimpseTask"),
        (["+policy.spread=1"], r"policy\.spread is not an option of ram\.policies\.LocationNetwork"),
        (["+images.sizee=1"], r"^images\.sizee is not an option of envs\.images\.glyphs\.Glyphs"),
        (["scenes=cluttered", "+scenes.sizee=1"], r"^scenes\.sizee is not an option of envs\.images\.canvas\.Canvas"),
        (["+reward.cost=1"], r"^reward\.cost is not an option of envs\.rewards\.answers\.CorrectAnswer"),
        (["+sensor.scales=1"], r"^sensor\.scales is not an option of envs\.sensor\.GlimpseSensor"),
        (["+env.looks=1"], r"^env\.looks is not an option of envs\.vector_env\.GlimpseVectorEnv"),
        (["optimizer.lr=nan"], r"optimizer\.lr must be a finite number"),
        (["policy.std=inf"], r"policy\.std must be a finite number"),
        (["task.batch_size=many"], r"task\.batch_size must be a whole number, got 'many'"),
        (["task.batch_size=1.5"], r"task\.batch_size must be a whole number"),
        (["trainer.max_steps=soon"], r"trainer\.max_steps must be a whole number or null"),
        (["trainer.schedule=sometimes"], r"trainer\.schedule must be one of constant"),
        (["env.first_location=left"], r"^env\.first_location must be one of random, center"),
        (["images=folder"], r"images\.root"),
        (["reward._target_=subprocess.run"], r"^reward\._target_: subprocess\.run is not in torch"),
        (["reward._target_=os.system"], r"os\.system is not in torch"),
        (["reward._target_=envs.rewards.nosuch.Reward"], r"^reward\._target_: envs\.rewards\.nosuch\.Reward cannot be"),
        (["reward._target_=CorrectAnswer"], r"^reward\._target_: CorrectAnswer cannot be imported"),
    ],
)
def test_an_invalid_option_is_refused_by_name(overrides: list[str], message: str) -> None:
    config = _compose(*overrides)
    with pytest.raises(InputError, match=message):
        check(config)


@pytest.mark.parametrize(
    ("overrides", "group", "message"),
    [
        (["sensor.patch_size=0"], "sensor", r"sensor\.patch_size"),
        (["sensor.num_scales=-1"], "sensor", r"sensor\.num_scales"),
        (["trainer.max_epochs=-1"], "trainer", r"trainer\.max_epochs"),
        (["images.size=-28"], "images", r"images\.size"),
        (["images.height=[0.9,0.1]"], "images", r"images\.height"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(overrides: list[str], group: str, message: str) -> None:
    config = _compose(*overrides)
    check(config)
    with pytest.raises(InputError, match=message):
        build(config[group])


def test_a_target_may_be_in_a_module_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rewards.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Half:\n"
        "    scale: float = 0.5\n"
        "    def __call__(self, transition):\n"
        "        return self.scale * transition.last.float()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = _compose("reward._target_=my_rewards.Half", "+reward.scale=2.0")
    check(config)
    assert build(config.reward).scale == 2.0
    with pytest.raises(InputError, match=r"reward\.size is not an option of my_rewards\.Half; it has scale"):
        check(_compose("reward._target_=my_rewards.Half", "+reward.size=2.0"))


def test_assignments_have_the_form_name_equals_value() -> None:
    assert assignments(["run=a=b", "device=cpu"]) == {"run": "a=b", "device": "cpu"}
    with pytest.raises(InputError, match="run is not of the form"):
        assignments(["run"])


def test_only_allowed_options_are_overridden() -> None:
    config = OmegaConf.create({"trainer": {"max_epochs": 3}, "seed": 0})
    override(config, {"trainer.max_epochs": "5"}, ("trainer.max_epochs",), "resume=runs/a")
    assert config.trainer.max_epochs == 5
    with pytest.raises(InputError, match=r"resume=runs/a .* not seed"):
        override(config, {"seed": "1"}, ("trainer.max_epochs",), "resume=runs/a")
    with pytest.raises(InputError, match=r"trainer\.max_epochs=\[ cannot be parsed"):
        override(config, {"trainer.max_epochs": "["}, ("trainer.max_epochs",), "resume=runs/a")


def test_flatten_returns_every_value_by_its_dotted_name() -> None:
    config = OmegaConf.create({"a": {"b": 1, "c": [2, 3]}, "d": None, "e": {"f": "${a}"}})
    assert flatten(config) == {"a.b": 1, "a.c[0]": 2, "a.c[1]": 3, "d": None}
