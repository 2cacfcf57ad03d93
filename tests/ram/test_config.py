"""Configurations: all that ship can be built, and none that is wrong gets far."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from envs import InputError
from ram.config import assignments, build, check, config_folder, flatten, override

FOLDER = config_folder()
OPTIONS = sorted(path for path in FOLDER.glob("*/*.yaml"))
NEEDED = {  # the task that has the group
    "attention": ["task=classify_text", "pooling=contextual"],
    "corpus": ["task=classify_text"],
    "decoder": ["task=translate"],
    "encoder": ["task=classify_text"],
    "pooling": ["task=classify_text"],
}
DATA = {
    "corpus/labelled_file": ["corpus.path=texts.tsv"],
    "corpus/parallel_files": ["corpus.source=texts.de", "corpus.target=texts.en"],
    "images/folder": ["images.root=pictures"],
    "images/arrays": ["images.path=arrays.npz"],
}


def _compose(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        return compose("config", list(overrides))


IMAGED = {  # options that belong to another task than the rest of their group
    "corpus/scenes": ["task=caption"],
    "corpus/ucm_captions": ["task=caption"],
    "decoder/glimpse": ["task=caption", "encoder=pixels"],
    "encoder/backbone": ["task=caption"],
    "encoder/convolutional": ["task=caption"],
    "encoder/patches": ["task=caption"],
    "encoder/pixels": ["task=caption"],
}


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_option_composes_passes_the_check_and_is_built(path: Path) -> None:
    group, name = path.parent.name, path.stem
    more = [*IMAGED.get(f"{group}/{name}", NEEDED.get(group, [])), *DATA.get(f"{group}/{name}", [])]
    if name == "leave_one_out":
        more = ["task.rollouts_per_image=2"]
    place = "attention@pooling" if group == "attention" else group  # it is written into what reads with it
    config = _compose(f"{place}={name}", *more)
    check(config)
    if group == "experiment":  # it sets options of the other groups, and the control goes with each
        if "policy" in config:
            check(_compose(f"{group}={name}", "policy=random"))
        return
    if group == "task":
        assert build(config[group], _partial_=True).func.__name__.endswith("Task")
    else:
        assert build(config[place.split("@")[-1]]) is not None


@pytest.mark.parametrize(
    ("decoder", "place", "names"), [("luong", "decoder.context", "*"), ("transformer", "decoder", "[dh]*")]
)
def test_a_decoder_reads_with_any_attention(decoder: str, place: str, names: str) -> None:
    for path in FOLDER.glob(f"attention/{names}.yaml"):
        config = _compose("task=translate", f"decoder={decoder}", f"attention@{place}={path.stem}")
        check(config)
        written = OmegaConf.load(path)
        taken = OmegaConf.select(config, place)
        assert (taken.score, taken.select) == (written.score, written.select)  # type: ignore[union-attr]
        assert build(config.decoder) is not None


@pytest.mark.parametrize("corpus", ["reversal", "names", "latin", "arithmetic_results", "cmudict", "inflection"])
def test_a_translator_takes_any_corpus_of_pairs(corpus: str) -> None:
    for task in ("translate", "decoder_only"):
        config = _compose(f"task={task}", f"corpus={corpus}", "seed=7")
        check(config)
        built = build(config.corpus)
        assert callable(built.detokenize)
        assert getattr(built, "seed", 7) == 7
        assert (getattr(built, "ask", "result"), getattr(built, "root", "data")[:4]) == ("result", "data")


def test_the_default_job_is_glyphs() -> None:
    assert _compose().images._target_ == "envs.images.glyphs.Glyphs"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["+extra=1"], "extra is no option"),
        (["+task.extra=1"], r"task\.extra is no option of ram\.tasks\.glimpse\.GlimpseTask"),
        (["+policy.spread=1"], r"policy\.spread is no option of ram\.networks\.LocationNetwork"),
        (["+images.sizee=1"], r"^images\.sizee is no option of envs\.images\.glyphs\.Glyphs"),
        (["images=cluttered", "+images.sizee=1"], r"^images\.sizee is no option of envs\.images\.canvas\.Canvas"),
        (["+reward.cost=1"], r"^reward\.cost is no option of envs\.rewards\.correct_answer\.CorrectAnswer"),
        (["+sensor.scales=1"], r"^sensor\.scales is no option of envs\.sensor\.GlimpseSensor"),
        (["+env.looks=1"], r"^env\.looks is no option of envs\.vector_env\.GlimpseVectorEnv"),
        (["optimizer.lr=nan"], r"optimizer\.lr must be a finite number"),
        (["policy.std=inf"], r"policy\.std must be a finite number"),
        (["task.batch_size=many"], r"task\.batch_size must be a whole number, got 'many'"),
        (["task.batch_size=1.5"], r"task\.batch_size must be a whole number"),
        (["trainer.max_steps=soon"], r"trainer\.max_steps must be a whole number or null"),
        (["trainer.schedule=sometimes"], r"trainer\.schedule must be one of constant"),
        (["env.first_location=left"], r"^env\.first_location must be one of random, center"),
        (["images=folder"], r"images\.root"),
        (["reward._target_=subprocess.run"], r"^reward\._target_: subprocess\.run lies outside"),
        (["reward._target_=os.system"], r"os\.system lies outside"),
        (["reward._target_=envs.rewards.nosuch.Reward"], r"^reward\._target_: envs\.rewards\.nosuch\.Reward cannot be"),
        (["reward._target_=CorrectAnswer"], r"^reward\._target_: CorrectAnswer cannot be imported"),
    ],
)
def test_what_no_constructor_understands_is_refused_by_name(overrides: list[str], told: str) -> None:
    config = _compose(*overrides)
    with pytest.raises(InputError, match=told):
        check(config)


@pytest.mark.parametrize(
    ("overrides", "group", "told"),
    [
        (["sensor.patch_size=0"], "sensor", r"sensor\.patch_size"),
        (["sensor.num_scales=-1"], "sensor", r"sensor\.num_scales"),
        (["trainer.max_epochs=-1"], "trainer", r"trainer\.max_epochs"),
        (["images.size=-28"], "images", r"images\.size"),
        (["images.height=[0.9,0.1]"], "images", r"images\.height"),
    ],
)
def test_values_out_of_range_are_refused_by_name(overrides: list[str], group: str, told: str) -> None:
    config = _compose(*overrides)
    check(config)
    with pytest.raises(InputError, match=told):
        build(config[group])


def test_a_users_own_module_in_the_current_folder_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(InputError, match=r"reward\.size is no option of my_rewards\.Half; it has scale"):
        check(_compose("reward._target_=my_rewards.Half", "+reward.size=2.0"))


def test_words_are_of_the_form_name_equals_value() -> None:
    assert assignments(["run=a=b", "device=cpu"]) == {"run": "a=b", "device": "cpu"}
    with pytest.raises(InputError, match="run is not of the form"):
        assignments(["run"])


def test_only_what_is_allowed_may_be_overridden() -> None:
    config = OmegaConf.create({"trainer": {"max_epochs": 3}, "seed": 0})
    override(config, {"trainer.max_epochs": "5"}, ("trainer.max_epochs",), "resume=runs/a")
    assert config.trainer.max_epochs == 5
    with pytest.raises(InputError, match=r"resume=runs/a .* not seed"):
        override(config, {"seed": "1"}, ("trainer.max_epochs",), "resume=runs/a")
    with pytest.raises(InputError, match=r"trainer\.max_epochs=\[ cannot be read"):
        override(config, {"trainer.max_epochs": "["}, ("trainer.max_epochs",), "resume=runs/a")


def test_flatten_names_every_leaf() -> None:
    config = OmegaConf.create({"a": {"b": 1, "c": [2, 3]}, "d": None, "e": {"f": "${a}"}})
    assert flatten(config) == {"a.b": 1, "a.c[0]": 2, "a.c[1]": 3, "d": None}
