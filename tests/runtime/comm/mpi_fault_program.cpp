// Ranks under mpirun that do one kind of thing wrong, named by the first argument; mpi_faults_test starts it.
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "plan/text/errors.hpp"
#include "runtime/comm/mpi/mpi_world.hpp"
#include "tests/support/host_device.hpp"

int main(int argc, char** argv) {
    using namespace mgplan;
    const std::string fault = argc > 1 ? argv[1] : "";
    runtime::MpiOptions options;
    if (fault == "silent" || fault == "leave") options.deadline = std::chrono::milliseconds(700);
    if (fault == "wrong-size") options.expected_size = 64;
    try {
        runtime::MpiWorld world(options);
        world.run([&] {
            std::vector<std::int32_t> everyone;
            for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
            const bool culprit = world.rank() == 1;
            if (fault == "other-group" && culprit) static_cast<void>(world.join("dp", everyone));
            const auto group = world.join("tp", everyone);
            tests::HostDevice device;
            const model::Tensor numbers = device.zeros({50'000}, Dtype::fp32, model::MemoryCategory::communication, "numbers");
            for (int step = 0; fault != "none" || step < 10; ++step) {
                group->all_reduce(numbers, model::Reduction::sum);
                if (!culprit || step < 5) continue;
                if (fault == "throw") throw std::runtime_error("the disk is full");
                if (fault == "throw-pending") {
                    const auto pending = group->start_all_reduce(numbers, model::Reduction::sum);
                    throw std::runtime_error("the loss is NaN");
                }
                if (fault == "kill") std::raise(SIGKILL);
                if (fault == "crash") std::raise(SIGSEGV);
                if (fault == "leave") return;
                if (fault == "silent") std::this_thread::sleep_for(std::chrono::hours(1));
                if (fault == "abort") group->abort("rank 1 was told to stop");
            }
        });
    } catch (const ConfigError& error) {
        std::fprintf(stderr, "mgplan: %s\n", error.what());
        return 2;
    } catch (const RunError& error) {
        std::fprintf(stderr, "mgplan: %s\n", error.what());
        return 4;
    }
    return 0;
}
