"""The torchvision data sets, on small files of their formats from a mirror on this machine, and on MNIST itself."""

import gc
import gzip
import hashlib
import io
import pickle
import shutil
import struct
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import scipy.io
import torch
from torchvision.datasets import CIFAR10, MNIST, SVHN, FashionMNIST

from envs.errors import InputError
from envs.images import cifar10, fashion_mnist, mnist
from envs.images.augmentation import RandomWarp

DATA = Path(__file__).parents[3] / "../shared/data"
SETS = {"mnist": MNIST, "fashion_mnist": FashionMNIST, "cifar10": CIFAR10, "svhn": SVHN}
NAMES = ["mnist", "fashion_mnist", "cifar10", "svhn"]
CHECKED = ["mnist", "cifar10", "svhn"]  # with an MD5 of what lies on the disk
needs_mnist = pytest.mark.skipif(not (DATA / "MNIST").is_dir(), reason="there is no MNIST in ../shared/data")


def source(name, root, **options):
    return SETS[name](root=str(root), **options)


def md5(data):
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def pictures(count, *shape):
    """Pictures whose every byte is the number of the picture, and their labels, ten in turn."""
    labels = np.arange(count) % 10
    return np.broadcast_to(np.arange(count, dtype=np.uint8).reshape(-1, *[1] * len(shape)), (count, *shape)), labels


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def publish_idx(dataset, module, folder, url, monkeypatch):
    raw = {}
    for part, count in [("train", 40), ("t10k", 20)]:
        images, labels = pictures(count, 28, 28)
        raw |= {f"{part}-images-idx3-ubyte": idx(images), f"{part}-labels-idx1-ubyte": idx(labels)}
    for name, data in raw.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    monkeypatch.setattr(dataset, "mirrors", [url])
    monkeypatch.setattr(
        dataset, "resources", [(f"{name}.gz", md5((folder / f"{name}.gz").read_bytes())) for name in raw]
    )
    if module is mnist:
        monkeypatch.setattr(mnist.MNIST, "md5", {name: md5(data) for name, data in raw.items()})


def publish_cifar10(folder, url, monkeypatch):
    files = {"batches.meta": {"label_names": list(cifar10.CIFAR10.classes)}}
    for name, first in [(f"data_batch_{number}", 8 * (number - 1)) for number in range(1, 6)] + [("test_batch", 0)]:
        images, labels = pictures(40, 3 * 32 * 32)
        rows = slice(first, first + (20 if name == "test_batch" else 8))
        files[name] = {"data": np.ascontiguousarray(images[rows]), "labels": labels[rows].tolist()}
    files = {name: pickle.dumps(content, protocol=2) for name, content in files.items()}
    with tarfile.open(folder / CIFAR10.filename, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{CIFAR10.base_folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(CIFAR10, "url", url + CIFAR10.filename)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5((folder / CIFAR10.filename).read_bytes()))
    sums = [[name, md5(data)] for name, data in files.items()]
    monkeypatch.setattr(CIFAR10, "train_list", sums[1:6])
    monkeypatch.setattr(CIFAR10, "test_list", sums[6:])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": sums[0][1]})


def publish_svhn(folder, url, monkeypatch):
    files = {}
    for part, count in [("train", 40), ("test", 20)]:
        images, labels = pictures(count, 32, 32, 3)
        name = f"{part}_32x32.mat"
        # The published files hold the images last, and 10 for the digit 0.
        y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        scipy.io.savemat(folder / name, {"X": np.moveaxis(images, 0, -1), "y": y}, do_compression=True)
        files[part] = [url + name, name, md5((folder / name).read_bytes())]
    monkeypatch.setattr(SVHN, "split_list", files)


PUBLISH = {
    "mnist": partial(publish_idx, MNIST, mnist),
    "fashion_mnist": partial(publish_idx, FashionMNIST, fashion_mnist),
    "cifar10": publish_cifar10,
    "svhn": publish_svhn,
}


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Publishes a data set on 127.0.0.1: call it with the name, get the folder that is served."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentHandler, directory=folder)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def publish(name):
            PUBLISH[name](folder, f"http://127.0.0.1:{server.server_port}/", monkeypatch)
            return folder

        yield publish
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", NAMES)
def test_downloads_once_and_parts_the_training_set(name, tmp_path, mirror):
    served, root = mirror(name), tmp_path / "new" / "data"
    augmentation = RandomWarp(shift=1)
    data = source(name, root, augmentation=augmentation)
    assert not root.exists(), "building a source must not touch the disk"
    splits = {split: data.load(split) for split in ("train", "validation", "test")}
    shutil.rmtree(served)
    again = data.load("validation")
    assert torch.equal(again.images, splits["validation"].images)
    assert not list(root.glob(".*")), "temporary folders are left"

    shape = (1, 28, 28) if "mnist" in name else (3, 32, 32)
    for split, count in [("train", 30), ("validation", 10), ("test", 20)]:
        part = splits[split]
        assert part.images.shape == (count, *shape) and part.images.dtype == torch.uint8
        assert part.images.is_contiguous() and part.labels.dtype == torch.int64
        assert len(part.classes) == 10
        assert torch.equal(part.images[:, 0, 0, 0] % 10, part.labels), "labels have left their pictures"
        assert torch.equal(part.labels.bincount(), torch.full((10,), count // 10))
        assert part.augmentation is (augmentation if split == "train" else None)
    seen = torch.cat([splits["train"].images, splits["validation"].images])[:, 0, 0, 0]
    assert torch.equal(seen.sort().values, torch.arange(40, dtype=torch.uint8))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # torchvision keeps the response that failed
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["missing", "truncated", "silent"])
def test_failed_download_leaves_nothing_in_the_way(name, damage, tmp_path, mirror, monkeypatch):
    served, root = mirror(name), tmp_path / "data"
    victim = sorted(served.iterdir())[-1]
    whole = victim.read_bytes()
    with monkeypatch.context() as patch:
        if damage == "missing":
            victim.unlink()
        elif damage == "truncated":
            victim.write_bytes(whole[:-7])
        else:
            patch.setattr(SilentHandler, "do_GET", lambda handler: None)
        with pytest.raises(InputError, match=r"could not be downloaded") as refusal:
            source(name, root).load("train")
    assert f"images.root={root}" in str(refusal.value) and "\n" not in str(refusal.value)
    assert not list(root.iterdir())
    victim.write_bytes(whole)
    source(name, root).load("train")
    del refusal
    gc.run_episode()


def stored_files(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_truncated_file_is_named_and_can_be_fetched_again(name, tmp_path, mirror):
    mirror(name)
    data = source(name, tmp_path / "data")
    before = data.load("train").images
    for path in stored_files(tmp_path / "data"):
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(InputError, match=r"delete it to have it downloaded again") as refusal:
            data.load("test" if "t10k" in path.name else "train")
        assert str(path) in str(refusal.value)
        path.unlink()
        assert torch.equal(data.load("train").images, before)


@pytest.mark.parametrize("name", CHECKED)
def test_flipped_byte_is_told(name, tmp_path, mirror):
    mirror(name)
    data = source(name, tmp_path / "data")
    data.load("train")
    path = stored_files(tmp_path / "data")[0]
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=f"{path} cannot be read"):
        data.load("train")


def test_fashion_mnist_needs_a_label_for_every_image(tmp_path, mirror):
    mirror("fashion_mnist")
    data = source("fashion_mnist", tmp_path / "data")
    data.load("train")
    path = tmp_path / "data/FashionMNIST/raw/train-labels-idx1-ubyte"
    path.write_bytes(idx(np.zeros(39)))
    with pytest.raises(InputError, match="40 images, but train-labels-idx1-ubyte beside it 39 labels"):
        data.load("train")


def test_reads_pickles_of_the_age_of_cifar10(tmp_path, mirror):
    """Python 2 wrote a dtype with integers for booleans, which some numpy versions warn of."""
    mirror("cifar10")
    data = source("cifar10", tmp_path)
    data.load("train")
    path = tmp_path / "cifar-10-batches-py/test_batch"
    new = path.read_bytes()
    old = new.replace(b"numpy._core.multiarray", b"numpy.core.multiarray").replace(b"\x89\x88\x87", b"K\x00K\x01\x87")
    assert len(old) == len(new) + 1, "the pickle is not what this test knows"
    path.write_bytes(old)
    CIFAR10.test_list[0][1] = md5(old)
    assert len(data.load("test")) == 20


@pytest.mark.parametrize("name", NAMES)
def test_root_that_cannot_be_written(name, tmp_path, mirror):
    mirror(name)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"images\.root=.*file.* could not be downloaded there"):
        source(name, tmp_path / "file").load("train")


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
@pytest.mark.parametrize("images", SETS.values())
def test_options_are_checked_on_construction(images, share):
    with pytest.raises(InputError, match=r"images\.validation_share"):
        images(validation_share=share)
    with pytest.raises(InputError, match=r"images\.root"):
        images(root="")


def test_unknown_split():
    with pytest.raises(InputError, match="split must be one of"):
        mnist.MNIST().load("dev")


@needs_mnist
def test_mnist():
    data = source("mnist", DATA)
    train, validation, test = (data.load(split) for split in ("train", "validation", "test"))
    assert len(train) + len(validation) == 60_000 and abs(len(validation) - 5_000) < 10 and len(test) == 10_000
    assert test.images.shape == (10_000, 1, 28, 28)
    assert train.classes == tuple("0123456789")
    assert test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert torch.equal(validation.images, data.load("validation").images)


@needs_mnist
@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_damaged_mnist(damage, tmp_path):
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    for path in (DATA / "MNIST/raw").iterdir():
        (raw / path.name).symlink_to(path.resolve())
    path = raw / "t10k-labels-idx1-ubyte"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.unlink()
    path.write_bytes(data if damage == "flipped" else data[:-1])
    with pytest.raises(InputError, match=f"{path} cannot be read .*MD5.*: delete it to have it downloaded again"):
        source("mnist", tmp_path).load("test")
