#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "cli/command.hpp"

int main(int argc, char** argv) {
    std::ios::sync_with_stdio(false);
    // A file that may not grow (ulimit -f) is an error of the write then, which is told by name, and not the end of the process.
    std::signal(SIGXFSZ, SIG_IGN);
    mgplan::cli::Console console{std::cout, std::cerr, ::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1};
    return mgplan::cli::run_mgplan(std::vector<std::string>(argv + 1, argv + argc), console);
}
