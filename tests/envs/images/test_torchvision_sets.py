"""The torchvision data sets, on small files in their formats served by a local mirror."""

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
from threading import Thread

import numpy as np
import pytest
import scipy.io
import torch
import torchvision

from envs.errors import InputError
from envs.images.augmentation import RandomWarp
from envs.images.cifar10 import CIFAR10
from envs.images.fashion_mnist import FashionMNIST
from envs.images.mnist import MNIST
from envs.images.svhn import SVHN

SETS = {"mnist": MNIST, "fashion_mnist": FashionMNIST, "cifar10": CIFAR10, "svhn": SVHN}
CHECKED = ["mnist", "cifar10", "svhn"]  # the MD5 of the extracted files is published


def source(name, root, **options):
    return SETS[name](root=str(root), **options)


def md5(data):
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def numbered_images(count, *shape):
    """Images whose every byte is the index of the image, and labels 0 to 9 in turn."""
    labels = np.arange(count) % 10
    return np.broadcast_to(np.arange(count, dtype=np.uint8).reshape(-1, *[1] * len(shape)), (count, *shape)), labels


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def idx_files(num_train, num_test):
    """The four files of MNIST by name."""
    files = {}
    for part, count in [("train", num_train), ("t10k", num_test)]:
        images, labels = numbered_images(count, 28, 28)
        files |= {f"{part}-images-idx3-ubyte": idx(images), f"{part}-labels-idx1-ubyte": idx(labels)}
    return files


def publish_idx(dataset, folder, url, monkeypatch):
    raw = idx_files(40, 20)
    for name, data in raw.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    monkeypatch.setattr(dataset, "mirrors", [url])
    monkeypatch.setattr(
        dataset, "resources", [(f"{name}.gz", md5((folder / f"{name}.gz").read_bytes())) for name in raw]
    )
    if dataset is torchvision.datasets.MNIST:
        monkeypatch.setattr(MNIST, "md5", {name: md5(data) for name, data in raw.items()})


def publish_cifar10(folder, url, monkeypatch):
    dataset = torchvision.datasets.CIFAR10
    files = {"batches.meta": {"label_names": list(CIFAR10.classes)}}
    for name, first in [(f"data_batch_{number}", 8 * (number - 1)) for number in range(1, 6)] + [("test_batch", 0)]:
        images, labels = numbered_images(40, 3 * 32 * 32)
        rows = slice(first, first + (20 if name == "test_batch" else 8))
        files[name] = {"data": np.ascontiguousarray(images[rows]), "labels": labels[rows].tolist()}
    files = {name: pickle.dumps(content, protocol=2) for name, content in files.items()}
    with tarfile.open(folder / dataset.filename, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{dataset.base_folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(dataset, "url", url + dataset.filename)
    monkeypatch.setattr(dataset, "tgz_md5", md5((folder / dataset.filename).read_bytes()))
    sums = [[name, md5(data)] for name, data in files.items()]
    monkeypatch.setattr(dataset, "train_list", sums[1:6])
    monkeypatch.setattr(dataset, "test_list", sums[6:])
    monkeypatch.setattr(dataset, "meta", {"filename": "batches.meta", "key": "label_names", "md5": sums[0][1]})


def publish_svhn(folder, url, monkeypatch):
    files = {}
    for part, count in [("train", 40), ("test", 20)]:
        images, labels = numbered_images(count, 32, 32, 3)
        name = f"{part}_32x32.mat"
        # The published files have the images on the last axis and the label 10 for the digit 0.
        y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        scipy.io.savemat(folder / name, {"X": np.moveaxis(images, 0, -1), "y": y}, do_compression=True)
        files[part] = [url + name, name, md5((folder / name).read_bytes())]
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", files)


PUBLISH = {
    "mnist": partial(publish_idx, torchvision.datasets.MNIST),
    "fashion_mnist": partial(publish_idx, torchvision.datasets.FashionMNIST),
    "cifar10": publish_cifar10,
    "svhn": publish_svhn,
}


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A function that publishes a data set on 127.0.0.1 and returns the folder that is served."""
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


@pytest.mark.parametrize("name", SETS)
def test_files_are_downloaded_once_and_the_training_set_is_split(name, tmp_path, mirror):
    served, root = mirror(name), tmp_path / "new" / "data"
    augmentation = RandomWarp(translation=1)
    data = source(name, root, augmentation=augmentation)
    assert not root.exists(), "constructing a source must not write to the disk"
    splits = {split: data.load(split) for split in ("train", "validation", "test")}
    shutil.rmtree(served)
    again = data.load("validation")
    assert torch.equal(again.images, splits["validation"].images)
    assert not list(root.glob(".*")), "temporary folders remain"

    shape = (1, 28, 28) if "mnist" in name else (3, 32, 32)
    for split, count in [("train", 30), ("validation", 10), ("test", 20)]:
        part = splits[split]
        assert part.images.shape == (count, *shape) and part.images.dtype == torch.uint8
        assert part.images.is_contiguous() and part.labels.dtype == torch.int64
        assert len(part.classes) == 10
        assert torch.equal(part.images[:, 0, 0, 0] % 10, part.labels), "labels do not match their images"
        assert torch.equal(part.labels.bincount(), torch.full((10,), count // 10))
        assert part.augmentation is (augmentation if split == "train" else None)
    seen = torch.cat([splits["train"].images, splits["validation"].images])[:, 0, 0, 0]
    assert torch.equal(seen.sort().values, torch.arange(40, dtype=torch.uint8))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # torchvision keeps the failed response
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("damage", ["missing", "truncated", "silent"])
def test_a_failed_download_leaves_no_files(name, damage, tmp_path, mirror, monkeypatch):
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
    message = str(refusal.value)
    assert f"images.root={root}" in message and "\n" not in message
    assert not list(root.iterdir())
    victim.write_bytes(whole)
    source(name, root).load("train")
    del refusal
    gc.collect()


def stored_files(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", SETS)
def test_a_truncated_file_is_named_and_can_be_downloaded_again(name, tmp_path, mirror):
    mirror(name)
    data = source(name, tmp_path / "data")
    before = data.load("train").images
    for path in stored_files(tmp_path / "data"):
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(InputError, match=r"delete it to download it again") as refusal:
            data.load("test" if "t10k" in path.name else "train")
        assert str(path) in str(refusal.value)
        path.unlink()
        assert torch.equal(data.load("train").images, before)


@pytest.mark.parametrize("name", CHECKED)
def test_a_flipped_bit_is_detected_by_the_checksum_of_every_file(name, tmp_path, mirror):
    mirror(name)
    data = source(name, tmp_path / "data")
    data.load("train")
    data.load("test")
    for path in stored_files(tmp_path / "data"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        split = "test" if "t10k" in path.name or path.name.startswith("test_32") else "train"
        with pytest.raises(InputError, match=f"{path} cannot be read .*MD5.*: delete it to download it again"):
            data.load(split)
        path.write_bytes(content)


def test_different_numbers_of_images_and_labels_are_refused(tmp_path, mirror):
    mirror("fashion_mnist")
    data = source("fashion_mnist", tmp_path / "data")
    data.load("train")
    path = tmp_path / "data/FashionMNIST/raw/train-labels-idx1-ubyte"
    path.write_bytes(idx(np.zeros(39)))
    with pytest.raises(InputError, match="has 40 images, but train-labels-idx1-ubyte has 39 labels: delete both files"):
        data.load("train")


def test_cifar10_pickles_written_by_python_2_are_read(tmp_path, mirror):
    """Python 2 wrote a dtype with integers for booleans, about which some numpy versions warn."""
    mirror("cifar10")
    data = source("cifar10", tmp_path)
    data.load("train")
    path = tmp_path / "cifar-10-batches-py/test_batch"
    new = path.read_bytes()
    old = new.replace(b"numpy._core.multiarray", b"numpy.core.multiarray").replace(b"\x89\x88\x87", b"K\x00K\x01\x87")
    assert len(old) == len(new) + 1, "the pickle has another format than this test expects"
    path.write_bytes(old)
    torchvision.datasets.CIFAR10.test_list[0][1] = md5(old)
    assert len(data.load("test")) == 20


@pytest.mark.parametrize("name", SETS)
def test_a_root_that_is_not_writable_is_refused(name, tmp_path, mirror):
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


def test_an_unknown_split_is_refused():
    with pytest.raises(InputError, match="split must be one of"):
        MNIST().load("dev")


def test_mnist_holds_out_one_twelfth_of_every_class(tmp_path, monkeypatch):
    files = idx_files(240, 20)
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    for name, data in files.items():
        (raw / name).write_bytes(data)
    monkeypatch.setattr(MNIST, "md5", {name: md5(data) for name, data in files.items()})
    data = source("mnist", tmp_path)
    train, validation, test = (data.load(split) for split in ("train", "validation", "test"))
    assert train.labels.bincount().tolist() == [22] * 10
    assert validation.labels.bincount().tolist() == [2] * 10
    assert test.labels.tolist() == [*range(10), *range(10)]
    assert test.images[:, 0, 5, 7].tolist() == list(range(20))
    assert train.classes == tuple("0123456789")
    assert torch.equal(validation.images, data.load("validation").images)
