"""A mirror on this machine, from which the corpora download."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Serves ``mirror.folder`` at ``mirror.url`` through ``mirror.handler``."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    folder = tmp_path / "mirror"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield SimpleNamespace(folder=folder, url=f"http://127.0.0.1:{server.server_port}/", handler=Handler)
        server.shutdown()
        thread.join()


def _place(module: ModuleType) -> str:
    """Where the module says where it downloads from; another corpus may take it from there."""
    return "URL" if hasattr(module, "URL") else "_URL"


@pytest.fixture
def publish(mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, dict[str, bytes]], Path]:
    """Call it with the module of a corpus and the bytes of its files, to serve these as the published ones."""

    def publish(module: ModuleType, files: dict[str, bytes]) -> Path:
        assert files.keys() == module._FILES.keys()
        published = {}
        for key, data in files.items():
            name = module._FILES[key][0]
            (mirror.folder / name).write_bytes(data)
            published[key] = (name, hashlib.sha256(data).hexdigest())
        monkeypatch.setattr(module, _place(module), mirror.url)
        monkeypatch.setattr(module, "_FILES", published)
        return mirror.folder

    return publish


@pytest.fixture
def publish_by_name(
    mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ModuleType, dict[str, bytes]], Path]:
    """As ``publish``, for a corpus that knows the sums of its files by their names."""

    def publish(module: ModuleType, files: dict[str, bytes]) -> Path:
        assert files.keys() <= module._SHA256.keys()
        for name, data in files.items():
            (mirror.folder / name).write_bytes(data)
        monkeypatch.setattr(module, _place(module), mirror.url)
        monkeypatch.setattr(module, "_SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
        return mirror.folder

    return publish
