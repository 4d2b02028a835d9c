#!/usr/bin/env python3
"""What ./mgplan promises: start at once when built, rebuild when sources change, one build at a time, a clear word when
something is missing. Works on a small stand-in project that uses the real wrapper; needs no network and no root."""

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
WRAPPER_FILES = ("mgplan", "cmake/setup.sh")

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.25)
project(stand_in LANGUAGES CXX)
add_subdirectory(plan)
"""
PLAN_LISTS = """add_executable(mgplan main.cpp)
add_executable(mgplan_without_training main.cpp)
set_target_properties(mgplan mgplan_without_training PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
"""
PRESETS = """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}"""
MAIN = """#include <cstdio>
#include <unistd.h>
int main(int argc, char** argv) {
    char text[4096];
    std::printf("version 1\\ncwd %s\\n", getcwd(text, sizeof text));
    for (int i = 1; i < argc; ++i) std::printf("arg %s\\n", argv[i]);
    while (std::fgets(text, sizeof text, stdin)) std::printf("in %s", text);
    return argc > 1 ? 3 : 0;
}
"""
# dpkg-query that knows the packages named in $INSTALLED, one to a line, or all.
DPKG_QUERY = """#!/bin/sh
for word; do
  case $word in -*|*db:Status*) ;; *) if [ "$(cat "$INSTALLED")" = all ] || grep -qx "$word" "$INSTALLED"; then printf '%s:installed ' "$word"; fi ;; esac
done
"""


class Wrapper(unittest.TestCase):
    def setUp(self):
        # A space in the path, as users have it.
        self.folder = Path(tempfile.mkdtemp(prefix="mgplan wrapper "))
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "project"
        self.fakes = self.folder / "fakes"
        self.fakes.mkdir()
        for name in WRAPPER_FILES:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, self.root / name)
        self.write("CMakeLists.txt", CMAKE_LISTS)
        self.write("CMakePresets.json", PRESETS)
        self.write("plan/CMakeLists.txt", PLAN_LISTS)
        self.write("plan/main.cpp", MAIN)
        self.write("configs/models/a.json", "{}")
        self.installed = self.folder / "installed"
        self.installed.write_text("all\n")
        self.ninja_calls = self.folder / "ninja_calls"
        self.fake("dpkg-query", DPKG_QUERY)
        # CMake calls it too while it configures, but not with -j.
        self.fake("ninja", f'#!/bin/sh\n[ "$3" = -j ] && echo called >> "{self.ninja_calls}"\nexec "{shutil.which("ninja")}" "$@"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def fake(self, name, text):
        path = self.fakes / name
        path.write_text(text)
        path.chmod(0o755)

    def environment(self):
        return {**os.environ, "PATH": f"{self.fakes}:{os.environ['PATH']}", "INSTALLED": str(self.installed)}

    def call(self, *args, cwd=None, wrapper=None, stdin=""):
        return subprocess.run(
            [str(wrapper or self.root / "mgplan"), *args],
            cwd=cwd or self.folder,
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def builds(self):
        return len(self.ninja_calls.read_text().splitlines()) if self.ninja_calls.exists() else 0

    def assert_runs(self, result, version="version 1"):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[0], version)

    def test_first_call_builds_and_later_calls_start_at_once(self):
        first = self.call()
        self.assert_runs(first)
        self.assertIn("first build", first.stderr)
        self.assertEqual(self.builds(), 1)

        second = self.call()
        self.assert_runs(second)
        self.assertEqual(second.stderr, "")
        self.assertEqual(self.builds(), 1)

        def seconds(command):
            start = time.perf_counter()
            subprocess.run([str(command)], env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, check=True)
            return time.perf_counter() - start

        direct = statistics.median(seconds(self.root / "build/release/bin/mgplan_without_training") for _ in range(9))
        wrapped = statistics.median(seconds(self.root / "mgplan") for _ in range(9))
        # A few milliseconds on an idle machine; tests share theirs.
        self.assertLess(wrapped - direct, 0.1)

    def test_arguments_input_folder_and_exit_code_are_the_users(self):
        self.assert_runs(self.call())
        elsewhere = self.folder / "else where"
        elsewhere.mkdir()
        result = self.call("--model", "a b", "", "*", cwd=elsewhere, stdin="one\ntwo\n")
        self.assertEqual(result.stdout, f"version 1\ncwd {elsewhere}\narg --model\narg a b\narg \narg *\nin one\nin two\n")
        self.assertEqual(result.returncode, 3)

    def test_first_build_leaves_standard_input_to_the_command(self):
        result = self.call(stdin="kept\n")
        self.assertIn("in kept", result.stdout)

    def test_every_way_of_calling_finds_the_project(self):
        self.assert_runs(self.call())
        link = self.folder / "bin" / "mgplan"
        link.parent.mkdir()
        link.symlink_to(self.root / "mgplan")
        self.assert_runs(self.call(wrapper=link))
        self.assert_runs(self.call(wrapper="./mgplan", cwd=self.root))
        self.assert_runs(self.call(wrapper="../mgplan", cwd=self.root / "plan"))
        in_shell = subprocess.run(["bash", "mgplan"], cwd=self.root, env=self.environment(), input="", capture_output=True, text=True, check=False)
        self.assert_runs(in_shell)
        self.assertEqual(self.builds(), 1)

    def test_changed_new_and_removed_sources_rebuild(self):
        self.assert_runs(self.call())
        self.write("plan/main.cpp", MAIN.replace("version 1", "version 2"))
        self.assert_runs(self.call(), "version 2")
        self.assertEqual(self.builds(), 2)
        self.write("configs/models/b.json", "{}")
        self.assert_runs(self.call(), "version 2")
        self.assertEqual(self.builds(), 3)
        (self.root / "configs/models/b.json").unlink()
        self.assert_runs(self.call(), "version 2")
        self.assertEqual(self.builds(), 4)
        self.assert_runs(self.call(), "version 2")
        self.assertEqual(self.builds(), 4)

    def test_files_that_the_command_is_not_made_of_do_not_rebuild(self):
        self.assert_runs(self.call())
        self.write("README.md", "new\n")
        self.write("tests/plan/new_test.cpp", "new\n")
        self.write("tests/CMakeLists.txt", "new\n")
        self.write("plan.json", "{}\n")
        self.assert_runs(self.call())
        self.assertEqual(self.builds(), 1)

    def test_calls_at_the_same_time_build_once(self):
        calls = [
            subprocess.Popen(
                [str(self.root / "mgplan")], env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(4)
        ]
        results = [(call.communicate(timeout=300), call.returncode) for call in calls]
        for (stdout, stderr), code in results:
            self.assertEqual(code, 0, stderr)
            self.assertEqual(stdout.splitlines()[0], "version 1")
        self.assertEqual(self.builds(), 1)
        self.assertTrue(any("another build is running" in stderr for (_, stderr), _ in results))

    def test_a_broken_source_shows_the_error_and_the_log(self):
        self.write("plan/main.cpp", "int main() { return forgotten; }\n")
        result = self.call()
        self.assertEqual(result.returncode, 4)
        self.assertEqual(result.stdout, "")
        self.assertIn("forgotten", result.stderr)
        log = self.root / "build/release/mgplan_build.log"
        self.assertIn(str(log), result.stderr)
        self.assertIn("forgotten", log.read_text())
        # Also where a program of an earlier build lies there: it is not what the sources say.
        self.write("plan/main.cpp", MAIN)
        self.assert_runs(self.call())
        self.write("plan/main.cpp", "int main() { return forgotten; }\n")
        self.assertEqual(self.call().returncode, 4)
        self.assertEqual(self.call().returncode, 4)

    def test_a_failed_configuration_shows_the_error(self):
        self.write("CMakeLists.txt", CMAKE_LISTS + 'message(FATAL_ERROR "no luck today")\n')
        result = self.call()
        self.assertEqual(result.returncode, 4)
        self.assertIn("no luck today", result.stderr)
        self.write("CMakeLists.txt", CMAKE_LISTS)
        self.assert_runs(self.call())

    def test_a_build_killed_anywhere_is_taken_up_again(self):
        # The stand-in's program says which features its configuration found; OpenBLAS is installed before the second build.
        lists = (
            CMAKE_LISTS.replace("add_sub", f'file(STRINGS "{self.installed}" installed)\nif(installed MATCHES "all")\n  set(features OPENBLAS)\nendif()\n'
            'file(WRITE ${PROJECT_BINARY_DIR}/mgplan_features "${features}\\n")\nadd_compile_definitions(FEATURES="${features}")\nadd_sub')
        )
        self.write("CMakeLists.txt", lists)
        self.write("plan/main.cpp", MAIN.replace("version 1\\n", 'version 1 " FEATURES "\\n'))
        self.installed.write_text("libfmt-dev\nnlohmann-json3-dev\nlibyaml-cpp-dev\nlibboost-program-options-dev\n")
        self.assertEqual(self.call("completion").stdout.splitlines()[0], "version 1 ")  # all of mgplan, without OpenBLAS
        self.installed.write_text("all\n")
        saved = self.folder / "saved"
        shutil.copytree(self.root, saved, symlinks=True)

        def start_run():
            return subprocess.Popen(
                [str(self.root / "mgplan"), "run"], env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )

        def restore():
            shutil.rmtree(self.root)
            shutil.copytree(saved, self.root, symlinks=True)

        begun = time.perf_counter()
        start_run().communicate(timeout=300)
        whole = time.perf_counter() - begun
        for place in range(1, 11):
            restore()
            process = start_run()
            time.sleep(whole * place / 11)
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # a quick one had ended
                pass
            process.communicate(timeout=300)
            with self.subTest(killed_after=f"{place}/11 of {whole:.2f} s"):
                self.assertEqual(self.call("run").stdout.splitlines()[0], "version 1 OPENBLAS")

    def test_what_trains_is_built_when_a_command_trains(self):
        features = 'file(WRITE ${PROJECT_BINARY_DIR}/mgplan_features "OPENBLAS\\n")\n'
        self.write("CMakeLists.txt", CMAKE_LISTS + features)
        whole = self.root / "build/release/bin/mgplan"
        for arguments in ([], ["plan"], ["check"], ["help"], ["help", "simulate"], ["--help"]):
            self.assertIn(self.call(*arguments).returncode, (0, 3))
            self.assertFalse(whole.exists(), arguments)
        self.assertEqual(self.builds(), 1)
        self.assertEqual(self.call("help", "run").returncode, 3)
        self.assertTrue(whole.exists())
        # Now the whole program answers everything; nothing is built again.
        self.assert_runs(self.call())
        self.assertEqual(self.call("completion").returncode, 3)
        self.assertEqual(self.builds(), 2)

    def test_a_moved_project_builds_again(self):
        self.assert_runs(self.call())
        moved = self.folder / "moved"
        self.root.rename(moved)
        self.root = moved
        self.assert_runs(self.call())
        self.assertEqual(self.builds(), 1)
        self.write("plan/main.cpp", MAIN.replace("version 1", "version 2"))
        self.assert_runs(self.call(), "version 2")

    def test_missing_packages_are_named_where_they_cannot_be_installed(self):
        self.installed.write_text("libfmt-dev\nlibboost-program-options-dev\n")
        self.fake("id", "#!/bin/sh\necho 1000\n")
        self.fake("sudo", "#!/bin/sh\nexit 1\n")
        self.fake("apt-get", f'#!/bin/sh\necho "$@" >> "{self.folder}/apt_calls"\n')
        result = self.call()
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertIn("missing packages: nlohmann-json3-dev libyaml-cpp-dev\n", result.stderr)
        self.assertIn("apt-get install --no-install-recommends nlohmann-json3-dev libyaml-cpp-dev\n", result.stderr)
        self.assertFalse((self.folder / "apt_calls").exists())
        self.assertEqual(self.builds(), 0)

    def test_only_a_command_that_trains_asks_for_what_training_needs(self):
        # The stand-in's configuration finds OpenBLAS where its package is installed.
        found = f'file(STRINGS "{self.installed}" installed)\nif(installed MATCHES "all")\n  set(features OPENBLAS)\nendif()\n'
        self.write("CMakeLists.txt", CMAKE_LISTS + found + 'file(WRITE ${PROJECT_BINARY_DIR}/mgplan_features "${features}\\n")\n')
        self.installed.write_text("libfmt-dev\nnlohmann-json3-dev\nlibyaml-cpp-dev\nlibboost-program-options-dev\n")
        self.fake("id", "#!/bin/sh\necho 1000\n")
        self.fake("sudo", "#!/bin/sh\nexit 1\n")
        self.assert_runs(self.call())
        refused = self.call("run", "plan.json")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("missing packages: libopenblas-serial-dev\n", refused.stderr)
        self.assertEqual(self.builds(), 1)
        self.installed.write_text("all\n")
        self.assertIn("arg run", self.call("run").stdout)
        self.assertEqual(self.builds(), 2)
        self.assertIn("arg run", self.call("run").stdout)
        self.assertEqual(self.builds(), 2)

    def test_only_a_command_that_asks_for_a_gpu_builds_the_cuda_module(self):
        features = 'file(WRITE ${PROJECT_BINARY_DIR}/mgplan_features "OPENBLAS\\n")\n'
        module = "add_custom_target(mgplan_and_cuda COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/module DEPENDS mgplan)\n"
        self.write("CMakeLists.txt", CMAKE_LISTS + features + module)
        made = self.root / "build/release/module"
        for arguments in (["plan", "--device", "cuda"], ["run", "p.json"], ["run", "p.json", "--device", "cpu"]):
            self.assertEqual(self.call(*arguments).returncode, 3)
            self.assertFalse(made.exists(), arguments)
        for arguments in (["run", "p.json", "--device", "cuda"], ["run", "--device=cuda", "p.json"]):
            self.assertEqual(self.call(*arguments).returncode, 3)
            self.assertTrue(made.exists(), arguments)

    def test_missing_packages_are_installed_as_root(self):
        self.installed.write_text("libfmt-dev\nlibboost-program-options-dev\nlibyaml-cpp-dev\n")
        self.fake("id", "#!/bin/sh\necho 0\n")
        self.fake("apt-get", f'#!/bin/sh\necho "$DEBIAN_FRONTEND $@" >> "{self.folder}/apt_calls"\ncase "$*" in *install*) echo all > "$INSTALLED" ;; esac\n')
        self.assert_runs(self.call())
        update, install = (self.folder / "apt_calls").read_text().splitlines()
        self.assertTrue(update.startswith("noninteractive") and update.endswith(" update"), update)
        self.assertTrue(install.endswith(" install -y --no-install-recommends nlohmann-json3-dev"), install)

    def test_missing_packages_are_installed_through_sudo(self):
        self.installed.write_text("libfmt-dev\n")
        self.fake("id", "#!/bin/sh\necho 1000\n")
        self.fake("sudo", f'#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\necho "$@" >> "{self.folder}/sudo_calls"\nexec "$@"\n')
        self.fake("apt-get", '#!/bin/sh\ncase "$*" in *install*) echo all > "$INSTALLED" ;; esac\n')
        self.assert_runs(self.call())
        self.assertIn("DEBIAN_FRONTEND=noninteractive apt-get", (self.folder / "sudo_calls").read_text())

    def test_a_failed_installation_is_told_with_its_log(self):
        self.installed.write_text("libfmt-dev\n")
        self.fake("id", "#!/bin/sh\necho 0\n")
        self.fake("apt-get", "#!/bin/sh\necho E: no network here >&2\nexit 100\n")
        result = self.call()
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertIn("E: no network here", result.stderr)
        self.assertIn("apt-get update && apt-get install", result.stderr)
        self.assertIn("packages.log", result.stderr)


if __name__ == "__main__":
    unittest.main()
