#pragma once
// Ranks as processes with a GPU each, over NCCL.

#include <memory>
#include <string>

#include "runtime/cuda_loader/cuda_module.hpp"

namespace mgplan::runtime::cuda {

class CudaDevice;

/// The world by ncclCommInitRankConfig with an id that rank 0 makes and `bootstrap` spreads, its groups by ncclCommSplit
/// (none for groups of one). Throws RunError where NCCL's library cannot be loaded. Non-blocking: a watchdog looks at every communicator
/// and at the age of every operation; an error or a passed deadline aborts the communicators of this rank, which ends the kernels that
/// wait, and whatever is called next throws CommunicationError. Partners notice by their own deadline, or sooner by the bootstrap's
/// connection.
///
/// Collectives run on a stream for each group, after all that was issued on the device's stream before; wait() makes the
/// device's stream wait, not the host. Messages of pipeline groups run at once, on communicators of their own for both ways
/// (message_channels.hpp), which connect neighbours when they are joined. Sends and receives of other groups are held back until their
/// numbers are equal, until one is waited for, or until another operation is issued, and issued together: NCCL's sends wait for
/// their receivers, so that issued one after another they could wait in a circle.
///
/// Operations that are issued while the device's stream is captured become part of the graph. They have no watched events of their
/// own: each launch has one after it, with the graph's name and its operations, and the same deadline. Graphs must be destroyed
/// before the world.
///
/// NCCL_LAUNCH_ORDER_IMPLICIT is left at 0: with 1, a send after an open one on the same communicator would hold up every
/// operation after it; and so would CUDA_DEVICE_MAX_CONNECTIONS=1, which run_over_nccl() refuses where a send may follow an open one.
[[nodiscard]] std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDevice& device, int rank, int size, const Bootstrap& bootstrap,
                                                                  const NcclOptions& options);

/// "2.28.9"; empty in a build without, and where the library is not there.
[[nodiscard]] std::string nccl_version();

}  // namespace mgplan::runtime::cuda
