"""A version follows from the modules of some packages and from the versions of others, and from nothing else."""

from common.process import code_version


def test_a_version_follows_from_the_code_that_computes(tmp_path, monkeypatch):
    package = tmp_path / "computes_designs"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "one.py").write_text("a = 1")
    monkeypatch.syspath_prepend(tmp_path)

    def version():
        return code_version.code_version.__wrapped__(("computes_designs",), ("numpy", "no-such-package"))

    versions = [version()]
    (package / "inner" / "one.py").write_text("a = 2")
    versions.append(version())
    (package / "inner" / "one.py").rename(package / "inner" / "two.py")
    versions.append(version())
    (package / "notes.txt").write_text("no code")
    assert version() == versions[-1]
    monkeypatch.setattr(code_version, "version", lambda name: "99")
    versions.append(version())
    assert len(set(versions)) == 4
