#include <iostream>
#include <string>
#include <vector>

#include "cli/command.hpp"

int main(int argc, char** argv) {
    std::ios::sync_with_stdio(false);
    mgplan::cli::Console console{std::cout, std::cerr};
    return mgplan::cli::run_mgplan(std::vector<std::string>(argv + 1, argv + argc), console);
}
