#include "tests/simulator/own_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace mgplan::simulator {

std::vector<double> in_own_process(std::size_t count, const std::function<std::vector<double>()>& work) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("in_own_process: no pipe");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("in_own_process: no process");
    const std::size_t bytes = count * sizeof(double);
    if (child == 0) {
        const std::vector<double> numbers = work();
        const bool told = numbers.size() == count && write(ends[1], numbers.data(), bytes) == static_cast<ssize_t>(bytes);
        _exit(told ? 0 : 1);
    }
    close(ends[1]);
    std::vector<double> numbers(count);
    const bool heard = read(ends[0], numbers.data(), bytes) == static_cast<ssize_t>(bytes);  // fewer than a pipe holds
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!heard || status != 0) throw std::runtime_error("in_own_process: the work did not come to its end");
    return numbers;
}

}  // namespace mgplan::simulator
