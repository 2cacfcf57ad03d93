"""A local HTTP server that the corpora download from."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace

import pytest

DATA = Path(__file__).parents[3] / "data"
collect_ignore = [] if DATA.is_dir() else ["test_published_data.py"]


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Serves ``mirror.folder`` at ``mirror.url`` with the handler class ``mirror.handler``."""

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


@pytest.fixture
def publish(mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, dict[str, bytes]], Path]:
    """Returns a function that serves given bytes as the published files of a corpus module."""

    def publish(module: ModuleType, files: dict[str, bytes]) -> Path:
        assert files.keys() == module._FILES.keys()
        published = {}
        for key, data in files.items():
            name = module._FILES[key][0]
            (mirror.folder / name).write_bytes(data)
            published[key] = (name, hashlib.sha256(data).hexdigest())
        monkeypatch.setattr(module, "_URL", mirror.url)
        monkeypatch.setattr(module, "_FILES", published)
        return mirror.folder

    return publish


@pytest.fixture
def publish_by_name(
    mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ModuleType, dict[str, bytes]], Path]:
    """The same as ``publish`` for a module with checksums by file name."""

    def publish(module: ModuleType, files: dict[str, bytes]) -> Path:
        assert files.keys() <= module._SHA256.keys()
        for name, data in files.items():
            (mirror.folder / name).write_bytes(data)
        monkeypatch.setattr(module, "_URL", mirror.url)
        monkeypatch.setattr(module, "_SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
        return mirror.folder

    return publish
