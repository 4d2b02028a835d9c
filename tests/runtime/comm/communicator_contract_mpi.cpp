// The contract's ranks as processes.

#include "tests/runtime/comm/communicator_contract.hpp"
#include "tests/support/mpi_main.hpp"

namespace mgplan::tests {

int world_size() {
    return the_world().size();
}

void on_every_rank(const std::function<void(const Place&)>& body) {
    the_world().traffic().clear();
    the_world().run([&] { body({the_world().view(), the_world().traffic()}); });
}

}  // namespace mgplan::tests
