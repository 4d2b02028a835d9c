#pragma once
// One group of an NCCL world, see nccl_world.hpp.

#include <memory>
#include <string>
#include <vector>

#include "model/communicator/communicator.hpp"

namespace mgplan::runtime::cuda {

class NcclState;
struct NcclGroup;

/// `channels`: the group's communicators, empty for a group of one, whose gathers and scatters are copies. Collectives use
/// the first; messages are held back if there is one, and use the one of channel_of() if there are several.
[[nodiscard]] std::unique_ptr<model::Communicator> make_nccl_communicator(std::shared_ptr<NcclState> state,
                                                                          std::vector<std::shared_ptr<NcclGroup>> channels,
                                                                          const std::string& name, int size, int rank);

}  // namespace mgplan::runtime::cuda
