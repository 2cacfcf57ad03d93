"""The wheel is complete: installed in another folder it trains from anywhere."""

import json
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


def test_the_wheel_has_both_packages_and_every_configuration(wheel: Path, root: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ram/train.py", "ram/py.typed", "envs/vector_env.py", "envs/py.typed"} <= names
    shipped = {f"ram/conf/{path.relative_to(root / 'conf')}" for path in (root / "conf").rglob("*.yaml")}
    assert {name for name in names if name.endswith(".yaml")} == shipped
    assert not {name.split("/")[0] for name in names} - {"ram", "envs"} - {wheel.name.split("-py3")[0] + ".dist-info"}


def test_an_installed_wheel_trains_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "folder"
    folder.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    print_paths = [sys.executable, "-c", "import ram, envs; print(ram.__file__, envs.__file__)"]
    paths = subprocess.run(print_paths, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    assert all(path.startswith(str(site)) for path in paths.stdout.split())
    options = ["images.num_train=64", "images.num_validation=8", "images.num_test=8", "task.batch_size=16"]
    train = [str(site / "bin" / "ram-train"), *options, "trainer.max_steps=1", "num_threads=1"]
    done = subprocess.run(train, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (metrics,) = folder.glob("runs/glyphs/*/metrics.json")
    assert 0 <= json.loads(metrics.read_text())["test/error"] <= 100
