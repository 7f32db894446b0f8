"""The table of mapped models."""

import pytest

from benchmarks.designs import layers


@pytest.fixture(autouse=True)
def few_evaluations_and_no_limits(monkeypatch):
    for name, value in (("EVALUATIONS", 5), ("LARGEST_S", 1e9), ("LARGEST_MB", 1e9)):
        monkeypatch.setattr(layers, name, value)


@pytest.mark.slow
def test_a_model_without_weights_is_counted_and_mapped(capsys):
    assert layers.main(["--models", "resnet18"]) == 0
    header, line, *engines = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["gemmini", "layers", "distinct", "evaluated"]
    words = line.split()
    assert words[:3] == ["resnet18", "21", "12"]
    assert float(words[6]) == pytest.approx(4.3333e10, rel=1e-4)
    assert [words[0] for words in map(str.split, engines)][:2] == ["random", "two-step"]
    for words in map(str.split, engines):
        assert len(words) == 1 + 3
        assert all(float(ratio) >= 1 for ratio in words[1:])


@pytest.mark.slow
def test_a_limit_that_is_not_kept_fails(monkeypatch, tmp_path):
    nests = layers.nests_of("resnet18", tmp_path)
    first = dict([next(iter(nests.items()))])
    monkeypatch.setattr(layers, "nests_in", lambda folder: first)
    assert layers.main(["--models", "--tables", "any"]) == 0
    monkeypatch.setattr(layers, "LARGEST_MB", 1.0)
    assert layers.main(["--models", "--tables", "any"]) == 1
