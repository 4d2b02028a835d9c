// One rank of a rendezvous, as its environment tells, that does what the first argument says; rendezvous_test starts it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/rendezvous/rendezvous.hpp"

int main(int argc, char** argv) {
    using namespace mgplan;
    using namespace std::chrono_literals;
    const std::string task = argc > 1 ? argv[1] : "";
    try {
        const auto environment = runtime::process_environment();
        auto options = runtime::rendezvous_options(runtime::rank_from_environment({}, environment), environment);
        options.join_deadline = 20s;
        if (task == "impatient") options.join_deadline = 1000ms;
        if (task == "hurried") options.hello_deadline = 300ms;
        // Shorter than in earnest, so that tests are; longer than a busy machine keeps a thread waiting.
        options.silence = 1500ms;
        options.heartbeat = 100ms;
        runtime::Rendezvous rendezvous(options, [&](const std::string& reason) {
            fmt::print(stderr, "rank {} hears: {}\n", options.rank, reason);
            std::_Exit(4);
        });
        rendezvous.set(fmt::format("greeting {}", options.rank), fmt::format("from {}", options.rank));
        const int next = (options.rank + 1) % options.size;
        if (rendezvous.get(fmt::format("greeting {}", next)) != fmt::format("from {}", next)) return 1;
        fmt::print("rank {} is there\n", options.rank);
        std::fflush(stdout);
        if (task == "work") {
            rendezvous.at("all_reduce", "tp (ranks 0, 1, 2)");
            for (;;) std::this_thread::sleep_for(1h);
        }
        if (task == "throw" && options.rank == 1) rendezvous.abort("rank 1 failed: the disk is full");
        if (task == "throw") std::this_thread::sleep_for(options.rank == 1 ? 0s : 60s);
        rendezvous.leave();
    } catch (const ConfigError& error) {
        fmt::print(stderr, "mgplan: {}\n", error.what());
        return 2;
    } catch (const RunError& error) {
        fmt::print(stderr, "mgplan: {}\n", error.what());
        return 4;
    }
    return 0;
}
