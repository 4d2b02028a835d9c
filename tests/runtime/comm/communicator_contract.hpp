#pragma once
// What every transport must do, said once. communicator_contract_test.cpp and communicator_messages_test.cpp hold the tests; each
// transport's program adds the functions below. Payloads encode the sender's rank and the index of the element.

#include <functional>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/world.hpp"

namespace mgplan::tests {

/// What a test body is given on each rank.
struct Place {
    model::World world;
    const model::CollectiveCounter& traffic;  ///< the transport's own count for this rank
};

/// Ranks of the transport's world.
[[nodiscard]] int world_size();

/// Runs the body on every rank of a world of world_size(); an exception on any rank fails the test, naming the rank.
void on_every_rank(const std::function<void(const Place&)>& body);

/// The group sizes to test: those of 1, 2, 3, 4, 8, 16 that the world has.
[[nodiscard]] inline std::vector<int> group_sizes() {
    std::vector<int> sizes;
    for (const int size : {1, 2, 3, 4, 8, 16}) {
        if (size <= world_size()) sizes.push_back(size);
    }
    return sizes;
}

}  // namespace mgplan::tests
