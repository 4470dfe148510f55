"""Where a MODEL argument leads, and the one sentence that tells when it leads nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from kvtally.core.errors import InputError, KvtallyError, MissingExtraError, UnreadableError
from kvtally.pure.model import LARGEST_FILE, find_config, read_model

TINY = {"model_type": "llama", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "vocab_size": 11}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


def test_a_file_a_folder_and_a_catalogue_name(folder: Path) -> None:
    file = str(folder / "config.json")
    assert find_config(file) == (TINY, file)
    assert find_config(str(folder)) == (TINY, file)
    assert read_model(str(folder)) == read_model(file)
    assert read_model(file).held(3) == 2 * 3 * 2 * 48
    assert find_config("mixtral-8x7b")[0]["num_local_experts"] == 8
    assert read_model("mixtral-8x7b").name == "mixtral-8x7b"


def test_source_is_passed_on() -> None:
    assert read_model("t5-base", source=7).layers[0].held(0) == 7 * 2 * 768
    with pytest.raises(InputError, match=r"^t5-base: `source` is not given"):
        read_model("t5-base")


def test_errors_name_the_file(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(TINY | {"num_hidden_layers": 0}))
    with pytest.raises(InputError) as caught:
        read_model(str(folder))
    assert str(caught.value).startswith(f"{file}: `num_hidden_layers` is 0, expected")


CONTENTS = [
    (b"{'a': 1}", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    (b"[1, 2]", "is [1, 2], expected a JSON object"),
    (b"", "is not JSON: Expecting value at line 1, column 1"),
    (b'{\n"a": }', "is not JSON: Expecting value at line 2, column 6"),
    (b'{"a": "\xff"}', "is not JSON: byte 7 is no UTF-8 text"),
    (b"[" * 100_000, "is JSON nested too deep, expected a config of a few levels"),
    (b'{"a": ' + b"9" * 5000 + b"}", "is JSON that cannot be read: Exceeds the limit (4300 digits)"),
]


@pytest.mark.parametrize(("content", "said"), CONTENTS)
def test_a_file_that_is_no_config(folder: Path, content: bytes, said: str) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_model(str(folder))
    assert str(caught.value).startswith(f"{folder / 'config.json'}: {said}")
    assert caught.value.hint == "give the config.json that lies beside the weights"


def test_a_file_too_large_is_refused_unread(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse: to read it would take minutes
    with pytest.raises(
        InputError, match=r"config\.json: is 1,099,511,627,776 bytes, expected a config of at most 16,777"
    ):
        read_model(str(folder))
    assert LARGEST_FILE == 16_777_216


LONG = "a" * 300  # longer than a file system takes
MISSING = ["nowhere/config.json", "./nowhere", "/nowhere", "missing.gguf", "missing.json", f"{LONG}.json"]
MISSING += [f"{LONG}.gguf", f"./{LONG}"]


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_file(name: str) -> None:
    with pytest.raises(
        UnreadableError, match=r"no such file\n\nhint: name a config.json, its folder, a .gguf file"
    ) as caught:
        read_model(name)
    assert caught.value.exit_code == 3
    assert caught.value.where == str(Path(name))


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"config\.json: no such file"):
        read_model(str(tmp_path))


def test_no_regular_file() -> None:
    with pytest.raises(UnreadableError, match=r"^/dev/zero: is no regular file"):
        read_model("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_that_may_not_be_read(folder: Path) -> None:
    (folder / "config.json").chmod(0)
    with pytest.raises(UnreadableError, match="cannot be read: Permission denied"):
        read_model(str(folder))


@pytest.mark.parametrize("name", ["lama-3.1-8b", "", "a\0b", "x" * 5000, "a/b/c", "@/@"])
def test_a_name_that_leads_nowhere(name: str) -> None:
    with pytest.raises(KvtallyError):
        read_model(name)


def test_a_hub_id_without_huggingface_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError) as caught:
        read_model("org/name")
    assert str(caught.value) == (
        "`org/name` is taken for a Hugging Face id, and reading one needs huggingface_hub\n\n"
        "hint: pip install 'kvtally[hf]'"
    )
    assert caught.value.exit_code == 3


@pytest.fixture
def hub(tmp_path: Path) -> dict[str, str]:
    """An environment whose HF_HOME holds one cached model, `org/tiny`, and that is offline."""
    model = tmp_path / "hub" / "models--org--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    (model / "snapshots" / commit).mkdir(parents=True)
    (model / "snapshots" / commit / "config.json").write_text(json.dumps(TINY))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_"))}
    return kept | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}


def ask(names: list[str], environment: dict[str, str]) -> list[str]:
    """What `find_config` says of each name, in a process of its own: the library reads its settings once."""
    code = """
        import sys
        from kvtally.core.errors import KvtallyError
        from kvtally.pure.model import find_config
        for name in sys.argv[1:]:
            try:
                print(find_config(name))
            except KvtallyError as error:
                print(error.exit_code, error.where, error.problem, '|', error.hint)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()


def test_a_hub_id_in_the_local_cache(hub: dict[str, str]) -> None:
    pytest.importorskip("huggingface_hub")
    cached, absent, invalid = ask(["org/tiny", "org/absent", "org/a..b"], hub)
    assert cached == repr((TINY, "org/tiny/config.json"))
    here = f"not in the local cache ({hub['HF_HOME']}/hub)"
    assert absent == f"3 org/absent {here}, and HF_HUB_OFFLINE is set | unset it, or name a file"
    assert invalid == "2  `org/a..b` is no file, no folder and no valid Hugging Face id | "


class Hub(BaseHTTPRequestHandler):
    """A hub on this machine: one model with a config, and the ways in which a hub says no."""

    says: ClassVar[dict[str, tuple[int, str]]] = {
        "gated": (403, "GatedRepo"),
        "absent": (404, "RepoNotFound"),
        "bare": (404, "EntryNotFound"),
        "broken": (501, ""),
    }

    def do_HEAD(self) -> None:
        name = self.path.split("/")[2]
        status, code = self.says.get(name, (200, ""))
        self.send_response(status)
        headers = {"X-Error-Code": code} if code else {"ETag": '"1"', "X-Repo-Commit": "0" * 40}
        for key, value in (headers | {"Content-Length": str(len(json.dumps(TINY)))}).items():
            self.send_header(key, value)
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(json.dumps(TINY).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_hub_that_answers_and_one_that_says_no(hub: dict[str, str]) -> None:
    pytest.importorskip("huggingface_hub")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        said = ask([f"org/{name}" for name in ("there", "tiny", *Hub.says)], hub)
        server.shutdown()
    assert said == [
        repr((TINY, "org/there/config.json")),
        repr((TINY, "org/tiny/config.json")),
        "3 org/gated the hub gives this model to those who accepted its licence | accept the licence on the hub "
        "and log in with `hf auth login`",
        "3 org/absent no such file or folder here, and the hub knows no such model | check the spelling: "
        "https://huggingface.co/org/absent",
        "3 org/bare the model on the hub has no config.json | name another model, or a file",
        f"3 org/broken not in the local cache ({hub['HF_HOME']}/hub), and the hub cannot be reached | check the "
        "connection, or name a file",
    ]
