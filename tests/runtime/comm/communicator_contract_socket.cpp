// The contract's ranks as threads that talk through sockets alone, as processes do.
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/comm/socket/socket_world.hpp"
#include "tests/runtime/comm/communicator_contract.hpp"
#include "tests/support/socket_mesh.hpp"

namespace mgplan::tests {

int world_size() {
    return 8;
}

void on_every_rank(const std::function<void(const Place&)>& body) {
    auto mesh = socket_mesh(world_size());
    std::mutex mutex;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_size(); ++rank) {
        ranks.emplace_back([&, rank] {
            try {
                runtime::SocketWorld world(rank, std::move(mesh[static_cast<std::size_t>(rank)]), {std::chrono::seconds(60), {}});
                body({world.view(), world.traffic()});
            } catch (const std::exception& error) {
                const std::scoped_lock lock(mutex);
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& each : ranks) each.join();
}

}  // namespace mgplan::tests
