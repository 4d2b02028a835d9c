#pragma once
// One group of an NCCL world, see nccl_world.hpp.

#include <memory>
#include <string>

#include "model/communicator/communicator.hpp"

namespace mgplan::runtime::cuda {

class NcclState;
struct NcclGroup;

/// `group` is nullptr for a group of one, whose gathers and scatters are copies.
[[nodiscard]] std::unique_ptr<model::Communicator> make_nccl_communicator(std::shared_ptr<NcclState> state,
                                                                          std::shared_ptr<NcclGroup> group, const std::string& name,
                                                                          int size, int rank);

}  // namespace mgplan::runtime::cuda
