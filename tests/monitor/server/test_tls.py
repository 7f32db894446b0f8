"""The dashboard for others: by TLS alone, by one name, and never with files that do not work."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess

import pytest

for package in ("fastapi", "uvicorn", "websockets"):
    pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")

from websockets.sync import client  # noqa: E402

from tests.support.processes.command_lines import run_stage  # noqa: E402
from tests.support.processes.dashboard_process import dashboard  # noqa: E402

SCRIPT = "12_dashboard.py"
TOKEN = "secret-" * 6
OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="needs the command openssl, which makes a certificate")


def make_certificate(folder, name="host"):
    files = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        OPENSSL,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *subject, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


def write_token(out):
    out.mkdir()
    (out / "dashboard.token").touch(0o600)
    (out / "dashboard.token").write_text(TOKEN)


@pytest.mark.exhaustive
def test_others_are_answered_by_tls_and_by_its_name_alone(tmp_path, files):
    write_token(out := tmp_path / "out")
    flags = ("--attach", "--public", "localhost", "--tls-cert", files[0], "--tls-key", files[1], "--out", out)
    with dashboard(*flags) as (address, given):
        assert address.startswith("https://localhost:")
        assert given == TOKEN
        port, trusted = int(address.rpartition(":")[2]), ssl.create_default_context(cafile=files[0])

        def status(token=TOKEN, **headers):
            connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=trusted)
            connection.request("GET", "/api/metrics/current", headers={"Authorization": f"Bearer {token}", **headers})
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status

        assert status() == 200
        assert status("wrong") == 401
        assert status(Host=f"127.0.0.1:{port}") == 421
        assert status(Origin=f"http://localhost:{port}") == 403  # its own page comes by TLS
        assert status(Origin=address) == 200
        with client.connect(f"wss://localhost:{port}/ws/metrics", ssl=trusted, proxy=None) as connection:
            connection.send(json.dumps({"token": TOKEN}))
            assert json.loads(connection.recv(60))["tick"] > 0
        plain = http.client.HTTPConnection("localhost", port, timeout=60)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.request("GET", "/healthz")
            plain.getresponse()


@pytest.mark.parametrize("kind", ["no certificate", "another key", "an encrypted key", "nothing"])
def test_files_that_do_not_work_are_refused_before_anything_waits(tmp_path, files, kind):
    certificate, key = files
    if kind == "no certificate":
        certificate = tmp_path / "none.pem"
        certificate.write_text("hello\n")
    elif kind == "another key":
        _, key = make_certificate(tmp_path, "other")
    elif kind == "an encrypted key":
        key = tmp_path / "locked.key"
        command = [OPENSSL, "ec", "-aes256", "-passout", "pass:word", "-in", files[1], "-out", key]
        subprocess.run(command, check=True, capture_output=True)
    else:
        key = tmp_path / "empty.key"
        key.touch()
    write_token(out := tmp_path / "out")
    done = run_stage(SCRIPT, "--attach", "--port", "0", "--tls-cert", certificate, "--tls-key", key, "--out", out)
    assert done.returncode == 2
    assert "--tls-cert: cannot be used with its key" in done.stderr
    assert done.stderr.count("\n") == 1
