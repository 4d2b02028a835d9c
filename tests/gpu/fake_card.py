"""A faked card for tests of the scripts: gpu_all, nvidia-smi and compute-sanitizer.

The faked gpu_all hands `mgplan` on to the real one, on the CPU and with tiny models, so that reports, cluster file and runs of two processes
are real; its tests and measurements are lines and numbers made up here."""

FAKE_PROGRAM = r"""#!/usr/bin/env bash
what=$1
shift
case $what in
    test)
        case ${FAKE_COMPUTE:-9.0}+$* in 8.0+*Fp8* | 8.9+*Fp8Blocks* | 12.0+*Fp8Blocks*) FAKE_TESTS=skip ;; esac
        case ${FAKE_TESTS:-pass} in
            pass) printf '[ RUN      ] One.Test\n[       OK ] One.Test (0 ms)\ngpu_all test: 1 passed, 0 skipped, 0 failed\n' ;;
            skip) printf '[ RUN      ] One.Test\na.cpp:1: Skipped\nlibcublasLt.so.13: cannot open shared object file\n[  SKIPPED ] One.Test (0 ms)\ngpu_all test: 0 passed, 1 skipped, 0 failed\n' && exit 77 ;;
            some) printf 'gpu_all test: 3 passed, 1 skipped, 0 failed\n' && exit 1 ;;
            fail) printf '[ RUN      ] One.Test\n[  FAILED  ] One.Test (0 ms)\ngpu_all test: 1 passed, 0 skipped, 1 failed\n' && exit 1 ;;
            none) printf 'gpu_all test: 0 passed, 0 skipped, 0 failed\n' ;;
            mute) ;;
            lie) printf 'gpu_all test: 1 passed, 0 skipped, 0 failed\n' && exit 3 ;;
            crash) printf '[ RUN      ] One.Test\n' && kill -SEGV $$ ;;
            hang) printf '[ RUN      ] One.Test\n' && touch "$FAKE/hangs" && sleep 100 ;;
        esac ;;
    bench)
        [[ ${FAKE_TESTS:-pass} == loader ]] && echo 'gpu_all bench: the CUDA module cannot be loaded (libcublasLt.so.13: cannot open shared object file)' >&2 && exit 77
        cp "$FAKE/${1#--}.json" "$2" ;;
    nccl)
        [[ -n $NCCL_HOSTID && $CUDA_DEVICE_MAX_CONNECTIONS == 32 ]] || exit 9
        [[ $FAKE_TESTS == mute ]] && exit 0
        printf 'rank %s: all-reduce\nrank %s: bytes of the card taken by four groups, of both ranks: 1000\n' "$1" "$1" ;;
    mgplan)
        words=()
        for word in "$@"; do
            case $word in
                cuda) word=cpu ;;
                llama3-8b,mixtral-8x7b) word=tiny-llama ;;
                0.05) word=0.00001 ;;
                256MiB) word=256KiB ;;
                8) word=3 ;;
                10) word=${FAKE_TOLERANCE:-1000} ;;
            esac
            words+=("$word")
        done
        if [[ $1 == calibrate ]]; then
            words+=(--tp 1 --seq 32 --precision fp32 --ranks 1)
            echo "$*" >>"$FAKE/calibrate.words"
            if [[ $FAKE_CALIBRATE == cut ]]; then
                # As stopped halfway: part of what was measured is there, and the rest would be measured next.
                "$REAL_MGPLAN" "${words[@]}" && python3 - "${words[@]}" <<'END' && exit "${FAKE_CALIBRATE_ENDS:-9}"
import json, sys
file = sys.argv[sys.argv.index("--output") + 1]
values = json.load(open(file))
values["calibration"]["complete"] = False
json.dump(values, open(file, "w"))
END
            fi
        fi
        [[ ${WORLD_SIZE:-1} == 1 ]] && exec "$REAL_MGPLAN" "${words[@]}"
        # Processes on the CPU are MPI's: the first starts both.
        ((RANK)) && exit 0
        unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
        exec env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            mpirun --oversubscribe -n 2 "$REAL_MGPLAN" "${words[@]}" ;;
esac
"""
FAKE_SMI = r"""#!/usr/bin/env bash
[[ ${FAKE_CARD:-there} == none ]] && exit 9
case $1 in
    *compute_cap*) echo "${FAKE_NAME:-NVIDIA H100 80GB HBM3}, 580.1, 81559, ${FAKE_USED:-4}, ${FAKE_COMPUTE:-9.0}" ;;
    *) echo '1980 MHz, 2619 MHz, 600 W, 50' ;;
esac
"""
FAKE_SANITIZER = r"""#!/usr/bin/env bash
if [[ $1 == --help ]]; then
    [[ $FAKE_SANITIZER == old ]] || echo '  --initcheck-track-filtered-global-memory arg (=yes)'
    exit 0
fi
echo "$*" >>"$FAKE/sanitizer.words"
if [[ $FAKE_TESTS == invalid ]]; then echo '========= ERROR SUMMARY: 2 errors'; exit 86; fi
if [[ $FAKE_TESTS == hazard ]]; then echo '========= RACECHECK SUMMARY: 3 hazards displayed (0 errors, 3 warnings)'; exit 0; fi
while [[ $1 != */gpu_all ]]; do shift; done
[[ $FAKE_TESTS == blind ]] && FAKE_TESTS=pass exec "$@"
"$@"
code=$?
echo '========= ERROR SUMMARY: 0 errors'
exit $code
"""
LAYERS = {"model": "layers", "sequence": 8, "micro_batch": 2, "milliseconds": 10.0, "tokens_per_second": 1600.0,
          "first_loss": 11.2, "last_loss": 11.0, "expected_first_loss": 11.19, "model_tflops": 300.0,
          "bytes": {"parameters": {"predicted": 5, "measured": 5}}, "peak_predicted": 5, "peak_measured": 5}
VERSIONS = {"card": "NVIDIA H100", "cuda": "13.0", "driver": "13.0", "cublas_lt": "13.1.0", "cudnn": "9.19.0", "nccl": "2.28.9"}
MEASURED = {
    "card": VERSIONS,
    "versions": VERSIONS,
    "memory": {"memory": [{"step": "context", "bytes": 500_000_000}, {"step": "all kernels of a training step", "bytes": 800_000_000}]},
    "products": {"products": [{"m": 8, "n": 8, "k": 8, "accumulate_fp32": False, "microseconds": 1.0, "tflops": 700.0, "first_tflops": 680.0}]},
    "layers": {"layers": LAYERS},
}
TORCH = """import json, sys
layers = {"milliseconds": 11.0, "tokens_per_second": 1450.0, "model_tflops": 280.0}
json.dump({"products": [{"m": 8, "n": 8, "k": 8, "tflops": 710.0}]} if sys.argv[1] == "products" else {"layers": layers}, open(sys.argv[2], "w"))
"""


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


HEADERS = {"cuda_runtime_api.h": {"CUDART_VERSION": 13000},
           "cublas_api.h": {"CUBLAS_VER_MAJOR": 13, "CUBLAS_VER_MINOR": 1, "CUBLAS_VER_PATCH": 0},
           "cudnn_version.h": {"CUDNN_MAJOR": 9, "CUDNN_MINOR": 19, "CUDNN_PATCHLEVEL": 0},
           "nccl.h": {"NCCL_MAJOR": 2, "NCCL_MINOR": 28, "NCCL_PATCH": 9}}


def headers(folder):
    """Headers of libraries that say their versions, and the lines of a CMake cache that name their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, numbers in HEADERS.items():
        (folder / name).write_text("".join(f"#define {what} {number}\n" for what, number in numbers.items()), encoding="utf-8")
    return "".join(f"MGPLAN_{feature}_INCLUDE_DIR:PATH={folder}\n" for feature in ("CUDA", "CUDNN", "NCCL"))
