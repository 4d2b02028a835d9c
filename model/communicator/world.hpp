#pragma once
// One rank's view of its world: its place, and a function that makes its communicators, for any transport.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "model/communicator/communicator.hpp"

namespace mgplan::model {

/// Makes this rank's communicator of a group: `ranks` are global, all different, this rank among them; a rank's place in
/// the list is its rank in the group. Every member passes the same name and list. Another call makes another group,
/// whose messages never meet those of the first. All ranks of the world call it together and in one order, each for the group
/// it is in; these groups share no rank. A rank that is in none makes a group of itself (a transport may have to meet them all).
using JoinGroup = std::function<std::unique_ptr<Communicator>(const std::string& group, std::span<const std::int32_t> ranks)>;

/// A rank's view of its world; a plain value, used by that rank's thread.
struct World {
    int rank = 0;
    int size = 1;
    JoinGroup join;
};

/// This rank's place in a group's list. A list with a rank outside the world or named twice, or without this rank, is a
/// bug (assertion).
[[nodiscard]] int place_in_group(std::span<const std::int32_t> ranks, int rank, int world_size);

/// "tp (ranks 0, 1, 2, 3)": how messages name a group; of long lists the first 16.
[[nodiscard]] std::string group_text(const std::string& group, std::span<const std::int32_t> ranks);

}  // namespace mgplan::model
