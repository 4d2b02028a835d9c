// One rank of a rendezvous, as its environment says, that does what the first argument names; rendezvous_test starts it.
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
        options.join_deadline = task == "impatient" ? 1000ms : 20s;
        if (task == "wait") options.deadline = 500ms;
        runtime::Rendezvous rendezvous(options,
                                       [&](const std::string& reason) { fmt::print(stderr, "rank {} hears: {}\n", options.rank, reason); });
        rendezvous.set(fmt::format("greeting {}", options.rank), fmt::format("from {}", options.rank));
        const int next = (options.rank + 1) % options.size;
        if (rendezvous.get(fmt::format("greeting {}", next)) != fmt::format("from {}", next)) return 1;
        const std::vector<std::byte> id(128, static_cast<std::byte>(options.rank + 1));
        if (rendezvous.from_rank_0(id) != std::vector<std::byte>(128, std::byte{1})) return 1;
        fmt::print("rank {} is there\n", options.rank);
        std::fflush(stdout);
        if (task == "die") std::_Exit(9);
        if (task == "throw" && options.rank == 1) {
            rendezvous.abort("rank 1 failed: the disk is full");
            return 4;
        }
        if (task == "throw" || task == "wait") static_cast<void>(rendezvous.get("a value that nobody sets"));
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
