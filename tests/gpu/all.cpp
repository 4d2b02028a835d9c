// Everything for a machine with a GPU in one program, because OpenBLAS is most of it and travels once:
//     gpu_all test [GoogleTest's options] | bench … | nccl … | mgplan … | hang
// `hang` says a line and waits to be stopped: programs_test.py sees that the line is there then.
//
// Exits 77 where no GPU can be used, with the reason on standard error; `test` also where all tests were skipped for want of one. A test
// that is skipped beside others that ran is a failure, and so is a filter that leaves none.

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "tests/gpu/programs.hpp"

namespace {

int run_tests(int argc, char** argv) {
    testing::InitGoogleMock(&argc, argv);
    if (argc > 1) {
        fmt::print(stderr, "gpu_all test: {} is no option of GoogleTest\n", argv[1]);
        return 2;
    }
    if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
    const bool good = RUN_ALL_TESTS() == 0;
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    const int passed = all.successful_test_count(), skipped = all.skipped_test_count(), failed = all.failed_test_count();
    fmt::print("gpu_all test: {} passed, {} skipped, {} failed\n", passed, skipped, failed);
    if (good && passed == 0 && skipped > 0) return 77;
    return good && passed > 0 && skipped == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const std::vector<std::string> words(argv + (argc > 1 ? 2 : 1), argv + argc);
    // Into a file line by line, too: what hangs or is killed has said how far it came.
    static_cast<void>(std::setvbuf(stdout, nullptr, _IOLBF, 0));
    try {
        if (what == "test") return run_tests(argc - 1, argv + 1);
        if (what == "bench") return mgplan::tests::run_gpu_bench(words);
        if (what == "nccl") return mgplan::tests::run_gpu_nccl(words);
    } catch (const mgplan::runtime::CudaUnavailable& error) {
        fmt::print(stderr, "gpu_all {}: {}\n", what, error.what());
        return 77;
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu_all {}: {}\n", what, error.what());
        return 4;
    }
    if (what == "mgplan") {
        mgplan::cli::Console console{std::cout, std::cerr};
        return mgplan::cli::run_mgplan(words, console);
    }
    if (what == "hang") {
        fmt::print("gpu_all hang: waits to be stopped\n");
        std::this_thread::sleep_for(std::chrono::hours{1});
        return 0;
    }
    fmt::print(stderr, "usage: gpu_all test | bench | nccl | mgplan [their options] | hang\n");
    return 2;
}
