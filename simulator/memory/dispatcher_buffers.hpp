#pragma once
// Device memory that DeepEP and HybridEP use to exchange tokens, outside any tensor allocator and outside NCCL.

#include <cstdint>

#include "plan/workload.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Sizes of one microbatch's exchange on a rank of an expert-parallel group.
struct DispatcherBuffers {
    std::int64_t tokens = 0;  ///< rows of the residual stream
    std::int64_t hidden = 0;
    std::int64_t experts_per_rank = 0;
    std::int64_t multiprocessors = 0;  ///< number that the dispatcher's kernels occupy; 0: its own default
};

/// Bytes of HybridEP's buffers (deepseek-ai/DeepEP, branch hybrid-ep, csrc/hybrid_ep/buffer/intranode.cu and internode_doca.cu): rows of 16
/// bits for the case that all tokens of the group go to one rank, shared by dispatch and combine, with an fp32 probability for each expert
/// of the domain and fp32 scales for each 128 elements; across domains also the rank's own rows and three times those that arrive from the
/// other domains. Two bytes an element. 0 for a group of one.
[[nodiscard]] std::int64_t hybrid_ep_bytes(const GroupPath& path, const DispatcherBuffers& buffers);

/// Bytes of DeepEP's buffers (csrc/legacy/config.hpp, get_nvl_buffer_size_hint and get_rdma_buffer_size_hint; sizes of chunks in
/// deep_ep/buffers/legacy.py, get_dispatch_config): rings of chunks for each peer of a node of eight and each channel, and for each node.
/// They grow with the width of a row, not with the number of tokens. 0 for a group of one.
[[nodiscard]] std::int64_t deep_ep_bytes(const GroupPath& path, const DispatcherBuffers& buffers);

}  // namespace mgplan::simulator
