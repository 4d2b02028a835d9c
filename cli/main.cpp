#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"

namespace {

/// Lets a search, which takes and frees memory all the time on several threads, keep freed memory and take more in large steps, which
/// halves the kernel's part of its time. Not for other commands, which hold large tensors or run for days.
void keep_freed_memory() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
    constexpr int kStep = 64 << 20, kNeverTrimmed = 1 << 30, kLargestInHeap = 32 << 20;  // bytes; the last is the most there may be
    (void)::mallopt(M_TOP_PAD, kStep);
    (void)::mallopt(M_TRIM_THRESHOLD, kNeverTrimmed);
    (void)::mallopt(M_MMAP_THRESHOLD, kLargestInHeap);
}

int say_that_memory_is_short() {
    std::fputs("mgplan: out of memory on this machine\n", stderr);
    return mgplan::cli::kRunFailed;
}

bool main_runs = false;

/// Memory may run out in a destructor, too: those of JSON values allocate. Such an exception is caught nowhere and ends the process here.
/// Before main() static values are made; an exception that finds no memory itself then ends the process without one.
[[noreturn]] void end_uncaught() {
    try {
        if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
        if (!main_runs) ::_exit(say_that_memory_is_short());
    } catch (const std::bad_alloc&) {
        ::_exit(say_that_memory_is_short());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mgplan: internal error: %s\n", error.what());
    }
    std::abort();
}

/// Before all static values of the program.
[[gnu::constructor(101)]] void watch_static_values() {
    std::set_terminate(end_uncaught);
}

int run(int argc, char** argv) {
    if (argc < 2 || argv[1] == std::string_view("plan") || argv[1][0] == '-') keep_freed_memory();
    std::ios::sync_with_stdio(false);
    // With a limit of file sizes (ulimit -f) the write then fails, which is reported, instead of ending the process.
    std::signal(SIGXFSZ, SIG_IGN);
    mgplan::cli::Console console{std::cout, std::cerr, ::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1};
    return mgplan::cli::run_mgplan(std::vector<std::string>(argv + 1, argv + argc), console);
}

}  // namespace

int main(int argc, char** argv) {
    main_runs = true;
    try {
        return run(argc, argv);
    } catch (const std::bad_alloc&) {
        return say_that_memory_is_short();
    }
}
