#!/usr/bin/env python3
"""tests/gpu/pack, with compilers that are faked: pack_test.py MGPLAN [GPU_ALL]"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import faked
import bundle as bundles
import make_bundle
from faked import HERE, ROOT
from fake_card import executable, headers


class Pack(faked.Scripts):
    def test_a_bundle_without_plans_is_no_prediction(self):
        plans = self.build / "plans" / "plans.json"
        kept = plans.read_text(encoding="utf-8")
        try:
            for text in ("", "[]", json.dumps([each for each in json.loads(kept) if each["name"].startswith("parity")])):
                plans.write_text(text, encoding="utf-8")
                code, said, _ = self.run_script("prediction", out="planless")
                self.assertEqual(code, 2, said)
                self.assertIn("plans.json names no plan to judge; make the bundle again with tests/gpu/pack", said)
        finally:
            plans.write_text(kept, encoding="utf-8")

    def test_whatever_the_program_includes_makes_another_bundle(self):
        of_tests = {Path(line.split('"')[1]).parent for path in HERE.glob("*.[ch]pp") for line in path.read_text(encoding="utf-8").splitlines()
                    if line.startswith('#include "')}
        for folder in of_tests:
            self.assertTrue(any(folder == Path(known) or Path(known) in folder.parents for known in bundles.SOURCE_FOLDERS), folder)
        self.assertLessEqual({"CMakeLists.txt", "CMakePresets.json"}, set(bundles.SOURCE_FILES))
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "tests" / "support").mkdir(parents=True)
            known = {bundles.sources_id(root)}
            for path in ("CMakeLists.txt", "CMakePresets.json", "tests/support/small_training.hpp"):
                (root / path).write_text("one", encoding="utf-8")
                known.add(bundles.sources_id(root))
            self.assertEqual(len(known), 4)

    def test_pack_builds_with_what_it_needs_and_says_what_is_missing(self):
        # Only the compilers are faked: what a build leaves is written by "ninja".
        tree = self.folder / "clone"
        shutil.copytree(self.tree / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "cmake").mkdir()
        shutil.copy(ROOT / "cmake" / "setup.sh", tree / "cmake")
        tools = self.folder / "tools"
        executable(tools / "cmake", f"""#!/bin/sh
echo "$@" >'{tree}/cmake.words'
case $FAKE_BUILD in cuda) echo 'CMake Error: MGPLAN_WITH_CUDA is on, but the compiler nvcc was not found' >&2; exit 1 ;; esac
mkdir -p build/portable/CMakeFiles
echo "CMAKE_HOME_DIRECTORY:INTERNAL={tree}
{headers(self.folder / 'headers').strip()}
MGPLAN_CUDA_ARCHITECTURES:STRING=80-real" >build/portable/CMakeCache.txt
""")
        executable(tools / "ninja", f"""#!/bin/sh
mkdir -p '{tree}/build/portable/gpu/bin'
printf '#!/bin/sh\nshift\nexec "{faked.MGPLAN}" "$@"\n' >'{tree}/build/portable/gpu/bin/gpu_all'
chmod +x '{tree}/build/portable/gpu/bin/gpu_all'
echo '[1/1] Linking'
""")
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        pack = [tree / "tests" / "gpu" / "pack", "--architectures", "80-real"]
        done = subprocess.run(pack, capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = (tree / "cmake.words").read_text(encoding="utf-8")
        for word in ("--preset portable", "-DMGPLAN_WITH_CUDA=on", "-DMGPLAN_WITH_CUDNN=on", "-DMGPLAN_WITH_NCCL=on",
                     "-DMGPLAN_WITH_OPENBLAS=on", "-DMGPLAN_CUDA_ARCHITECTURES=80-real"):
            self.assertIn(word, words)
        self.assertTrue((tree / "build" / "portable" / "gpu.tar.xz").exists())
        self.assertRegex(done.stdout, r"build/portable/gpu\.tar\.xz: \d+\.\d MB, with the tree \d+\.\d MiB; commit ")
        for command in ("borrowed --seconds 500", "correctness", "speed", "prediction"):
            self.assertIn(f"tests/gpu/run {command}", done.stdout)
        self.assertRegex(done.stderr, r"done in \d+ min \d+ s, \d+ s of processor time\n")
        done = subprocess.run(pack, capture_output=True, text=True, env={**environment, "FAKE_BUILD": "cuda"})
        self.assertEqual(done.returncode, 4)
        self.assertIn("the compiler nvcc was not found", done.stderr)

    def test_code_runs_on_cards_of_its_major_version_and_ptx_on_later_ones(self):
        for architecture, cards in (("90-real", {90}), ("80-real", {80, 86, 89}), ("90a-real", {90}), ("90", {90, 100, 120}),
                                    ("80-virtual", {80, 86, 89, 90, 100, 120}), ("86-real", {86, 89})):
            self.assertEqual({card for card in (75, 80, 86, 89, 90, 100, 120) if bundles.runs_on(architecture, card)}, cards, architecture)

    def test_pack_refuses_what_is_too_large_and_leaves_no_link(self):
        build = self.folder / "packed"
        executable(build / "gpu" / "bin" / "gpu_all", f'#!/bin/sh\nshift\nexec "{faked.MGPLAN}" "$@"\n')
        (build / "gpu" / "lib").mkdir()
        (build / "gpu" / "lib" / "libreal.so.1.2").write_bytes(b"code")
        (build / "gpu" / "lib" / "libreal.so.1").symlink_to("libreal.so.1.2")
        (build / "CMakeCache.txt").write_text("MGPLAN_CUDA_ARCHITECTURES:STRING=90-real;100\n" + headers(build / "include"), encoding="utf-8")
        pack = [sys.executable, self.tree / "tests" / "gpu" / "make_bundle.py", build]
        done = subprocess.run(pack, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tests/gpu/run correctness", done.stdout)
        with tarfile.open(build / "gpu.tar.xz") as tar:
            names = {member.name for member in tar.getmembers()}
            self.assertFalse([member.name for member in tar.getmembers() if not member.isfile()])
            about = json.load(tar.extractfile("gpu/bundle.json"))
            plans = json.load(tar.extractfile("gpu/plans/plans.json"))
        self.assertIn("gpu/lib/libreal.so.1", names)
        self.assertEqual(about["architectures"], ["90-real", "100"])
        self.assertEqual((about["sources"], about["libraries"]), (self.about["sources"], self.about["libraries"]))
        self.assertEqual({plan["name"] for plan in plans if plan["rank"] >= 0}, set(make_bundle.RANKS))
        self.assertEqual([plan["name"] for plan in plans if plan["first"]], list(make_bundle.FIRST))
        self.assertIn("nemotron-h-8b-pp4", make_bundle.FIRST)  # a hybrid
        self.assertTrue({f"gpu/plans/{plan['file']}" for plan in plans} <= names)
        smaller = "import sys; sys.path.insert(0, sys.argv[1]); import make_bundle as m; m.MOST_BYTES = 100; m.make_plans = print; "
        smaller += "from pathlib import Path; sys.exit(m.main(Path(sys.argv[2])))"
        done = subprocess.run([sys.executable, "-c", smaller, self.tree / "tests" / "gpu", build], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("too large: at most 0 MB", done.stderr)
        (build / "include" / "cudnn_version.h").write_text("#include <cudnn_version_v9.h>\n", encoding="utf-8")
        done = subprocess.run(pack, capture_output=True, text=True)
        self.assertEqual(done.returncode, 4)
        self.assertIn("do not tell the version of cudnn, by which run knows", done.stderr)
        done = subprocess.run([ROOT / "tests" / "gpu" / "pack", "--architectures", "hopper"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--architectures = 'hopper' is no list", done.stderr)


if __name__ == "__main__":
    faked.main()
