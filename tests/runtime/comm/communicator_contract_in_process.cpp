// The contract's ranks as threads.
#include <gtest/gtest.h>

#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/runtime/comm/communicator_contract.hpp"

namespace mgplan::tests {

int world_size() {
    return 16;
}

void on_every_rank(const std::function<void(const Place&)>& body) {
    runtime::InProcessWorld world(world_size(), {std::chrono::seconds(60)});
    try {
        runtime::run_ranks(world, [&](int rank) { body({world.view(rank), world.traffic(rank)}); });
    } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
    }
}

}  // namespace mgplan::tests
