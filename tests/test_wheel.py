"""The wheel is whole: installed elsewhere it trains from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    root = Path(__file__).parents[1]
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    (path,) = folder.glob("recurrent_attention-*.whl")
    return path


def test_the_wheel_holds_both_packages_and_every_configuration(wheel: Path, root: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ram/train.py", "ram/py.typed", "envs/glimpse.py", "envs/py.typed"} <= names
    shipped = {f"ram/conf/{path.relative_to(root / 'conf')}" for path in (root / "conf").rglob("*.yaml")}
    assert {name for name in names if name.endswith(".yaml")} == shipped
    assert not {name.split("/")[0] for name in names} - {"ram", "envs"} - {wheel.name.split("-py3")[0] + ".dist-info"}


def test_an_installed_wheel_trains_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where = [sys.executable, "-c", "import ram, envs; print(ram.__file__, envs.__file__)"]
    found = subprocess.run(where, cwd=elsewhere, env=environment, check=True, capture_output=True, text=True)
    assert all(path.startswith(str(site)) for path in found.stdout.split())
    options = ["images.num_train=64", "images.num_validation=8", "images.num_test=8", "task.batch_size=16"]
    train = [str(site / "bin" / "ram-train"), *options, "trainer.max_steps=1", "num_threads=1"]
    done = subprocess.run(train, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (metrics,) = elsewhere.glob("runs/glyphs/*/metrics.json")
    assert metrics.stat().st_size > 0
